// The component: what the host calls, as `plugin.h` declares it. handle.c does the work.
//
// C has no exceptions: errors are returned. A crash costs the instance, and a new one gets the batch again.
// A call owns its arguments and frees them; the bindings free what it returns.

#include <stdlib.h>
#include <string.h>

#include "plugin.h"
#include "handle.h"

typedef exports_shardmill_processor_processor_batch_t batch_t;
typedef exports_shardmill_processor_processor_close_reason_t close_reason_t;
typedef exports_shardmill_processor_processor_context_t context_t;
typedef exports_shardmill_processor_processor_error_t error_t;
typedef exports_shardmill_processor_processor_outcome_t outcome_t;
typedef shardmill_processor_types_failure_t failure_t;

// An instance serves one shard: keep here what must last from call to call.
static plugin_string_t destination;

static bool fail(error_t *error, uint8_t tag, const char *message) {
    error->tag = tag;
    plugin_string_dup(&error->val.other, message);
    return false;
}

static bool config(const char *name, plugin_option_string_t *value, error_t *error) {
    plugin_string_t key;
    plugin_string_set(&key, name);
    wasi_config_store_error_t config_error;
    if (wasi_config_store_get(&key, value, &config_error)) {
        return true;
    }
    wasi_config_store_error_free(&config_error);
    return fail(error, SHARDMILL_PROCESSOR_TYPES_ERROR_UNAVAILABLE, "the configuration cannot be read");
}

// Whether `name` is one of `names`, which are separated by commas.
static bool is_among(const plugin_string_t *name, const plugin_string_t *names) {
    const char *start = (const char *)names->ptr, *end = start + names->len;
    while (start <= end) {
        const char *comma = start < end ? memchr(start, ',', (size_t)(end - start)) : NULL;
        size_t length = (size_t)((comma ? comma : end) - start);
        if (length == name->len && memcmp(start, name->ptr, length) == 0) {
            return true;
        }
        start += length + 1;
    }
    return false;
}

// Refuses what names no sink of the host before the first record needs it.
static bool refuse_unknown(error_t *error) {
    plugin_option_string_t known;
    if (!config("shardmill.destinations", &known, error)) {
        return false;
    }
    bool is_known = !known.is_some || is_among(&destination, &known.val);
    plugin_option_string_free(&known);
    return is_known || fail(error, SHARDMILL_PROCESSOR_TYPES_ERROR_MISCONFIGURED, "`destination` names no sink of the host");
}

bool exports_shardmill_processor_processor_init(context_t *context, error_t *error) {
    exports_shardmill_processor_processor_context_free(context);
    plugin_option_string_t value;
    if (!config("destination", &value, error)) {
        return false;
    }
    if (value.is_some) {
        destination = value.val;
    } else {
        plugin_string_set(&destination, "stdout");
    }
    return refuse_unknown(error);
}

static bool emit(plugin_string_t *key, bytes output, error_t *error) {
    plugin_list_u8_t data = {(uint8_t *)output.start, output.length};
    shardmill_processor_emit_emit_error_t emit_error;
    if (shardmill_processor_emit_put(&destination, key, &data, &emit_error)) {
        return true;
    }
    if (emit_error.tag == SHARDMILL_PROCESSOR_EMIT_EMIT_ERROR_UNKNOWN_DESTINATION) {
        shardmill_processor_emit_emit_error_free(&emit_error);
        return fail(error, SHARDMILL_PROCESSOR_TYPES_ERROR_MISCONFIGURED, "`destination` names no sink of the host");
    }
    // Every case carries a text.
    error->tag = SHARDMILL_PROCESSOR_TYPES_ERROR_OTHER;
    error->val.other = emit_error.val.other;
    return false;
}

static bool process(batch_t *batch, outcome_t *outcome, error_t *error) {
    // Room for every record to fail; the bindings free it.
    failure_t *failures = malloc(batch->records.len * sizeof *failures);
    *outcome = (outcome_t){.failures.ptr = failures, .commit.tag = SHARDMILL_PROCESSOR_TYPES_COMMIT_ALL};
    if (!failures) {
        return fail(error, SHARDMILL_PROCESSOR_TYPES_ERROR_OTHER, "out of memory");
    }
    for (size_t i = 0; i < batch->records.len; i++) {
        shardmill_processor_types_record_t *record = &batch->records.ptr[i];
        bytes output;
        const char *reason = handle((bytes){record->data.ptr, record->data.len}, &output);
        if (reason) {
            failure_t *failure = &failures[outcome->failures.len++];
            *failure = (failure_t){.index = (uint32_t)i, .kind = SHARDMILL_PROCESSOR_TYPES_FAILURE_KIND_REJECT};
            plugin_string_dup(&failure->message, reason);
        } else if (!emit(&record->partition_key, output, error)) {
            return false;
        }
    }
    return true;
}

bool exports_shardmill_processor_processor_process(batch_t *batch, outcome_t *outcome, error_t *error) {
    bool done = process(batch, outcome, error);
    if (!done) {
        exports_shardmill_processor_processor_outcome_free(outcome);
    }
    exports_shardmill_processor_processor_batch_free(batch);
    return done;
}

bool exports_shardmill_processor_processor_close(close_reason_t *reason, error_t *error) {
    (void)error;
    exports_shardmill_processor_processor_close_reason_free(reason);
    return true;
}
