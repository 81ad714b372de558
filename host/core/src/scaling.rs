//! How many hosts an application wants: from its backlog, what its records cost, and what one more
//! host would change.
//!
//! ```text
//!   what each host measured ──> Meter    ──> HostLoad, in the host's row
//!   the rows of all hosts   ──> assess() ──> hosts wanted now, and why
//!   that, and time          ──> Damper   ──> Figure, in the leader's row
//!   figures of all plugins  ──> combine()──> the figure of the hosts that run them
//! ```
//!
//! All work is counted in processor cores. A shard that needs `c` core-seconds for each second of
//! its stream, and is `L` behind, needs `c * (1 + L / T)` cores to be at the tip within `T`. That a
//! consumer waits for the processor makes it slow, and does not change `c`.

mod assess;
mod combine;
mod damping;
mod figure;
mod load;
mod meter;
mod policy;
mod reason;
mod shard;

pub use assess::{Assessment, FleetLoad, HostReport, Shards, Sums, assess};
pub use combine::{Combined, combine};
pub use damping::Damper;
pub use figure::Figure;
pub use load::{Bound, HostLoad, thousandths};
pub use meter::{Meter, ProcessSample, Sample};
pub use policy::{FULL, ScalingPolicy, TARGET};
pub use reason::Reason;
pub use shard::{ShardSample, Spent, Stance};

#[cfg(test)]
mod tests;
