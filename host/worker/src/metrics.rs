//! Every metric of the worker: name, unit, labels, help. Registered by [`describe`].

use std::sync::Arc;

use metrics::{Counter, Gauge, SharedString, Unit};
use shardmill_core::pipeline::{Cause, FailurePolicy};
use shardmill_core::plugin::{PluginName, plugin_of_label};
use shardmill_core::rollout::Regression;

/// Records settled. Labels: plugin.
pub const RECORDS: &str = "shardmill_records_settled_total";
/// Records that the plugin's filter kept from it; they are settled as well. Labels: plugin, why.
pub(crate) const FILTERED: &str = "shardmill_records_filtered_total";
/// Bytes of data settled. Labels: plugin.
pub const BYTES: &str = "shardmill_bytes_settled_total";
/// Batches delivered with success. Labels: plugin.
pub const BATCHES: &str = "shardmill_batches_total";
/// Failed deliveries. Labels: plugin, kind.
pub(crate) const FAILURES: &str = "shardmill_delivery_failures_total";
/// Records that failed and are to be delivered again. Labels: plugin.
pub(crate) const RETRIES: &str = "shardmill_records_retried_total";
/// Records that the failure policy gave up. Labels: plugin, decision, cause.
pub(crate) const RECORDS_GIVEN_UP: &str = "shardmill_records_given_up_total";
/// Batches cut in two to find the record that fails. Labels: plugin.
pub(crate) const SPLITS: &str = "shardmill_batch_splits_total";
/// Records that wait for a record of their key that is tried again, and that one. Labels: plugin,
/// shard.
pub(crate) const PARKED: &str = "shardmill_parked_records";
/// Shards that the failure policy halted. Labels: plugin, shard; 1 while halted.
pub(crate) const HALTED: &str = "shardmill_shard_halted";
/// Seconds in the guest, a batch. Labels: plugin.
pub(crate) const PROCESS_SECONDS: &str = "shardmill_process_seconds";
/// Seconds from the arrival of a batch's oldest record in the stream until it is settled. Labels:
/// plugin.
pub(crate) const END_TO_END_SECONDS: &str = "shardmill_end_to_end_seconds";
/// Seconds until a read of a shard is answered. Labels: plugin.
pub(crate) const READ_SECONDS: &str = "shardmill_read_seconds";
/// Seconds until a heartbeat is answered, which renews all leases. Labels: plugin.
pub(crate) const HEARTBEAT_SECONDS: &str = "shardmill_heartbeat_seconds";
/// Seconds until the write of a checkpoint is answered. Labels: plugin.
pub(crate) const CHECKPOINT_SECONDS: &str = "shardmill_checkpoint_seconds";
/// Records of a shard settled in a second. Labels: plugin, shard.
pub(crate) const RECORDS_PER_SECOND: &str = "shardmill_shard_records_per_second";
/// Bytes of record data of a shard settled in a second. Labels: plugin, shard.
pub(crate) const BYTES_PER_SECOND: &str = "shardmill_shard_bytes_per_second";
/// Bytes of a shard's state, each time it is saved. Labels: plugin.
pub(crate) const STATE_BYTES: &str = "shardmill_state_bytes";
/// How much of its limit a shard's state takes that was saved last, 1 for all of it. Labels:
/// plugin, shard.
pub(crate) const STATE_FILL: &str = "shardmill_state_limit_ratio";
/// Checkpoints written. Labels: plugin.
pub(crate) const CHECKPOINTS: &str = "shardmill_checkpoints_total";
/// Workers started again after they ended or panicked. Labels: plugin.
pub const RESTARTS: &str = "shardmill_worker_restarts_total";
/// Leases held. Labels: plugin.
pub const LEASES: &str = "shardmill_leases_held";
/// Leases taken. Labels: plugin.
pub(crate) const TAKES: &str = "shardmill_leases_taken_total";
/// Takes that failed, other than to another host. Labels: plugin.
pub(crate) const TAKE_FAILURES: &str = "shardmill_lease_take_failures_total";
/// When the last heartbeat was written, in seconds since the Unix epoch. Labels: plugin.
pub const HEARTBEAT: &str = "shardmill_heartbeat_timestamp_seconds";
/// Leases lost to others or to the deadline. Labels: plugin.
pub(crate) const LOSSES: &str = "shardmill_leases_lost_total";
/// Leases given up because the shard made no progress here. Labels: plugin.
pub const GIVEN_UP: &str = "shardmill_leases_given_up_total";
/// Shards that were trimmed away before they were read to their end. Labels: plugin.
pub(crate) const SHARDS_GONE: &str = "shardmill_shards_gone_total";
/// Places where records may have been trimmed before they were read. Labels: plugin.
pub(crate) const GAPS: &str = "shardmill_trim_gaps_total";
/// Parts of the hash key space that no lease covers, audit after audit. Labels: plugin.
pub(crate) const HOLES: &str = "shardmill_coverage_holes";
/// Leases that no host took for three lease durations, though nothing has to come before them; on
/// the leader only. Labels: plugin, why.
pub(crate) const UNOWNED: &str = "shardmill_leases_unowned";
/// Hosts wanted for the plugin alone; on the leader only. Labels: plugin.
pub(crate) const HOSTS_WANTED: &str = "shardmill_plugin_hosts_wanted";
/// Seconds that the reader is behind the tip. Labels: plugin, shard.
pub(crate) const BEHIND: &str = "shardmill_reader_behind_seconds";
/// When the last settled record arrived, in seconds since the Unix epoch. Labels: plugin, shard.
pub const SETTLED_ARRIVAL: &str = "shardmill_settled_arrival_timestamp_seconds";
/// When the last checkpoint was written, in seconds since the Unix epoch. Labels: plugin, shard.
pub(crate) const CHECKPOINTED: &str = "shardmill_checkpoint_timestamp_seconds";
/// Bytes of the host's buffer that a plugin holds, on all its streams. Labels: plugin.
pub const BUFFER: &str = "shardmill_buffer_bytes";
/// Bytes of the host's buffer that a plugin may always have. Labels: plugin.
pub(crate) const BUFFER_GUARANTEED: &str = "shardmill_buffer_guaranteed_bytes";
/// Bytes of the host's buffer that hold replies for plugins that are a little behind.
pub(crate) const BUFFER_SHARED: &str = "shardmill_buffer_shared_bytes";
/// The value of a shard's gauges once its holding has ended, and of a plugin's gauges once its
/// worker has. The exporter cannot take a series out of its registry, so a page of metrics leaves
/// out the series that have this value. No plugin can set its own gauges to it.
pub const ENDED: f64 = f64::NAN;
/// The age of the oldest record of a shard that is fetched and not settled, in seconds; at least
/// how far the reader is behind. Labels: plugin, shard.
pub(crate) const OLDEST_UNSETTLED_AGE: &str = "shardmill_oldest_unsettled_age_seconds";
/// Records that the plugin holds back. Labels: plugin, shard.
pub(crate) const HELD_BACK: &str = "shardmill_held_back_records";
/// Shards that make no progress. Labels: plugin, shard, why; 1 while blocked.
pub(crate) const BLOCKED: &str = "shardmill_shard_blocked";
/// Shards that cannot be read. Labels: plugin, shard; 1 while reads fail.
pub(crate) const UNREADABLE: &str = "shardmill_shard_unreadable";
/// Reads of shards. Labels: plugin, outcome.
pub const READS: &str = "shardmill_reads_total";
/// Reads of shared streams: called (cost a `GetRecords` call), shared (did not). Labels: stream,
/// outcome.
pub(crate) const SHARED_READS: &str = "shardmill_shared_reads_total";
/// Events of subscriptions, with records or without. Labels: plugin.
pub(crate) const EVENTS: &str = "shardmill_fan_out_events_total";
/// Subscriptions that ended or were not made. Labels: plugin, reason.
pub(crate) const SUBSCRIPTION_ENDS: &str = "shardmill_fan_out_subscriptions_ended_total";
/// Times that all shards went back to polling for lack of a consumer. Labels: plugin, reason.
pub(crate) const FAN_OUT_FALLBACKS: &str = "shardmill_fan_out_fallbacks_total";
/// Records dropped from replies because they were fetched before. Labels: plugin.
pub(crate) const REPEATS: &str = "shardmill_read_repeats_total";
/// KPL aggregates read. Labels: plugin, outcome.
pub const AGGREGATES: &str = "shardmill_aggregates_total";
/// KPL aggregates that could not be opened and are delivered as they came. Labels: plugin, why.
pub(crate) const DAMAGED_AGGREGATES: &str = "shardmill_damaged_aggregates_total";
/// Swaps to another version of the plugin. Labels: plugin, outcome.
pub const SWAPS: &str = "shardmill_plugin_swaps_total";
/// Shards that were sent to another place by an operator. Labels: plugin.
pub(crate) const SEEKS: &str = "shardmill_seeks_total";
/// Instances closed between batches because others needed their memory. Labels: plugin.
pub(crate) const ROOM_MADE: &str = "shardmill_instances_recycled_total";

