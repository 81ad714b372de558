//! The simulator as a test: the same seed twice, some hundred seeds, and those that failed once.

#![allow(clippy::print_stderr, reason = "what does not run says so")]

use std::process::Command;

/// Seeds run unless `SHARDMILL_SEEDS` says otherwise.
const SEEDS: &str = "300";

/// States that the widened simulator is there for: a run that never gets there proves nothing of
/// them.
const REACHED: [&str; 25] = [
    "fault: SaveFails",
    "fault: DeadLetterError",
    "fault: CutSubscription",
    "fault: SilentSubscription",
    "fault: consumer deregistered",
    "fault: intruder subscribes",
    "fault: refused (Conflict)",
    "fault: refused (Denied)",
    "fault: refused (Throttled)",
    "reached: another key flows while one waits",
    "reached: batch cut in two",
    "reached: checkpoint inside an aggregate",
    "reached: consumer registered",
    "reached: dead letter written",
    "reached: end of a shard by an event",
    "reached: lease given up",
    "reached: output stored",
    "reached: record skipped",
    "reached: records trimmed",
    "reached: shard trimmed away",
    "reached: state written with a checkpoint",
    "reached: resumed inside an aggregate",
    "reached: subscription ended in time",
    "reached: subscription refused, another is too young",
    "reached: subscription taken over",
];

/// Whether whoever started all tests runs these beside them, in a process of their own: they compute
/// for minutes, and other tests wait.
fn is_run_beside() -> bool {
    let is_beside = std::env::var("SHARDMILL_SIMULATION").is_ok_and(|how| how == "beside");
    if is_beside {
        eprintln!("not here: SHARDMILL_SIMULATION says that the simulation runs beside this");
    }
    is_beside
}

fn simulate(arguments: &[&str]) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_simulate"))
        .args(arguments)
        .output()
        .expect("the simulator runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    (output.status.success(), text)
}

fn hashes(text: &str) -> Vec<&str> {
    let mut found: Vec<_> = text
        .lines()
        .filter(|line| line.contains(" hash "))
        .collect();
    found.sort_unstable();
    found
}

#[test]
fn the_same_seed_gives_the_same_run_in_any_process() {
    if is_run_beside() {
        return;
    }
    let (_, once) = simulate(&["--seeds", "0..33", "--hashes", "--threads", "2"]);
    let (_, again) = simulate(&["--seeds", "0..33", "--hashes", "--threads", "1"]);
    assert_eq!(hashes(&once).len(), 33, "{once}");
    assert_eq!(hashes(&once), hashes(&again));
}

#[test]
fn no_seed_breaks_a_promise() {
    if is_run_beside() {
        return;
    }
    let seeds = std::env::var("SHARDMILL_SEEDS").unwrap_or_else(|_| SEEDS.to_owned());
    let (is_right, text) = simulate(&["--seeds", &format!("0..{seeds}"), "--threads", "2"]);
    assert!(is_right, "{text}");
    let is_many = seeds.parse::<u64>().is_ok_and(|seeds| seeds >= 300);
    let missing: Vec<_> = REACHED
        .iter()
        .filter(|state| is_many && !text.contains(*state))
        .collect();
    assert!(missing.is_empty(), "{seeds} seeds never got to {missing:?}");
}

/// The first seeds have no operator.
#[test]
fn a_fleet_that_is_commanded_breaks_no_promise_and_obeys() {
    if is_run_beside() {
        return;
    }
    let (is_right, text) = simulate(&["--seeds", "15000000..15000200", "--threads", "2"]);
    assert!(is_right, "{text}");
    for state in [
        "fault: all shards paused by command",
        "fault: host drained by command",
        "fault: shard paused by command",
        "fault: shard sent elsewhere by command",
        "reached: command obeyed",
        "reached: command refused, another came before",
        "reached: record skipped by command",
    ] {
        assert!(text.contains(state), "no run got to {state:?}\n{text}");
    }
}

/// Usual runs have one process for each worker id.
#[test]
fn two_processes_under_one_worker_id_lose_nothing() {
    if is_run_beside() {
        return;
    }
    let (is_right, text) = simulate(&["--seeds", "0..100", "--over", "ports", "--with", "twins"]);
    assert!(is_right, "{text}");
    for state in ["fault: twin", "reached: process replaced by its twin"] {
        assert!(text.contains(state), "no run got to {state:?}\n{text}");
    }
}

