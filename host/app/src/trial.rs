//! A plugin on trial: the whole host on an embedded stack of its own, fed with known records, its output kept.

mod captured;
mod collector;
mod input;
mod report;
mod run;

pub use captured::{CapturedError, CapturedStream};
pub use collector::Kept;
pub use input::{InputError, TrialInput};
pub use report::{Comparison, Failure, TrialReport, compare, lines, lines_by_shard, rank_sequence_numbers};
pub use run::{Reload, Trial, Tried, Trying};
