//! `shardmill test`'s dry run: the whole host on an embedded stack that it starts for itself, fed
//! with known records. It keeps the output instead of sending it anywhere.

mod captured;
mod collector;
mod folder;
mod headway;
mod input;
mod passing;
mod report;
mod run;
mod scene;
mod settings;
mod steps;

pub(crate) use captured::CapturedStream;
pub(crate) use input::{DryRunInput, read_entries};
pub(crate) use report::{DryRunReport, compare, lines, lines_by_shard, rank_sequence_numbers};
pub(crate) use run::{DryRun, DryRunOutcome, Reload};
