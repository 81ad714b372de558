//! Whether a new version of a plugin takes over: tried in a throw-away instance, then on one shard
//! of the host, judged against the version at work, and only then everywhere.
//!
//! ```text
//!   offered ──> waiting ──> probing ──> canary(shard) ──> probation ──> active
//!             (fleet share)    │             │                │
//!                              └─────────────┴────────────────┴──> quarantined(reason, since)
//! ```
//!
//! A failure of a version under trial is not yet blamed on a record: the shard goes back to the
//! version before it, which gets the same records. The new version is blamed only for records that
//! the old one handles.

mod fault;
mod fleet_view;
mod judge;
mod policy;
mod quarantine;
mod shard_trial;
mod site;
mod state;
mod track;
mod turn;
mod untaken;
mod version_row;

pub use fault::Fault;
pub use fleet_view::{live_versions, may_start, versions_found_bad};
pub use judge::{Passed, Regression};
pub use policy::{ONE_HOST, PROBATION_STRIKES, RolloutPolicy, RolloutProblem};
pub use quarantine::{ENTRIES_MAX, Quarantine, Quarantined, REASON_CHARS_MAX};
pub use shard_trial::{Attempt, HeldAgainst, Report, ShardTrial};
pub use site::Site;
pub(crate) use state::Blamed;
pub(crate) use state::START_AGAIN_AFTER;
pub use state::{At, Change, Restart, Role, Rollout, StartFailure};
pub(crate) use track::Sample;
pub use turn::Turn;
pub use untaken::{Untaken, WhyNot, untaken};
pub use version_row::{RolloutState, VersionRow};
