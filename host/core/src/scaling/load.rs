use crate::stream::ShardId;

/// What one host measured of one application's load, over the last 20 s. It is in the host's row.
///
/// Whole numbers, in thousandths where they say so: they are compared, and written each few
/// seconds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostLoad {
    /// Shards that were measured; a lease that was just taken is not yet, and one that is stopped
    /// tells nothing.
    pub shards: u64,
    /// The cores that this host may use, less what standalone applications use, in thousandths.
    pub cores_milli: u64,
    /// The cores that the whole process used, in thousandths.
    pub process_milli: u64,
    /// Those of them that this application used, in thousandths: its part of the time in plugins.
    pub used_milli: u64,
    /// How many consumers were in the plugin at a time, in thousandths.
    pub busy_milli: u64,
    /// Records that were settled a second, in thousandths.
    pub records_milli: u64,
    /// Records that arrive a second, in thousandths, as far as what is read now tells.
    pub arriving_milli: u64,
    /// Records that wait, estimated from the lag and what arrives.
    pub backlog: u64,
    /// The greatest lag of a shard, in milliseconds.
    pub lag_ms: u64,
    /// The cores needed to keep up with what arrives, in thousandths.
    pub steady_milli: u64,
    /// The cores needed to work off the backlog in time as well, in thousandths.
    pub needed_milli: u64,
    /// The most that a single shard needs to keep up, in thousandths of a core.
    pub heaviest_milli: u64,
    /// Shards for which more hosts would do nothing.
    pub bound: Bound,
    /// The shard with the greatest lag, if one is behind.
    pub worst: Option<ShardId>,
}

/// Shards for which another host would do nothing, by what limits them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bound {
    /// The plugin is at work all the time, on a host with idle cores.
    pub plugin: u64,
    /// Output is being stored most of the time.
    pub sink: u64,
    /// Records are waited for most of the time, though there are some: Kinesis gives no more.
    pub reading: u64,
    /// Something fails or takes too long; the shard's status says what.
    pub blocked: u64,
    /// An operator or the failure policy stopped it.
    pub paused: u64,
}

impl Bound {
    /// These and those.
    #[must_use]
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            plugin: self.plugin.saturating_add(other.plugin),
            sink: self.sink.saturating_add(other.sink),
            reading: self.reading.saturating_add(other.reading),
            blocked: self.blocked.saturating_add(other.blocked),
            paused: self.paused.saturating_add(other.paused),
        }
    }
}

/// In thousandths, rounded; zero for what is not a number.
pub fn thousandths(value: f64) -> u64 {
    whole((value * 1_000.0).round())
}

/// From thousandths.
pub(super) fn from_milli(value: u64) -> f64 {
    value as f64 / 1_000.0
}

/// The whole part of something that is never negative.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cast from a float saturates, and what is not a number becomes zero"
)]
pub(super) fn whole(value: f64) -> u64 {
    value as u64
}
