// Reads a few members of a JSON object, without copying or allocating.

#ifndef JSON_H
#define JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    const char *start;
    size_t length;
} json_text;

typedef enum {
    JSON_MISSING, // The object has no such member.
    JSON_NULL,
    JSON_BOOLEAN,
    JSON_NUMBER,
    JSON_STRING,
    JSON_ARRAY,
    JSON_OBJECT,
} json_type;

typedef struct {
    json_type type;
    json_text text; // Unchanged; for a string, what is between the quotes, with its escapes.
} json_value;

// A member to look for, and where to put it. If a name occurs several times, the last one counts.
typedef struct {
    const char *name;
    json_value *value;
} json_member;

// Whether the text is one JSON object.
bool json_read_object(const char *text, size_t length, const json_member *members, size_t count);

// Whether the number is a whole one of at most 18 digits.
bool json_integer(json_text number, int64_t *value);

#endif
