//! Where each shard starts, and why.

use super::*;

fn import(found: &Found, shards: &[Shard], rows: &[Lease]) -> Vec<ShardImport> {
    plan_import(&ImportRequest {
        found,
        shards,
        rows,
        initial: InitialPosition::TrimHorizon,
    })
}

/// Shard, step, start, reason.
fn shown(steps: &[ShardImport]) -> Vec<(&str, &str, Option<String>, &str)> {
    let one = |step: &'_ ShardImport| {
        let start = step.step.starts_at().map(ToString::to_string);
        (step.step.code(), start, step.why.code())
    };
    steps
        .iter()
        .map(|step| {
            let (word, start, why) = one(step);
            (step.shard.as_str(), word, start, why)
        })
        .collect()
}

#[expect(clippy::unnecessary_wraps, reason = "some steps have no start")]
fn start(text: &str) -> Option<String> {
    Some(text.to_owned())
}

#[test]
fn each_shard_continues_where_the_library_stopped_and_unread_ones_begin_at_the_oldest() {
    let shards = [open(P, &[]), open(Q, &[])];
    let found = of_vmware(vec![vmware(P, Some("495"), None, "")]);
    assert_eq!(
        shown(&import(&found, &shards, &[])),
        [
            (P, "create", start("495"), "continues"),
            (Q, "create", start("TRIM_HORIZON"), "never-read"),
        ]
    );
}

#[test]
fn finished_parents_are_marked_with_their_children_who_start_at_their_first_record() {
    let shards = [closed(P, &[]), closed(Q, &[]), open(CHILD, &[P, Q])];
    let found = of_vmware(vec![
        vmware(P, Some("SHARD_END"), None, ""),
        vmware(Q, Some("SHARD_END"), None, ""),
    ]);
    let steps = import(&found, &shards, &[]);
    assert_eq!(
        shown(&steps),
        [
            (P, "create", start("SHARD_END"), "finished"),
            (Q, "create", start("SHARD_END"), "finished"),
            (CHILD, "create", start("TRIM_HORIZON"), "parents-finished"),
        ]
    );
    let ImportStep::Create(parent) = &steps[0].step else {
        panic!("{steps:?}");
    };
    assert_eq!(parent.children, [id(CHILD)]);
    let ImportStep::Create(child) = &steps[2].step else {
        panic!("{steps:?}");
    };
    assert_eq!(
        child.parents,
        [id(P), id(Q)],
        "from the stream, which knows both"
    );
}

#[test]
fn a_child_without_a_checkpoint_waits_for_the_parent_that_is_not_finished() {
    let shards = [closed(P, &[]), closed(Q, &[]), open(CHILD, &[P, Q])];
    let found = of_vmware(vec![
        vmware(P, Some("SHARD_END"), None, ""),
        vmware(Q, Some("5"), None, ""),
    ]);
    let steps = import(&found, &shards, &[]);
    assert_eq!(
        shown(&steps)[2],
        (CHILD, "leave", None, "waits-for-parents")
    );
}

#[test]
fn a_shard_that_was_marked_as_finished_and_takes_records_is_read_again_rather_than_lost() {
    let shards = [open(P, &[])];
    let found = of_vmware(vec![vmware(P, Some("SHARD_END"), None, "")]);
    assert_eq!(
        shown(&import(&found, &shards, &[])),
        [(P, "create", start("TRIM_HORIZON"), "finished-but-open")]
    );
}

#[test]
fn a_shard_that_kinesis_does_not_know_gets_no_row() {
    let shards = [open(Q, &[P])];
    let found = of_vmware(vec![
        vmware(P, Some("5"), None, ""),
        vmware(Q, Some("7"), None, ""),
    ]);
    assert_eq!(
        shown(&import(&found, &shards, &[])),
        [
            (Q, "create", start("7"), "continues"),
            (P, "leave", None, "gone")
        ]
    );
}

