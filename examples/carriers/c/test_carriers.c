// `make test` compiles this natively, with the sanitizers, and runs it.

#undef NDEBUG
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "carriers.h"

static const char *add(carrier_sums *sums, const char *line) { return sums_add(sums, line, strlen(line)); }

static void each_carrier_is_one_line(void) {
    carrier_sums sums = {0};
    assert(!add(&sums, "{\"carrier\":\"UA\",\"dep_delay\":2}"));
    assert(!add(&sums, " { \"x\" : [1, {\"carrier\": \"ZZ\"}, -1.5e+3, true], \"carrier\" : \"UA\" , \"dep_delay\":null}\n"));
    assert(!add(&sums, "{\"carrier\":\"AA\",\"dep_delay\":-5}"));
    sums_sort(&sums);
    assert(sums.length == 2);
    char line[100];
    assert(sum_format(&sums.items[0], line, sizeof line) == strlen(line));
    assert(!strcmp(line, "{\"carrier\":\"AA\",\"flights\":1,\"with_delay\":1,\"delay_minutes\":-5}"));
    sum_format(&sums.items[1], line, sizeof line);
    assert(!strcmp(line, "{\"carrier\":\"UA\",\"flights\":2,\"with_delay\":1,\"delay_minutes\":2}"));
    sums_free(&sums);
}

static void what_is_not_a_flight_is_rejected(void) {
    static const char *const bad[] = {
        "", "[]", "null", "{", "{}", "{\"carrier\":7}", "{\"carrier\":\"UA\"", "{\"carrier\":\"UA\"}x", "{\"carrier\":\"UA",
        "{\"carrier\":\"UA\\", "{\"carrier\":\"\xff\"}", "{\"carrier\":\"UA\",\"dep_delay\":\"late\"}",
        "{\"carrier\":\"UA\",\"dep_delay\":1.5}", "{\"carrier\":\"UA\",\"dep_delay\":1234567890123456789}",
        "{\"carrier\":\"UA\",\"x\":}", "{\"carrier\":\"UA\",}", "{\"carrier\":\"UA\",\"x\":-}",
    };
    carrier_sums sums = {0};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert(add(&sums, bad[i]));
    }
    char deep[10000];
    memset(deep, '[', sizeof deep);
    memcpy(deep, "{\"x\":", 5);
    assert(sums_add(&sums, deep, sizeof deep));
    assert(sums.length == 0);
    sums_free(&sums);
}

int main(void) {
    each_carrier_is_one_line();
    what_is_not_a_flight_is_rejected();
    puts("ok");
}
