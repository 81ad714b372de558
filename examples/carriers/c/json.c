#include "json.h"

#include <string.h>

// Deeper values are refused: a stack is small, and what is sent may be hostile.
enum { DEEPEST = 64 };

typedef struct {
    const char *at, *end;
} reader;

static bool read_value(reader *r, json_value *value, int depth);

static void skip_space(reader *r) {
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\n' || *r->at == '\r')) {
        r->at++;
    }
}

static bool read_char(reader *r, char wanted) {
    skip_space(r);
    if (r->at == r->end || *r->at != wanted) {
        return false;
    }
    r->at++;
    return true;
}

static bool read_word(reader *r, const char *word) {
    size_t length = strlen(word);
    if ((size_t)(r->end - r->at) < length || memcmp(r->at, word, length) != 0) {
        return false;
    }
    r->at += length;
    return true;
}

static bool read_digits(reader *r) {
    const char *start = r->at;
    while (r->at < r->end && *r->at >= '0' && *r->at <= '9') {
        r->at++;
    }
    return r->at > start;
}

static bool read_number(reader *r) {
    read_word(r, "-");
    if (!read_word(r, "0") && !read_digits(r)) {
        return false;
    }
    if (read_word(r, ".") && !read_digits(r)) {
        return false;
    }
    if (read_word(r, "e") || read_word(r, "E")) {
        if (!read_word(r, "-")) {
            read_word(r, "+");
        }
        return read_digits(r);
    }
    return true;
}

// What follows the opening quote. Escapes are stepped over, not judged.
static bool read_string(reader *r, json_text *text) {
    text->start = r->at;
    while (r->at < r->end && *r->at != '"') {
        if ((unsigned char)*r->at < ' ') {
            return false;
        }
        r->at += *r->at == '\\' ? 2 : 1;
    }
    if (r->at >= r->end) {
        return false;
    }
    text->length = (size_t)(r->at - text->start);
    r->at++;
    return true;
}

// What follows the opening brace.
static bool read_members(reader *r, const json_member *members, size_t count, int depth) {
    if (read_char(r, '}')) {
        return true;
    }
    do {
        json_text name;
        json_value value;
        if (!read_char(r, '"') || !read_string(r, &name) || !read_char(r, ':') || !read_value(r, &value, depth)) {
            return false;
        }
        for (size_t i = 0; i < count; i++) {
            if (strlen(members[i].name) == name.length && memcmp(members[i].name, name.start, name.length) == 0) {
                *members[i].value = value;
            }
        }
    } while (read_char(r, ','));
    return read_char(r, '}');
}

// What follows the opening bracket.
static bool read_elements(reader *r, int depth) {
    if (read_char(r, ']')) {
        return true;
    }
    do {
        json_value value;
        if (!read_value(r, &value, depth)) {
            return false;
        }
    } while (read_char(r, ','));
    return read_char(r, ']');
}

static bool read_value(reader *r, json_value *value, int depth) {
    if (depth == DEEPEST) {
        return false;
    }
    if (read_char(r, '"')) {
        value->type = JSON_STRING;
        return read_string(r, &value->text);
    }
    value->text.start = r->at;
    bool whole;
    if (read_char(r, '{')) {
        value->type = JSON_OBJECT;
        whole = read_members(r, NULL, 0, depth + 1);
    } else if (read_char(r, '[')) {
        value->type = JSON_ARRAY;
        whole = read_elements(r, depth + 1);
    } else if (read_word(r, "null")) {
        value->type = JSON_NULL;
        whole = true;
    } else if (read_word(r, "true") || read_word(r, "false")) {
        value->type = JSON_BOOLEAN;
        whole = true;
    } else {
        value->type = JSON_NUMBER;
        whole = read_number(r);
    }
    value->text.length = (size_t)(r->at - value->text.start);
    return whole;
}

bool json_read_object(const char *text, size_t length, const json_member *members, size_t count) {
    for (size_t i = 0; i < count; i++) {
        *members[i].value = (json_value){.type = JSON_MISSING};
    }
    reader r = {text, text + length};
    if (!read_char(&r, '{') || !read_members(&r, members, count, 0)) {
        return false;
    }
    skip_space(&r);
    return r.at == r.end;
}

bool json_integer(json_text number, int64_t *value) {
    bool negative = number.length && number.start[0] == '-';
    size_t digits = number.length - negative;
    if (digits > 18) {
        return false;
    }
    int64_t sum = 0;
    for (size_t i = negative; i < number.length; i++) {
        if (number.start[i] < '0' || number.start[i] > '9') {
            return false;
        }
        sum = 10 * sum + (number.start[i] - '0');
    }
    *value = negative ? -sum : sum;
    return digits > 0;
}