#[test]
fn a_closed_shard_without_a_row_is_finished_only_for_a_library_that_removes_such_rows() {
    let shards = [closed(P, &[]), open(CHILD, &[P])];
    let of = |library| Found {
        shards: vec![FoundShard {
            shard: id(CHILD),
            checkpoint: Some(at("7")),
            owner: None,
        }],
        ..Found::new(library)
    };
    for (library, step, starts, why) in [
        (
            Library::Redpanda,
            "create",
            start("SHARD_END"),
            "closed-without-row",
        ),
        (
            Library::KclMultiStream,
            "leave",
            None,
            "finished-and-removed",
        ),
        (
            Library::Kinsumer,
            "create",
            start("TRIM_HORIZON"),
            "never-read",
        ),
    ] {
        let steps = import(&of(library), &shards, &[]);
        assert_eq!(shown(&steps)[0], (P, step, starts, why), "{library}");
    }
}

#[test]
fn an_import_that_runs_again_moves_what_nobody_held_and_leaves_what_a_host_took() {
    let shards = [open(P, &[]), open(Q, &[]), open(CHILD, &[])];
    let found = of_vmware(vec![
        vmware(P, Some("9"), None, ""),
        vmware(Q, Some("9"), None, ""),
        vmware(CHILD, Some("9"), None, ""),
    ]);
    let untouched = Lease::fresh(&shards[0], at("5"));
    let same = Lease::fresh(&shards[1], at("9"));
    let served = Lease {
        held_since_ms: Some(1),
        ..Lease::fresh(&shards[2], at("5"))
    };
    let steps = import(&found, &shards, &[untouched, same, served]);
    assert_eq!(
        shown(&steps),
        [
            (P, "move", start("9"), "continues"),
            (Q, "keep", start("9"), "continues"),
            (CHILD, "served", start("5"), "continues"),
        ]
    );
    let behind: Vec<bool> = steps.iter().map(ShardImport::is_behind).collect();
    assert_eq!(
        behind,
        [false, false, true],
        "its host began without the import"
    );
}

#[test]
fn an_unread_shard_without_parents_begins_where_it_is_told_and_a_child_never_does() {
    let shards = [closed(P, &[]), open(Q, &[]), open(CHILD, &[P])];
    let found = of_vmware(vec![vmware(P, Some("SHARD_END"), None, "")]);
    let steps = plan_import(&ImportRequest {
        found: &found,
        shards: &shards,
        rows: &[],
        initial: InitialPosition::Latest,
    });
    let starts: Vec<_> = steps
        .iter()
        .map(|step| step.step.starts_at().cloned())
        .collect();
    assert_eq!(
        starts,
        [
            Some(Checkpoint::ShardEnd),
            Some(Checkpoint::Latest),
            Some(Checkpoint::TrimHorizon)
        ]
    );
}

#[test]
fn nothing_is_imported_from_another_stream_or_from_nothing() {
    let identity = |created_at_ms| crate::fleet::StreamIdentity { created_at_ms };
    let shards = [open(P, &[])];
    let elsewhere = of_vmware(vec![vmware(Q, Some("5"), None, "")]);
    assert_eq!(
        blocks(&elsewhere, identity(1), &shards),
        [ImportBlock::OtherShards]
    );
    assert_eq!(
        blocks(&of_vmware(vec![]), identity(1), &shards),
        [ImportBlock::Empty]
    );
    let lease = |key: &str| Lease {
        key: crate::stream::LeaseKey::new(key).unwrap(),
        ..Lease::fresh(&shards[0], at("5"))
    };
    let kcl = of_multi_stream(&[lease(&format!("123456789012:orders:17:{P}"))]).remove(0);
    assert_eq!(
        blocks(&kcl, identity(18_000), &shards),
        [ImportBlock::OtherStream]
    );
    assert_eq!(blocks(&kcl, identity(17_999), &shards), []);
}
