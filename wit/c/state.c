#include "state.h"

// Laid out as the component model's ABI lays out a result, so a call returns it as it is.
static struct {
  bool is_err;
  union {
    plugin_list_u8_t ok;
    exports_shardmill_processor_state_error_t err;
  } val;
} returned;

__attribute__((__export_name__("shardmill:processor/state@0.1.0#save")))
void *__wasm_export_exports_shardmill_processor_state_save(void) {
  plugin_list_u8_t state;
  exports_shardmill_processor_state_error_t err;
  returned.is_err = !exports_shardmill_processor_state_save(&state, &err);
  if (returned.is_err) {
    returned.val.err = err;
  } else {
    returned.val.ok = state;
  }
  return &returned;
}

__attribute__((__export_name__("cabi_post_shardmill:processor/state@0.1.0#save")))
void __wasm_export_exports_shardmill_processor_state_save_post_return(void *result) {
  (void)result;
  if (returned.is_err) {
    shardmill_processor_types_error_free(&returned.val.err);
  } else {
    plugin_list_u8_free(&returned.val.ok);
  }
}

__attribute__((__export_name__("shardmill:processor/state@0.1.0#load")))
void *__wasm_export_exports_shardmill_processor_state_load(uint8_t *start, size_t length) {
  plugin_list_u8_t state = {start, length};
  exports_shardmill_processor_state_error_t err;
  returned.is_err = !exports_shardmill_processor_state_load(&state, &err);
  if (returned.is_err) {
    returned.val.err = err;
  }
  return &returned;
}

__attribute__((__export_name__("cabi_post_shardmill:processor/state@0.1.0#load")))
void __wasm_export_exports_shardmill_processor_state_load_post_return(void *result) {
  (void)result;
  if (returned.is_err) {
    shardmill_processor_types_error_free(&returned.val.err);
  }
}
