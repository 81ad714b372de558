// The processor's logic, independent of the host: `make test` runs it anywhere.

#ifndef CARRIERS_H
#define CARRIERS_H

#include <stddef.h>
#include <stdint.h>

// The figures of one carrier.
typedef struct {
    const char *name; // Points into the line that named it first.
    size_t name_length;
    int64_t flights, with_delay, delay_minutes;
} carrier_sum;

// Starts as {0}; end with sums_free.
typedef struct {
    carrier_sum *items;
    size_t length, capacity;
} carrier_sums;

// What sums_add returns when there is no memory left.
extern const char sums_no_memory[];

// Counts a flight, one JSON object. Returns NULL, or why it is not one. The line must outlive the sums.
const char *sums_add(carrier_sums *sums, const char *line, size_t length);

// Sorts by name.
void sums_sort(carrier_sums *sums);

// Writes a sum as a line of JSON and returns its length, or one beyond `size` if that is too small; as snprintf does.
size_t sum_format(const carrier_sum *sum, char *line, size_t size);

void sums_free(carrier_sums *sums);

#endif
