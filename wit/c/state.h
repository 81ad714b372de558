// The interface `state` of the contract, for processors that keep state of their shard; `plugin.h` has the rest. By hand:
// wit-bindgen would make a second plugin.h of it.
//
// To be compiled in: `$(BINDINGS)/state.c` in the Makefile, and `export state;` in the world `plugin` of wit/processor.wit.

#ifndef SHARDMILL_STATE_H
#define SHARDMILL_STATE_H

#include "plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef shardmill_processor_types_error_t exports_shardmill_processor_state_error_t;

// The state after everything processed so far. Called between two calls of `process`, before each checkpoint, so it
// should be quick and small. What it returns is freed by the bindings.
bool exports_shardmill_processor_state_save(plugin_list_u8_t *ret, exports_shardmill_processor_state_error_t *err);

// Called once after `init`, before any batch, if there is a saved state; it may come from another version. An error
// refuses it. The state is the callee's, to be freed.
bool exports_shardmill_processor_state_load(plugin_list_u8_t *state, exports_shardmill_processor_state_error_t *err);

#ifdef __cplusplus
}
#endif
#endif