/// What happened to new versions of the plugin. Labels: plugin, change.
pub(crate) const ROLLOUT_CHANGES: &str = "shardmill_rollout_changes_total";
/// Records that a version in the plugin's shadow was given, or was not. Labels: plugin, result.
pub(crate) const SHADOW_RECORDS: &str = "shardmill_shadow_records_total";
/// Outputs of the version at work and of the one in its shadow. Labels: plugin, result.
pub(crate) const SHADOW_OUTPUTS: &str = "shardmill_shadow_outputs_total";
/// Calls that failed in one of the two only. Labels: plugin, result.
pub(crate) const SHADOW_FAILURES: &str = "shardmill_shadow_failures_total";
/// Versions that were rolled back. Labels: plugin, cause.
pub(crate) const ROLLBACKS: &str = "shardmill_rollbacks_total";
/// Versions of the plugin on this host. Labels: plugin, state.
pub const VERSIONS: &str = "shardmill_plugin_versions";
/// Different versions that the live hosts of the fleet run. Labels: plugin.
pub(crate) const FLEET_VERSIONS: &str = "shardmill_fleet_versions";

/// The label of a worker's plugin. Cheap to clone: make it once.
pub(crate) fn label(plugin: &PluginName) -> SharedString {
    Arc::<str>::from(plugin.as_str()).into()
}