#[test]
fn what_failed_once_stays_mended() {
    if is_run_beside() {
        return;
    }
    let lines = include_str!("../regressions.txt").lines();
    for line in lines
        .map(|line| line.split('#').next().unwrap_or_default().trim())
        .filter(|line| !line.is_empty())
    {
        let mut arguments = vec!["--seeds"];
        for word in line.split_whitespace() {
            match word {
                "wire" | "ports" => arguments.extend(["--over", word]),
                "plain" => arguments.push("--plain"),
                "alone" => arguments.extend(["--without", "plugins,twins"]),
                word => match word.split_once(':') {
                    Some(("with", dimensions)) => arguments.extend(["--with", dimensions]),
                    Some(("without", dimensions)) => arguments.extend(["--without", dimensions]),
                    _ => arguments.push(word),
                },
            }
        }
        let (is_right, text) = simulate(&arguments);
        assert!(is_right, "{text}");
    }
}

/// Bugs that are found soon over the ports, the invariant that finds them, and seeds enough to show
/// it after a fix that changes every run. All of them: `simulate --bugs`.
const FOUND_SOON: [(&str, &str, &str); 74] = [
    ("TakesLiveLeases", "S10", "0..12"),
    ("ChildBeforeParent", "S6", "0..12"),
    ("StealsWithoutAsking", "S10", "0..24"),
    ("RestlessBalance", "L2", "0..24"),
    ("DeletesBeforeParents", "S12", "0..24"),
    ("DeletesBeforeChildrenStart", "S12", "0..12"),
    ("ResurrectsFinishedShards", "S12", "0..12"),
    ("DeadlineFromReply", "S10", "147..148"),
    ("NoHolderDeadline", "S10", "0..12"),
    ("UnknownCountsAsApplied", "S11", "0..26"),
    ("DeliversAfterLoss", "S10", "2..3"),
    ("DeliversSettledAgain", "S8", "0..12"),
    ("SkipsFailedBatch", "S4", "0..12"),
    ("EndsWithoutChildren", "S5", "0..12"),
    ("CheckpointsBeforeDelivery", "S4", "0..12"),
    ("HandsOverWithoutCheckpoint", "S9", "30..31"),
    ("ExpiredIteratorGoesToTrimHorizon", "S9", "0..12"),
    ("RetrySkipsFailedRecord", "S7", "0..24"),
    ("FairShareRoundedDown", "L5", "24..36"),
    ("SkipsFirstRecord", "S8", "0..12"),
    ("GivesUpUnstored", "S17", "0..24"),
    ("ChargesWholeBatch", "S17", "0..24"),
    ("NeverOutOfAttempts", "S17", "0..24"),
    ("LatestIsNow", "S8", "0..12"),
    ("TakeWithoutCondition", "S2", "0..12"),
    ("HeldWritesWithoutCondition", "S2", "0..12"),
    ("CheckpointWithoutCondition", "S2", "0..24"),
    ("ConditionOnOwnerOnly", "S2", "0..24"),
    ("ReleaseKeepsCounter", "S1", "0..12"),
    ("ClaimRaisesCounter", "S1", "0..12"),
    ("TakeWritesBackOldCheckpoint", "S3", "0..12"),
    ("TakeKeepsClaim", "S2", "0..12"),
    ("ReleaseDropsClaim", "S2", "0..12"),
    ("ForgetsParents", "S6", "0..12"),
    ("ConflictToldAsApplied", "S10", "0..24"),
    ("CreateReplaces", "S12", "0..12"),
    ("EndForgetsChildren", "S5", "0..12"),
    ("CheckpointOneTooFar", "S4", "0..12"),
    ("CheckpointWithoutState", "S18", "0..24"),
    ("StateIsNotFound", "S18", "0..24"),
    ("HeartbeatIsNotSent", "S10", "0..12"),
    ("HeartbeatAlwaysHolds", "S10", "30..31"),
    ("StartIsNotWritten", "S19", "0..12"),
    ("AtIsAfter", "S21", "0..12"),
    ("TellsTimeAhead", "S19", "0..24"),
    ("OldestIsLatest", "S8", "0..12"),
    ("StartIsNow", "S8", "0..12"),
    ("ReplyLacksFirst", "S8", "0..12"),
    ("ReplyLacksMiddle", "S8", "0..12"),
    ("EventLacksFirst", "S8", "0..12"),
    ("EndNamesOneChild", "S5", "0..12"),
    ("ListsFirstPageOnly", "S6", "0..12"),
    ("ListsOpenShardsOnly", "S6", "0..24"),
    ("ListsWithoutParents", "S6", "0..12"),
    ("ListsShardsFromCache", "S12", "0..24"),
    ("FlushStoresNothing", "S20", "0..12"),
    ("DropsOutput", "S20", "0..12"),
    ("LastLetterIsLost", "S17", "0..24"),
    ("FailingKeysFirst", "S15", "12..16"),
    ("CallsHaveNoDeadline", "L2", "24..36"),
    ("KeepsOwnAboveMax", "L8", "36..48"),
    ("HeartGenerationAtAnswer", "S10", "2..3"),
    ("OneShareForAll", "S15", "414..415"),
    ("LendsGuarantees", "S15", "650..651"),
    ("OneStreamForAll", "S13", "33..34"),
    ("ReplyForOneOnly", "S5", "0..4"),
    ("EndForOneOnly", "NoLoss", "12..13"),
    ("BeginsWhereAnotherIs", "S5", "0..4"),
    ("StartOfAnother", "S19", "30..31"),
    ("KeptRepliesHideGaps", "S21", "12..13"),
    ("SpreadsKeysByTurns", "S7", "1..2"),
    ("CheckpointPassesSlowStrand", "S4", "9..14"),
    ("LateHeartbeatRevives", "S10", "2..14"),
    ("AncestorsAtOldest", "S19", "27..28"),
];

