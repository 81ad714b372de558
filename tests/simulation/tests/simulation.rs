//! The simulator as a test: the same seed twice, some hundred seeds, and those that failed once.

use std::process::Command;

/// Seeds run unless `SHARDMILL_SEEDS` says otherwise.
const SEEDS: &str = "150";

fn simulate(arguments: &[&str]) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_simulate")).args(arguments).output().expect("the simulator runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.success(), text)
}

fn hashes(text: &str) -> Vec<&str> {
    let mut found: Vec<_> = text.lines().filter(|line| line.contains(" hash ")).collect();
    found.sort_unstable();
    found
}

#[test]
fn the_same_seed_gives_the_same_run_in_any_process() {
    let (_, once) = simulate(&["--seeds", "0..12", "--hashes", "--threads", "2"]);
    let (_, again) = simulate(&["--seeds", "0..12", "--hashes", "--threads", "1"]);
    assert_eq!(hashes(&once).len(), 12, "{once}");
    assert_eq!(hashes(&once), hashes(&again));
}

#[test]
fn no_seed_breaks_a_promise() {
    let seeds = std::env::var("SHARDMILL_SEEDS").unwrap_or_else(|_| SEEDS.to_owned());
    let (is_right, text) = simulate(&["--seeds", &format!("0..{seeds}"), "--threads", "2"]);
    assert!(is_right, "{text}");
}

#[test]
fn what_failed_once_stays_mended() {
    let lines = include_str!("../regressions.txt").lines();
    for line in lines.map(|line| line.split('#').next().unwrap_or_default().trim()).filter(|line| !line.is_empty()) {
        let (seed, plain) = match line.split_once(' ') {
            Some((seed, "plain")) => (seed, Some("--plain")),
            Some((_, other)) => panic!("{other:?} is not known"),
            None => (line, None),
        };
        let arguments: Vec<&str> = ["--seeds", seed].into_iter().chain(plain).collect();
        let (is_right, text) = simulate(&arguments);
        assert!(is_right, "{text}");
    }
}

/// Bugs that are found within a few schedules, and the invariant that finds them. All of them: `simulate --bugs`.
const FOUND_SOON: [(&str, &str); 8] = [
    ("TakesLiveLeases", "S10"),
    ("StealsWithoutAsking", "S10"),
    ("ChildBeforeParent", "S6"),
    ("ChildFromLatest", "S8"),
    ("DeletesBeforeChildrenStart", "S12"),
    ("TakeWithoutCondition", "S2"),
    ("TakeWritesBackOldCheckpoint", "S3"),
    ("RestlessBalance", "L2"),
];

#[test]
fn seeded_bugs_are_found_by_the_invariant_that_forbids_them() {
    for (bug, invariant) in FOUND_SOON {
        let (is_right, text) = simulate(&["--seeds", "0..4", "--bug", bug, "--threads", "2"]);
        assert!(!is_right, "{bug} was not found");
        let is_named = text.lines().any(|line| line.trim_start().starts_with(&format!("{invariant} at ")));
        assert!(is_named, "{bug} does not break {invariant}:\n{text}");
    }
}
