// The component: what the host calls, as `plugin.h` and `state.h` declare it.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugin.h"
#include "state.h"

typedef exports_shardmill_processor_processor_batch_t batch_t;
typedef exports_shardmill_processor_processor_close_reason_t close_reason_t;
typedef exports_shardmill_processor_processor_context_t context_t;
typedef exports_shardmill_processor_processor_error_t error_t;
typedef exports_shardmill_processor_processor_outcome_t outcome_t;

// An instance serves one shard. The count is its state; the other ends with the instance.
static unsigned long count, failed;

static bool fail(error_t *error, const char *message) {
    error->tag = SHARDMILL_PROCESSOR_TYPES_ERROR_OTHER;
    plugin_string_dup(&error->val.other, message);
    return false;
}

bool exports_shardmill_processor_processor_init(context_t *context, error_t *error) {
    (void)error;
    exports_shardmill_processor_processor_context_free(context);
    return true;
}

static bool is(plugin_list_u8_t *data, const char *text) {
    return data->len == strlen(text) && memcmp(data->ptr, text, data->len) == 0;
}

static bool handle(shardmill_processor_types_record_t *record, error_t *error) {
    char output[100];
    if (is(&record->data, "fail")) {
        snprintf(output, sizeof output, "on purpose, %lu times", ++failed);
        return fail(error, output);
    }
    if (is(&record->data, "die")) {
        abort();
    }
    int shown = record->data.len < 64 ? (int)record->data.len : 64;
    int length = snprintf(output, sizeof output, "%.*s %lu", shown, (char *)record->data.ptr, ++count);
    plugin_string_t destination;
    plugin_string_set(&destination, "stdout");
    plugin_list_u8_t data = {(uint8_t *)output, length};
    shardmill_processor_emit_emit_error_t emit_error;
    if (!shardmill_processor_emit_put(&destination, &record->partition_key, &data, &emit_error)) {
        shardmill_processor_emit_emit_error_free(&emit_error);
        return fail(error, "the output was not taken");
    }
    return true;
}

bool exports_shardmill_processor_processor_process(batch_t *batch, outcome_t *outcome, error_t *error) {
    *outcome = (outcome_t){.commit.tag = SHARDMILL_PROCESSOR_TYPES_COMMIT_ALL};
    bool done = true;
    for (size_t i = 0; done && i < batch->records.len; i++) {
        done = handle(&batch->records.ptr[i], error);
    }
    exports_shardmill_processor_processor_batch_free(batch);
    return done;
}

bool exports_shardmill_processor_processor_close(close_reason_t *reason, error_t *error) {
    (void)error;
    exports_shardmill_processor_processor_close_reason_free(reason);
    return true;
}

bool exports_shardmill_processor_state_save(plugin_list_u8_t *state, error_t *error) {
    state->ptr = malloc(32);
    if (!state->ptr) {
        return fail(error, "out of memory");
    }
    state->len = snprintf((char *)state->ptr, 32, "%lu", count);
    return true;
}

bool exports_shardmill_processor_state_load(plugin_list_u8_t *state, error_t *error) {
    char text[32] = "";
    memcpy(text, state->ptr, state->len < sizeof text ? state->len : sizeof text - 1);
    plugin_list_u8_free(state);
    char *end;
    count = strtoul(text, &end, 10);
    return (*text && !*end) || fail(error, "no count was saved");
}
