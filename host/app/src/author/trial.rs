//! A plugin on trial: the whole host on an embedded stack of its own, fed with known records, its
//! output kept.

mod captured;
mod collector;
mod input;
mod report;
mod run;
mod settings;

pub(crate) use captured::CapturedStream;
pub(crate) use collector::Kept;
pub(crate) use input::TrialInput;
pub(crate) use report::{
    Failure, TrialReport, compare, lines, lines_by_shard, rank_sequence_numbers,
};
pub(crate) use run::{Reload, Trial, Trying};
