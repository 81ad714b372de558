use bytes::Bytes;
use shardmill_core::ports::{FailureKind, Outcome};
use shardmill_core::stream::SequenceNumber;

use super::*;

fn record(n: u64, key: &str, data: &str) -> Record {
    Record {
        data: Bytes::copy_from_slice(data.as_bytes()),
        partition_key: key.to_owned(),
        explicit_hash_key: None,
        position: Position::plain(SequenceNumber::parse(&(n + 1).to_string()).unwrap()),
        arrival_ms: n,
    }
}

fn batch(records: Vec<Record>) -> Batch {
    Batch {
        records: Arc::new(records),
        attempt: 1,
        millis_behind_latest: 0,
        trace: None,
    }
}

fn shard(n: u32) -> ShardId {
    ShardId::new(format!("shardId-{n}")).unwrap()
}

fn wanted() -> Wanted {
    Wanted {
        application: "orders".to_owned(),
        kinds: SampleKind::ALL.into(),
        shard: None,
        key: None,
        contains: None,
    }
}

fn call(tap: &Tap, batch: &Batch, result: &Result<Processed, ProcessorError>) {
    tap.called(&Call {
        application: "orders",
        shard: &shard(0),
        batch,
        result,
    });
}

/// What waits for the watcher.
fn seen(watch: &mut Watch) -> Vec<String> {
    let mut seen = Vec::new();
    while let Ok(sample) = watch.samples.try_recv() {
        let kind = sample.kind.code();
        let text = String::from_utf8_lossy(&sample.data).into_owned();
        seen.push(format!("{kind} {} {text}", sample.key));
    }
    seen
}

const DONE: Result<Processed, ProcessorError> = Ok(Processed {
    outcome: Outcome {
        failures: Vec::new(),
        commit: None,
        retry_after: None,
    },
    emitted: Vec::new(),
});

#[test]
fn records_outputs_and_failures_of_a_call_are_seen_by_who_watches_its_application() {
    let tap = Tap::default();
    assert!(!tap.is_watched());
    let mut watch = tap.watch(wanted()).unwrap();
    let mut other = tap
        .watch(Wanted {
            application: "payments".to_owned(),
            ..wanted()
        })
        .unwrap();
    let batch = batch(vec![record(0, "a", "one"), record(1, "b", "two")]);
    let result = Ok(Processed {
        outcome: Outcome {
            failures: vec![RecordFailure {
                index: 1,
                kind: FailureKind::Reject,
                message: "no price".to_owned(),
            }],
            ..Outcome::default()
        },
        emitted: vec![Emitted {
            destination: "out".to_owned(),
            key: "k".to_owned(),
            data: Bytes::from_static(b"made"),
        }],
    });
    call(&tap, &batch, &result);
    assert_eq!(
        seen(&mut watch),
        [
            "record a one",
            "record b two",
            "output k made",
            "failure b no price"
        ]
    );
    assert!(seen(&mut other).is_empty());
    tap.line("orders", &shard(0), "INFO hello");
    assert_eq!(seen(&mut watch), ["log  INFO hello"]);
    assert!(seen(&mut other).is_empty());
    drop((watch, other));
    assert!(!tap.is_watched(), "calls cost nothing again");
}

#[test]
fn a_filter_shows_what_it_names_and_nothing_else() {
    let records = vec![
        record(0, "a", "one"),
        record(1, "b", "two"),
        record(2, "a", "two"),
    ];
    let batch = batch(records);
    for (wanted, expected) in [
        (
            Wanted {
                key: Some("a".to_owned()),
                ..wanted()
            },
            &["record a one", "record a two"][..],
        ),
        (
            Wanted {
                contains: Some("two".to_owned()),
                key: Some("a".to_owned()),
                ..wanted()
            },
            &["record a two"],
        ),
        (
            Wanted {
                kinds: [SampleKind::Output].into(),
                ..wanted()
            },
            &[],
        ),
        (
            Wanted {
                shard: Some(shard(1)),
                ..wanted()
            },
            &[],
        ),
    ] {
        let tap = Tap::default();
        let mut watch = tap.watch(wanted).unwrap();
        call(&tap, &batch, &DONE);
        assert_eq!(seen(&mut watch), expected);
    }
}

#[test]
fn a_watcher_that_does_not_look_holds_nothing_up_and_is_told_how_much_it_missed() {
    let tap = Tap::default();
    let mut watch = tap.watch(wanted()).unwrap();
    let long = "x".repeat(1 << 20);
    let batch = batch((0..2_000).map(|n| record(n, "a", &long)).collect());
    for _ in 0..20 {
        call(&tap, &batch, &DONE);
    }
    let mut held = 0;
    let mut count = 0;
    while let Ok(sample) = watch.samples.try_recv() {
        assert_eq!(sample.bytes, 1 << 20);
        held += sample.data.len();
        count += 1;
    }
    assert!(held <= WAITING_MAX * SHOWN_BYTES_MAX, "{held}");
    assert_eq!(watch.take_dropped() + count, 20 * 2_000);
    assert_eq!(watch.take_dropped(), 0);
}

#[test]
fn a_bounded_number_may_watch_and_a_place_that_is_left_is_free() {
    let tap = Tap::default();
    let mut all: Vec<Watch> = (0..WATCHERS_MAX)
        .map(|_| tap.watch(wanted()).unwrap())
        .collect();
    assert!(tap.watch(wanted()).is_err());
    all.pop();
    assert!(tap.watch(wanted()).is_ok());
}
