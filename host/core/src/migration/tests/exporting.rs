//! What a library can hold, and that it reads back the rows that were written.

use std::collections::BTreeSet;

use super::*;

fn export(
    library: Library,
    leases: &[Lease],
    inside: &[&str],
) -> (Vec<RowChange>, Vec<ShardExport>) {
    let shards = [closed(P, &[]), closed(Q, &[]), open(CHILD, &[P, Q])];
    let stream = StreamName::new("orders").unwrap();
    let inside: BTreeSet<ShardId> = inside.iter().map(|shard| id(shard)).collect();
    plan_export(&ExportRequest {
        library,
        target: Target {
            group: "billing",
            stream: &stream,
            stream_created_ms: 1_700_000_000_000,
            account: "123456789012",
            wall_ms: 1_700_000_001_000,
        },
        leases,
        shards: &shards,
        inside_aggregate: &inside,
    })
}

fn leases() -> Vec<Lease> {
    vec![
        Lease::fresh(&closed(P, &[]), Checkpoint::ShardEnd),
        Lease::fresh(&closed(Q, &[]), at("7")),
        Lease::fresh(&open(CHILD, &[P, Q]), at("495")),
    ]
}

/// What the library would read from the rows.
fn read_back(library: Library, changes: &[RowChange]) -> Vec<(ShardId, Option<Checkpoint>)> {
    let rows = changes.iter().map(|change| {
        let mut row = change.key.clone();
        row.extend(change.set.clone());
        row
    });
    let places = read(library, &checkpoints(rows.collect()));
    let shards = places.iter().flat_map(|place| &place.shards);
    shards
        .map(|found| (found.shard.clone(), found.checkpoint.clone()))
        .collect()
}

#[test]
fn every_library_reads_back_the_checkpoints_that_an_export_wrote() {
    for library in Library::ALL {
        let (changes, shards) = export(library, &leases(), &[]);
        assert!(
            shards.iter().all(|shard| shard.held == Ok(())),
            "{library}: {shards:?}"
        );
        if library == Library::KclMultiStream {
            assert_eq!(
                changes[0].key["leaseKey"],
                Value::text(format!("123456789012:orders:1700000000:{P}"))
            );
            assert_eq!(
                changes[2].set["parentShardId"],
                Value::Texts(vec![P.to_owned(), Q.to_owned()])
            );
            continue;
        }
        let mut expected = vec![
            (id(P), Some(Checkpoint::ShardEnd)),
            (id(Q), Some(at("7"))),
            (id(CHILD), Some(at("495"))),
        ];
        if library == Library::Redpanda {
            // A finished shard has no row.
            expected.remove(0);
        }
        assert_eq!(read_back(library, &changes), expected, "{library}");
    }
}

#[test]
fn a_start_that_a_library_has_no_words_for_is_refused_and_never_guessed() {
    let unread = [Lease::fresh(&closed(P, &[]), Checkpoint::TrimHorizon)];
    let latest = [Lease::fresh(&closed(P, &[]), Checkpoint::Latest)];
    for (library, holds_oldest, holds_latest) in [
        (Library::VmwareGoKcl, false, false),
        (Library::Kinsumer, true, true),
        (Library::Lifion, false, false),
        (Library::KclRb, true, false),
        (Library::Ruststream, false, false),
        (Library::Redpanda, false, false),
        (Library::KclMultiStream, true, true),
    ] {
        let holds = |leases: &[Lease]| export(library, leases, &[]).1[0].held.is_ok();
        assert_eq!(holds(&unread), holds_oldest, "{library}");
        assert_eq!(holds(&latest), holds_latest, "{library}");
    }
}

#[test]
fn a_checkpoint_inside_an_aggregate_is_held_by_the_kcl_alone() {
    for library in Library::ALL {
        let (_, shards) = export(library, &leases(), &[CHILD]);
        let held = shards.last().unwrap().held;
        if library == Library::KclMultiStream {
            assert_eq!(held, Ok(()));
        } else {
            assert_eq!(held, Err(CannotHold::InsideAggregate), "{library}");
        }
    }
}

#[test]
fn lifion_gets_one_item_with_the_creation_time_that_it_compares_letter_by_letter() {
    let (changes, _) = export(Library::Lifion, &leases(), &[]);
    assert_eq!(changes.len(), 1);
    assert_eq!(changes[0].key["consumerGroup"], text("billing"));
    assert_eq!(
        changes[0].set["streamCreatedOn"],
        text("2023-11-14T22:13:20.000Z")
    );
}
