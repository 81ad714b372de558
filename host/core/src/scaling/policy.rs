use std::time::Duration;

/// The part of a host's cores that a figure plans with. The rest is for what comes unevenly:
/// batches, hand-overs, hosts that leave.
pub const TARGET: f64 = 0.75;
/// A plan is for a load at [`TARGET`], and holds up to this part of the cores. A load that grew
/// that much makes a new plan; so does one that was as much less for long. In between nothing
/// changes, so that a load at the edge of a host does not make the figure go up and down.
pub const FULL: f64 = 0.9;

/// How an operator wants an application to be scaled: the section `[scaling]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScalingPolicy {
    /// The least hosts wanted, at least 1: a figure is made by a host. Fewer where there are fewer
    /// shards.
    pub hosts_min: usize,
    /// The most hosts wanted; `usize::MAX` for no limit but the number of shards.
    pub hosts_max: usize,
    /// How soon a backlog is to be worked off once the wanted hosts are there.
    pub catch_up: Duration,
    /// For how long fewer hosts must have been enough before fewer are wanted.
    pub settle: Duration,
}

impl ScalingPolicy {
    /// The shortest [`Self::catch_up`]: hosts take about that long to start, and a load is measured
    /// over 20 s.
    pub const CATCH_UP_MIN: Duration = Duration::from_secs(30);
    /// The shortest [`Self::settle`]: less, and a figure falls between two batches.
    pub const SETTLE_MIN: Duration = Duration::from_secs(30);
}

impl Default for ScalingPolicy {
    fn default() -> Self {
        Self {
            hosts_min: 1,
            hosts_max: usize::MAX,
            catch_up: Duration::from_mins(2),
            // As long as Kubernetes waits by default before it scales down.
            settle: Duration::from_mins(5),
        }
    }
}
