// `make test` compiles this natively, with the sanitizers, and runs it.

#undef NDEBUG
#include <assert.h>
#include <stdio.h>

#include "handle.h"

int main(void) {
    bytes data = {(const uint8_t *)"hello", 5}, output;
    assert(!handle(data, &output));
    assert(output.start == data.start && output.length == data.length);

    assert(handle((bytes){0}, &output));
    puts("ok");
}
