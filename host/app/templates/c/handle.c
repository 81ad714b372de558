#include "handle.h"

const char *handle(bytes data, bytes *output) {
    if (data.length == 0) {
        return "the record is empty";
    }
    // Your logic goes here.
    *output = data;
    return NULL;
}
