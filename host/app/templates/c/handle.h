// The logic, independent of the host: `make test` runs it anywhere.

#ifndef HANDLE_H
#define HANDLE_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    const uint8_t *start;
    size_t length;
} bytes;

// Turns one record's data into output. Returns NULL, or why the record is rejected.
const char *handle(bytes data, bytes *output);

#endif
