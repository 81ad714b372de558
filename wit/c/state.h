// The interface `state` of the contract, for processors that keep state of their shard; `plugin.h` has the rest. Written by
// hand, because wit-bindgen would generate a second plugin.h.
//
// To use it, add `$(BINDINGS)/state.c` to the Makefile, and `export state;` to the world `plugin` in wit/processor.wit.

#ifndef SHARDMILL_STATE_H
#define SHARDMILL_STATE_H

#include "plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef shardmill_processor_types_error_t exports_shardmill_processor_state_error_t;

// The state after everything processed so far. Called between two calls of `process`, before each checkpoint, so it
// should be quick and small. The bindings free what it returns.
bool exports_shardmill_processor_state_save(plugin_list_u8_t *ret, exports_shardmill_processor_state_error_t *err);

// Called once after `init`, before any batch, if there is a saved state; it may come from another version. An error
// refuses it. The callee owns the state and frees it.
bool exports_shardmill_processor_state_load(plugin_list_u8_t *state, exports_shardmill_processor_state_error_t *err);

#ifdef __cplusplus
}
#endif
#endif