/// The label of a plugin on all its streams.
pub(crate) fn label_of_all_streams(plugin: &PluginName) -> SharedString {
    Arc::<str>::from(plugin_of_label(plugin.as_str())).into()
}

/// Shows the counters of a worker's events before the first one. An increase is counted from the
/// value before it: an alarm would not see the first event of a counter that begins with it.
pub fn count_from_zero(plugin: &PluginName, policy: &FailurePolicy) {
    let label = label(plugin);
    for name in [TAKES, TAKE_FAILURES, LOSSES, GIVEN_UP, SHARDS_GONE, GAPS] {
        metrics::counter!(name, "plugin" => label.clone()).increment(0);
    }
    let Some(decision) = &policy.then else { return };
    for cause in Cause::ALL {
        given_up(plugin, decision.code(), cause).increment(0);
    }
}

/// The same of the rollouts of a plugin.
pub fn count_rollbacks_from_zero(plugin: &PluginName) {
    for cause in Regression::CODES {
        rollbacks(plugin, cause).increment(0);
    }
}

/// Keeps the series of a plugin that is served, in which nothing may be noted for hours: those of
/// plugins that are gone end.
pub fn keep_series(plugin: &PluginName) {
    count_rollbacks_from_zero(plugin);
}

/// [`RECORDS_GIVEN_UP`], by the word of the decision.
pub(crate) fn given_up(plugin: &PluginName, decision: &'static str, cause: Cause) -> Counter {
    metrics::counter!(
        RECORDS_GIVEN_UP,
        "plugin" => label(plugin),
        "decision" => decision,
        "cause" => cause.code(),
    )
}

/// [`ROLLBACKS`], by the word of the cause.
pub(crate) fn rollbacks(plugin: &PluginName, cause: &'static str) -> Counter {
    metrics::counter!(ROLLBACKS, "plugin" => label(plugin), "cause" => cause)
}

