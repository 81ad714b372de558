//! What operators want of a running fleet: a command writes it into a row, and whoever holds the
//! lease obeys it between two batches.
//!
//! | Wanted | Where it is written | Obeyed by |
//! |---|---|---|
//! | a shard paused, sent to another place, records skipped, its state replaced | [`Directives`], in the lease's row | the lease's holder |
//! | all shards paused, a host drained, a shadow promoted, a version deployed | [`Control`], one row of the coordinator table | every host |
//!
//! So a command needs no host that listens, it outlives whoever gave it, and it moves with the
//! lease.

mod asked;
mod deploy_asked;
mod directives;
mod fleet_control;
mod history;
mod in_effect;
mod place;
mod record_range;
mod reset;
mod seek_plan;
mod state_edit;
mod state_plan;

pub use asked::{Asked, NAME_CHARS_MAX, WHY_CHARS_MAX, is_name_of_person};
pub use deploy_asked::{DeployAsked, Deployed, Finding};
pub use directives::{Directives, Pause, Seek, SeekState, Skip, Stays};
pub use fleet_control::{Control, DRAINS_MAX, ReloadAsked, ShadowAsked, ShadowVerb};
pub use history::{Deed, HISTORY_KEPT_DAYS, HistoryEntry};
pub use in_effect::{Directed, NextStep, Reached};
pub use place::{Direction, Place};
pub use record_range::RecordRange;
pub use reset::{ResetRefusal, ResetStart, start_anew};
pub use seek_plan::{SeekRefusal, SeekRequest, SeekStep, ShardSeek, plan_seek};
pub use state_edit::{EditFacts, EditRefusal, NewState, StateAt, StateEdit, staged_key};
pub use state_plan::{
    FoundState, ImportPolicy, ShardStateEdit, StateRefusal, StateStep, plan_state_import,
    plan_state_reset,
};
