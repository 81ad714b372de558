// The component: what the host calls, as `plugin.h` declares it. carriers.c does the work.
//
// Configuration: `destination` (default `stdout`).
//
// C has no exceptions: errors are returned. A crash costs the instance, and a new one gets the batch again.
// A call owns its arguments and frees them; the bindings free what it returns.

#include <stdlib.h>

#include "plugin.h"
#include "carriers.h"

typedef exports_shardmill_processor_processor_batch_t batch_t;
typedef exports_shardmill_processor_processor_close_reason_t close_reason_t;
typedef exports_shardmill_processor_processor_context_t context_t;
typedef exports_shardmill_processor_processor_error_t error_t;
typedef exports_shardmill_processor_processor_outcome_t outcome_t;
typedef shardmill_processor_types_failure_t failure_t;

// An instance serves one shard, so keep here what must last from call to call.
static plugin_string_t destination;

static bool fail(error_t *error, uint8_t tag, const char *message) {
    error->tag = tag;
    plugin_string_dup(&error->val.other, message);
    return false;
}

bool exports_shardmill_processor_processor_init(context_t *context, error_t *error) {
    exports_shardmill_processor_processor_context_free(context);
    plugin_string_t key;
    plugin_string_set(&key, "destination");
    plugin_option_string_t value;
    wasi_config_store_error_t config_error;
    if (!wasi_config_store_get(&key, &value, &config_error)) {
        wasi_config_store_error_free(&config_error);
        return fail(error, SHARDMILL_PROCESSOR_TYPES_ERROR_UNAVAILABLE, "the configuration cannot be read");
    }
    if (value.is_some) {
        destination = value.val;
    } else {
        plugin_string_set(&destination, "stdout");
    }
    return true;
}

static bool emit(const carrier_sums *sums, error_t *error) {
    for (size_t i = 0; i < sums->length; i++) {
        const carrier_sum *sum = &sums->items[i];
        // Twice the name and three numbers of at most 20 characters, with room for the rest.
        size_t size = sum->name_length + 128;
        char *line = malloc(size);
        if (!line) {
            return fail(error, SHARDMILL_PROCESSOR_TYPES_ERROR_OTHER, sums_no_memory);
        }
        plugin_string_t key = {(uint8_t *)sum->name, sum->name_length};
        plugin_list_u8_t data = {(uint8_t *)line, sum_format(sum, line, size)};
        shardmill_processor_emit_emit_error_t emit_error;
        bool taken = shardmill_processor_emit_put(&destination, &key, &data, &emit_error);
        free(line);
        if (!taken) {
            if (emit_error.tag == SHARDMILL_PROCESSOR_EMIT_EMIT_ERROR_UNKNOWN_DESTINATION) {
                shardmill_processor_emit_emit_error_free(&emit_error);
                return fail(error, SHARDMILL_PROCESSOR_TYPES_ERROR_MISCONFIGURED, "`destination` names no sink of the host");
            }
            // Every case carries a text.
            error->tag = SHARDMILL_PROCESSOR_TYPES_ERROR_OTHER;
            error->val.other = emit_error.val.other;
            return false;
        }
    }
    return true;
}

static bool process(const batch_t *batch, carrier_sums *sums, outcome_t *outcome, error_t *error) {
    // Room for every record to fail; the bindings free it.
    failure_t *failures = malloc(batch->records.len * sizeof *failures);
    *outcome = (outcome_t){.failures.ptr = failures, .commit.tag = SHARDMILL_PROCESSOR_TYPES_COMMIT_ALL};
    if (!failures) {
        return fail(error, SHARDMILL_PROCESSOR_TYPES_ERROR_OTHER, sums_no_memory);
    }
    for (size_t i = 0; i < batch->records.len; i++) {
        const plugin_list_u8_t *line = &batch->records.ptr[i].data;
        const char *reason = sums_add(sums, (const char *)line->ptr, line->len);
        if (reason == sums_no_memory) {
            return fail(error, SHARDMILL_PROCESSOR_TYPES_ERROR_OTHER, reason);
        }
        if (reason) {
            failure_t *failure = &failures[outcome->failures.len++];
            *failure = (failure_t){.index = (uint32_t)i, .kind = SHARDMILL_PROCESSOR_TYPES_FAILURE_KIND_REJECT};
            plugin_string_dup(&failure->message, reason);
        }
    }
    sums_sort(sums);
    return emit(sums, error);
}

bool exports_shardmill_processor_processor_process(batch_t *batch, outcome_t *outcome, error_t *error) {
    carrier_sums sums = {0};
    bool done = process(batch, &sums, outcome, error);
    if (!done) {
        exports_shardmill_processor_processor_outcome_free(outcome);
    }
    sums_free(&sums);
    exports_shardmill_processor_processor_batch_free(batch);
    return done;
}

bool exports_shardmill_processor_processor_close(close_reason_t *reason, error_t *error) {
    (void)error;
    exports_shardmill_processor_processor_close_reason_free(reason);
    return true;
}
