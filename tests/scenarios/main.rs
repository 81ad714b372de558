//! The real binary on the embedded stack and real input: one file for each situation of an
//! operator.
//!
//! `SHARDMILL_FLIGHTS=flights.ndjson.gz` runs them on another file than the slice in the
//! repository, and then `SHARDMILL_AGGREGATES` has to name the same in aggregates
//! (`tests/kpl/aggregate.py` makes them); `SHARDMILL_KILLS`, `SHARDMILL_SWAPS` and
//! `SHARDMILL_STARTS` set how often hosts are killed, files replaced, and starts tried,
//! `SHARDMILL_POISONED` how many records the stream with poison in it gets.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(
    clippy::print_stderr,
    reason = "figures for whoever runs these on the whole input"
)]

mod aggregates;
mod backups;
mod bulletins;
mod checks;
mod cloudwatch;
mod commands;
mod compiling;
mod connections;
mod console;
mod control;
mod crashes;
mod crowd;
mod debugging;
mod deploys;
mod doctor;
mod doors;
mod dry_run;
mod endings;
mod explain;
mod fan_out;
mod few_files;
mod filters;
mod fleet;
mod grammar;
mod grants;
mod handover;
mod hostile;
mod hostile_corpus;
mod hostile_each;
mod hours;
mod https;
mod iam;
mod kept_components;
mod known_answer;
mod large_records;
mod load;
mod measurements;
mod memory;
mod mistakes;
mod multi_stream;
mod parallel;
mod poison;
mod predecessors;
mod pressed;
mod pulling;
mod reloading;
mod removal;
mod rollout;
mod scaling;
mod several;
mod shadows;
mod sinks;
mod standalone;
mod start_position;
mod starting_over;
mod state;
mod swaps;
mod talkative;
mod terminals;
mod traces;
mod unread;
mod windows;
mod wire;

/// A number from the environment.
fn setting(name: &str, default: usize) -> usize {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}
