//! What fuzzing starts from and what it has found, replayed: `corpus/` and the checks are those of
//! the fuzz targets. The corpus of lease rows is replayed by the tests of `host/aws`, whose decoder
//! is not public.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "checks/config.rs"]
mod config_check;
#[path = "checks/frame.rs"]
mod frame_check;
#[path = "checks/kpl.rs"]
mod kpl_check;
#[path = "checks/wire.rs"]
mod wire_check;

use std::path::Path;

// The check names it so, since the fuzz target takes the module in by path.
use shardmill_config as config;

/// Runs `check` on every file of a corpus.
fn replay(corpus: &str, check: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
        .join(corpus);
    let files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert!(files.len() > 10, "the corpus is gone");
    for file in files {
        check(&std::fs::read(file).unwrap());
    }
}

#[test]
fn no_aggregate_that_fuzzing_found_is_lost_or_costs_too_much() {
    replay("kpl", kpl_check::check);
}

#[test]
fn no_configuration_that_fuzzing_found_is_refused_without_words() {
    replay("config", config_check::check);
}

#[test]
fn no_frame_that_fuzzing_found_means_two_things() {
    replay("frame", frame_check::check);
}

#[test]
fn no_reply_of_kinesis_that_fuzzing_found_is_read_otherwise_than_others_read_it() {
    replay("wire", wire_check::check);
}
