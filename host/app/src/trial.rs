//! A plugin on trial: the whole host on an embedded stack of its own, fed with known records, its output kept.

mod collector;
mod input;
mod report;
mod run;

pub use collector::Kept;
pub use input::{InputError, TrialInput};
pub use report::{Comparison, Failure, TrialReport, compare, lines};
pub use run::{Reload, Trial, Tried};
