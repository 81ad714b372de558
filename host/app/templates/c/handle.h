// The logic, free of the host: `make test` runs it anywhere.

#ifndef HANDLE_H
#define HANDLE_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    const uint8_t *start;
    size_t length;
} bytes;

// Makes the output of one record's data. Returns NULL, or why the record is rejected.
const char *handle(bytes data, bytes *output);

#endif