/// [`VERSIONS`], by the word of the state.
pub(crate) fn versions(plugin: &PluginName, state: &'static str) -> Gauge {
    metrics::gauge!(VERSIONS, "plugin" => label(plugin), "state" => state)
}

/// A metric's kind, unit and help text.
struct Description {
    name: &'static str,
    kind: Kind,
    unit: Unit,
    help: &'static str,
}

enum Kind {
    Counter,
    Gauge,
    Histogram,
}

const fn counter(name: &'static str, unit: Unit, help: &'static str) -> Description {
    Description {
        name,
        kind: Kind::Counter,
        unit,
        help,
    }
}

const fn gauge(name: &'static str, unit: Unit, help: &'static str) -> Description {
    Description {
        name,
        kind: Kind::Gauge,
        unit,
        help,
    }
}

const fn histogram(name: &'static str, unit: Unit, help: &'static str) -> Description {
    Description {
        name,
        kind: Kind::Histogram,
        unit,
        help,
    }
}

const DESCRIPTIONS: [Description; 59] = [
    counter(RECORDS, Unit::Count, "records settled"),
    counter(
        FILTERED,
        Unit::Count,
        "records that the plugin's filter kept from it, by why: no_match or not_json",
    ),
    counter(BYTES, Unit::Bytes, "bytes of record data settled"),
    counter(BATCHES, Unit::Count, "batches delivered with success"),
    counter(FAILURES, Unit::Count, "failed deliveries, by kind"),
    counter(
        RETRIES,
        Unit::Count,
        "records that failed and will be delivered again",
    ),
    counter(
        RECORDS_GIVEN_UP,
        Unit::Count,
        "records that the failure policy gave up, by decision and cause",
    ),
    counter(
        SPLITS,
        Unit::Count,
        "batches split in two to find the record that fails",
    ),
    gauge(
        PARKED,
        Unit::Count,
        "records waiting for a record of their key that is being retried",
    ),
    gauge(
        HALTED,
        Unit::Count,
        "1 while the failure policy halts a shard",
    ),
    histogram(
        PROCESS_SECONDS,
        Unit::Seconds,
        "time in the plugin, a batch",
    ),
    histogram(
        END_TO_END_SECONDS,
        Unit::Seconds,
        "from the arrival of a batch's oldest record until it is settled",
    ),
    histogram(READ_SECONDS, Unit::Seconds, "time of a read of a shard"),
    histogram(
        HEARTBEAT_SECONDS,
        Unit::Seconds,
        "time of a heartbeat, which renews all leases",
    ),
    histogram(
        CHECKPOINT_SECONDS,
        Unit::Seconds,
        "time of the write of a checkpoint",
    ),
    gauge(
        RECORDS_PER_SECOND,
        Unit::Count,
        "records of a shard settled in a second",
    ),
    gauge(
        BYTES_PER_SECOND,
        Unit::Bytes,
        "bytes of record data of a shard settled in a second",
    ),
    histogram(
        STATE_BYTES,
        Unit::Bytes,
        "bytes of a shard's state, each time it is saved",
    ),
    gauge(
        STATE_FILL,
        Unit::Count,
        "how much of its limit a shard's state takes, 1 for all of it",
    ),
    counter(CHECKPOINTS, Unit::Count, "checkpoints written"),
    counter(
        RESTARTS,
        Unit::Count,
        "workers started again after they ended or panicked",
    ),
    gauge(LEASES, Unit::Count, "leases held"),
    counter(TAKES, Unit::Count, "leases taken"),
    counter(
        TAKE_FAILURES,
        Unit::Count,
        "takes of leases that failed, other than to another host",
    ),
    gauge(
        HEARTBEAT,
        Unit::Seconds,
        "when the last heartbeat was written, since the Unix epoch",
    ),
    counter(LOSSES, Unit::Count, "leases lost"),
    counter(
        GIVEN_UP,
        Unit::Count,
        "leases given up because the shard made no progress here",
    ),
    counter(
        SHARDS_GONE,
        Unit::Count,
        "shards trimmed away before they were read to their end",
    ),
    counter(
        GAPS,
        Unit::Count,
        "places where records may have been trimmed before they were read",
    ),
    gauge(
        HOLES,
        Unit::Count,
        "parts of the hash key space that no lease covers",
    ),
    gauge(
        UNOWNED,
        Unit::Count,
        "leases that no host took for three lease durations, by cause; reported by the leader",
    ),
    gauge(
        HOSTS_WANTED,
        Unit::Count,
        "hosts wanted for the plugin alone; reported by the leader",
    ),
    gauge(
        BEHIND,
        Unit::Seconds,
        "how far the last fetched record is behind the tip",
    ),
    gauge(
        CHECKPOINTED,
        Unit::Seconds,
        "when the last checkpoint was written, since the Unix epoch",
    ),
    gauge(
        BUFFER,
        Unit::Bytes,
        "bytes of the host's buffer that hold unsettled records",
    ),
    gauge(
        BUFFER_GUARANTEED,
        Unit::Bytes,
        "bytes of the host's buffer guaranteed to the plugin",
    ),
    gauge(
        BUFFER_SHARED,
        Unit::Bytes,
        "bytes of the host's buffer kept for plugins that are a little behind",
    ),
    gauge(
        SETTLED_ARRIVAL,
        Unit::Seconds,
        "when the last settled record arrived, since the Unix epoch",
    ),
    gauge(
        OLDEST_UNSETTLED_AGE,
        Unit::Seconds,
        "age of the oldest record that is fetched and not settled",
    ),
    gauge(
        HELD_BACK,
        Unit::Count,
        "records that the plugin handled and does not commit yet",
    ),
    gauge(
        BLOCKED,
        Unit::Count,
        "1 while a shard makes no progress, by cause",
    ),
    gauge(UNREADABLE, Unit::Count, "1 while a shard cannot be read"),
    counter(READS, Unit::Count, "reads of shards by plugins, by outcome"),
    counter(
        SHARED_READS,
        Unit::Count,
        "reads of shards, by whether they cost a GetRecords call",
    ),
    counter(EVENTS, Unit::Count, "events of fan-out subscriptions"),
    counter(
        SUBSCRIPTION_ENDS,
        Unit::Count,
        "fan-out subscriptions that ended or were not made, by reason",
    ),
    counter(
        FAN_OUT_FALLBACKS,
        Unit::Count,
        "fallbacks to polling for lack of a fan-out consumer, by reason",
    ),
    counter(
        REPEATS,
        Unit::Count,
        "records dropped because they were fetched before",
    ),
    counter(AGGREGATES, Unit::Count, "KPL aggregates read, by outcome"),
    counter(
        DAMAGED_AGGREGATES,
        Unit::Count,
        "KPL aggregates delivered unopened, by what is wrong",
    ),
    counter(
        ROOM_MADE,
        Unit::Count,
        "instances closed between batches because others needed their memory",
    ),
    counter(
        SWAPS,
        Unit::Count,
        "swaps to another version of the plugin, by outcome",
    ),
    counter(
        ROLLOUT_CHANGES,
        Unit::Count,
        "what happened to new versions of the plugin",
    ),
    counter(
        SHADOW_RECORDS,
        Unit::Count,
        "records given to a version in the shadow, or missed",
    ),
    counter(
        SHADOW_OUTPUTS,
        Unit::Count,
        "outputs of the version at work and of the one in its shadow, by who emitted them",
    ),
    counter(
        SHADOW_FAILURES,
        Unit::Count,
        "calls that failed in the version at work or in the one in its shadow, not in both",
    ),
    counter(
        ROLLBACKS,
        Unit::Count,
        "versions rolled back and quarantined, by cause",
    ),
    gauge(
        VERSIONS,
        Unit::Count,
        "versions of the plugin on this host, by state",
    ),
    gauge(
        FLEET_VERSIONS,
        Unit::Count,
        "different versions that the live hosts of the fleet run",
    ),
];

/// Gives each metric its unit and help text.
pub fn describe() {
    for Description {
        name,
        kind,
        unit,
        help,
    } in DESCRIPTIONS
    {
        match kind {
            Kind::Counter => metrics::describe_counter!(name, unit, help),
            Kind::Gauge => metrics::describe_gauge!(name, unit, help),
            Kind::Histogram => metrics::describe_histogram!(name, unit, help),
        }
    }
}