/// The same over the wire.
const FOUND_SOON_OVER_THE_WIRE: [(&str, &str, &str); 14] = [
    ("TakesLiveLeases", "S10", "0..4"),
    ("StealsWithoutAsking", "S10", "0..6"),
    ("ChildBeforeParent", "S6", "4..10"),
    ("ChildFromLatest", "S8", "0..4"),
    ("DeletesBeforeChildrenStart", "S12", "0..4"),
    ("RestlessBalance", "L2", "0..4"),
    ("GivesUpUnstored", "S17", "5..8"),
    ("ChargesWholeBatch", "S17", "5..8"),
    ("NeverOutOfAttempts", "S17", "5..8"),
    ("ParkedKeyFlows", "S7", "9..14"),
    ("DropsRestOfAggregate", "S8", "17..20"),
    ("RenewsAtLatest", "S8", "54..55"),
    ("UnsavedStateIsForgotten", "S18", "6..7"),
    ("TrialChargesRecords", "S17", "31..32"),
];

/// The same in runs that have nothing but these dimensions beyond what the first seeds drew.
const FOUND_WITH: [(&str, &str, &str, &str); 15] = [
    ("ReapsWorkersAtWork", "S10", "163..164", "long-cuts"),
    ("PauseIsForgotten", "S22", "0..26", "commands"),
    ("SeekKeepsReadAhead", "S8", "0..26", "commands"),
    ("OldPlaceIsWritten", "S8", "0..26", "commands"),
    ("SeekSkipsFirstRecord", "S8", "0..12", "commands"),
    ("SkipDropsLetters", "S24", "0..26", "commands"),
    ("SkipsOneMore", "S24", "0..26", "commands"),
    ("DrainedTakes", "S25", "0..26", "commands"),
    ("ForwardSeekGoesBack", "S23", "84..85", "commands"),
    ("DirectWithoutCondition", "S23", "0..26", "commands"),
    ("ObeyKeepsDirective", "S23", "0..12", "commands"),
    ("ObeyOneTooFar", "S23", "0..12", "commands"),
    ("ObeyKeepsPlace", "S23", "0..12", "commands"),
    ("TakeTellsNothing", "S22", "0..26", "commands"),
    ("TickIsCoveredFirst", "S20", "0..26", "ticks"),
];

#[test]
fn seeded_bugs_are_found_by_the_invariant_that_forbids_them() {
    if is_run_beside() {
        return;
    }
    for (bug, invariant, seeds) in FOUND_SOON_OVER_THE_WIRE {
        assert_found(bug, invariant, &["--seeds", seeds, "--over", "wire"]);
    }
    for (bug, invariant, seeds) in FOUND_SOON {
        assert_found(bug, invariant, &["--seeds", seeds, "--over", "ports"]);
    }
    for (bug, invariant, seeds, with) in FOUND_WITH {
        let runs = ["--seeds", seeds, "--over", "ports", "--with", with];
        assert_found(bug, invariant, &runs);
    }
}

/// The runs end with the first that shows the bug.
fn assert_found(bug: &str, invariant: &str, runs: &[&str]) {
    let search = ["--bug", bug, "--until", invariant, "--threads", "2"];
    let (is_right, text) = simulate(&[runs, &search].concat());
    assert!(!is_right, "{bug} was not found");
    let is_named = text
        .lines()
        .any(|line| line.trim_start().starts_with(&format!("{invariant} at ")));
    assert!(is_named, "{bug} does not break {invariant}:\n{text}");
}
