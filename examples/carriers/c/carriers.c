#include "carriers.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"

const char sums_no_memory[] = "out of memory";

// The sum of a carrier, made if it is the first; NULL without memory. There are so few that looking at each is quick.
static carrier_sum *sum_of(carrier_sums *sums, json_text name) {
    for (size_t i = 0; i < sums->length; i++) {
        carrier_sum *sum = &sums->items[i];
        if (sum->name_length == name.length && memcmp(sum->name, name.start, name.length) == 0) {
            return sum;
        }
    }
    if (sums->length == sums->capacity) {
        size_t capacity = sums->capacity ? 2 * sums->capacity : 32;
        carrier_sum *items = realloc(sums->items, capacity * sizeof *items);
        if (!items) {
            return NULL;
        }
        sums->items = items;
        sums->capacity = capacity;
    }
    carrier_sum *sum = &sums->items[sums->length++];
    *sum = (carrier_sum){.name = name.start, .name_length = name.length};
    return sum;
}

// Whether the text can be used in JSON and in a key unchanged: the host takes UTF-8 only, and ASCII is all a code needs.
static bool is_plain(json_text text) {
    for (size_t i = 0; i < text.length; i++) {
        if (text.start[i] < ' ' || text.start[i] > '~' || text.start[i] == '\\') {
            return false;
        }
    }
    return true;
}

const char *sums_add(carrier_sums *sums, const char *line, size_t length) {
    json_value carrier, delay;
    json_member members[] = {{"carrier", &carrier}, {"dep_delay", &delay}};
    if (!json_read_object(line, length, members, sizeof members / sizeof *members)) {
        return "not a JSON object";
    }
    if (carrier.type != JSON_STRING) {
        return "no carrier";
    }
    if (!is_plain(carrier.text)) {
        return "the carrier is not a plain code";
    }
    int64_t minutes = 0;
    bool delayed = delay.type == JSON_NUMBER;
    if (delayed ? !json_integer(delay.text, &minutes) : delay.type != JSON_NULL && delay.type != JSON_MISSING) {
        return "dep_delay is not a whole number";
    }
    carrier_sum *sum = sum_of(sums, carrier.text);
    if (!sum) {
        return sums_no_memory;
    }
    sum->flights += 1;
    sum->with_delay += delayed;
    sum->delay_minutes += minutes;
    return NULL;
}

static int by_name(const void *left, const void *right) {
    const carrier_sum *a = left, *b = right;
    size_t shorter = a->name_length < b->name_length ? a->name_length : b->name_length;
    int order = memcmp(a->name, b->name, shorter);
    return order ? order : (a->name_length > b->name_length) - (a->name_length < b->name_length);
}

void sums_sort(carrier_sums *sums) {
    if (sums->length) {
        qsort(sums->items, sums->length, sizeof *sums->items, by_name);
    }
}

size_t sum_format(const carrier_sum *sum, char *line, size_t size) {
    return (size_t)snprintf(line, size,
        "{\"carrier\":\"%.*s\",\"flights\":%" PRId64 ",\"with_delay\":%" PRId64 ",\"delay_minutes\":%" PRId64 "}",
        (int)sum->name_length, sum->name, sum->flights, sum->with_delay, sum->delay_minutes);
}

void sums_free(carrier_sums *sums) {
    free(sums->items);
    *sums = (carrier_sums){0};
}
