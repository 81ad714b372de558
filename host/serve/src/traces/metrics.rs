//! The metrics of traces: name, unit, labels, help. Registered by [`describe`].

use metrics::{Unit, describe_counter};

/// Spans that the collector took.
const SENT: &str = "shardmill_spans_sent_total";
/// Spans that were dropped. Labels: why.
const DROPPED: &str = "shardmill_spans_dropped_total";

/// Why spans are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dropped {
    /// They came faster than they were sent.
    QueueFull,
    /// The collector did not answer, or could not take them, several times.
    Unsent,
    /// The collector refused them.
    Refused,
}

/// Gives each metric its unit and help text.
pub(crate) fn describe() {
    describe_counter!(SENT, Unit::Count, "spans that the collector took");
    describe_counter!(DROPPED, Unit::Count, "spans that were dropped, by why");
}

pub(super) fn count_sent(spans: u64) {
    metrics::counter!(SENT).increment(spans);
}

pub(super) fn count_dropped(why: Dropped, spans: u64) {
    let why = match why {
        Dropped::QueueFull => "queue_full",
        Dropped::Unsent => "unsent",
        Dropped::Refused => "refused",
    };
    metrics::counter!(DROPPED, "why" => why).increment(spans);
}
