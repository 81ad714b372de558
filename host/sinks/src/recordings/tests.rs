use std::time::Duration;

use bytes::Bytes;
use shardmill_core::lease::{LeaseCounter, WorkerId};
use shardmill_core::plugin::{
    GuestLimits, HttpHost, Permissions, PluginDigest, PluginName, SecretSource,
};
use shardmill_core::ports::{FailureKind, InstanceContext, RecordFailure, StartPosition};
use shardmill_core::recording::FailureRecord;
use shardmill_core::stream::{Position, Record, SequenceNumber};

use super::*;

fn record(sequence: u64, data: Bytes) -> Record {
    Record {
        data,
        partition_key: "é\"\n\u{1b}[31m".to_owned(),
        explicit_hash_key: Some("7".to_owned()),
        position: Position {
            sequence: SequenceNumber::parse(&sequence.to_string()).unwrap(),
            sub_sequence: 3,
        },
        arrival_ms: 9,
    }
}

fn batch(attempt: u32, records: Vec<Record>) -> Batch {
    Batch {
        records: Arc::new(records),
        attempt,
        millis_behind_latest: 17,
        trace: None,
    }
}

fn recording() -> Recording {
    let permissions = Permissions {
        http: vec![HttpHost::parse("*.example.org:8443").unwrap()],
        env: ["REGION".to_owned()].into(),
        secrets: [(
            "token".to_owned(),
            SecretSource::File("/run/hush-hush".into()),
        )]
        .into(),
        state: true,
    };
    let context = InstanceContext {
        plugin: PluginName::new("alerts").unwrap(),
        application: "alerts-prod".to_owned(),
        stream: StreamName::new("orders").unwrap(),
        shard: ShardId::new("shardId-000000000001").unwrap(),
        worker: WorkerId::new("host-1").unwrap(),
        epoch: LeaseCounter(42),
        destinations: vec!["stdout".to_owned()],
        config: vec![("limit".to_owned(), "5".to_owned())],
        limits: Some(GuestLimits {
            memory_bytes: 1 << 20,
            ..GuestLimits::default()
        }),
        permissions: Arc::new(permissions),
        start: StartPosition::After(record(1, Bytes::new()).position),
    };
    Recording {
        secrets: vec!["token".to_owned()],
        context: Arc::new(context),
        digest: PluginDigest::from_hex(&"ab".repeat(32)).unwrap(),
        state: Some(Bytes::from_static(b"\0state\xff")),
        is_state_missing: false,
        run_up: vec![batch(1, vec![record(1, Bytes::from_static(b"\xff\0"))])],
        missing_batches: 2,
        batch: batch(
            3,
            vec![
                record(2, Bytes::new()),
                record(3, Bytes::from_static(b"{}\n")),
            ],
        ),
        failure: FailureRecord {
            code: "records".to_owned(),
            message: "no such carrier".to_owned(),
            records: vec![RecordFailure {
                index: 1,
                kind: FailureKind::Reject,
                message: "no such carrier".to_owned(),
            }],
        },
        took: Duration::from_micros(1_500),
        at_ms: 1_700_000_000_000,
    }
}

#[test]
fn a_recording_of_a_plugin_on_one_of_several_streams_is_read() {
    let mut written = recording();
    let plugin = written.context.plugin.on_stream("orders.eu");
    Arc::make_mut(&mut written.context).plugin = plugin.clone();
    assert_eq!(decode(&encode(&written)).unwrap().context.plugin, plugin);
}

#[test]
fn a_recording_is_read_as_it_was_written_but_for_where_secrets_are() {
    let written = recording();
    let file = encode(&written);
    let text = String::from_utf8(file.clone()).unwrap();
    assert!(!text.contains("hush-hush"), "{text}");
    let read = decode(&file).unwrap();
    let expected = InstanceContext {
        permissions: Arc::new(Permissions {
            secrets: [].into(),
            ..written.context.permissions.as_ref().clone()
        }),
        ..written.context.as_ref().clone()
    };
    assert_eq!(format!("{:?}", read.context), format!("{expected:?}"));
    let rest = |recording: &Recording| {
        let Recording {
            context: _,
            secrets,
            digest,
            state,
            is_state_missing,
            run_up,
            missing_batches,
            batch,
            failure,
            took,
            at_ms,
        } = recording.clone();
        format!(
            "{secrets:?} {digest:?} {state:?} {is_state_missing} {run_up:?} {missing_batches} \
                {batch:?} {failure:?} {took:?} {at_ms}"
        )
    };
    assert_eq!(rest(&read), rest(&written));
}

#[test]
fn the_first_line_says_what_a_recording_is_of() {
    let file = encode(&recording());
    let (first_line, _) = split_line(&file);
    let summary = summary(first_line).unwrap();
    assert_eq!(summary.application, "alerts-prod");
    assert_eq!(
        (summary.first.to_string(), summary.last.to_string()),
        ("2/3".to_owned(), "3/3".to_owned())
    );
    assert_eq!((summary.records, summary.attempt), (2, 3));
    assert_eq!(summary.message, "no such carrier");
}

#[test]
fn a_file_that_is_cut_off_anywhere_or_changed_anywhere_is_no_recording() {
    let file = encode(&recording());
    for length in 0..file.len() - 1 {
        assert!(decode(&file[..length]).is_err(), "cut at {length}");
    }
    for at in 0..file.len() - 1 {
        let mut changed = file.clone();
        changed[at] ^= 1;
        assert!(decode(&changed).is_err(), "changed at {at}");
    }
    let more = [&file[..], b"{}\n"].concat();
    assert!(decode(&more).is_err());
}

#[test]
fn a_file_of_a_later_version_or_of_something_else_says_so() {
    let later = br#"{"shardmill-recording":2,"new":true}"#;
    let told = decode(later).err().unwrap().to_string();
    assert!(told.contains("version 2") && told.contains("newer shardmill"));
    for other in [
        &b""[..],
        b"\n\n",
        b"{}",
        b"{\"shardmill-record\":1}\n",
        b"\xff\xff",
    ] {
        assert_eq!(decode(other).err().unwrap(), RecordingError::Other);
    }
}

#[test]
fn the_largest_record_takes_no_more_than_base64_whatever_is_in_it() {
    for byte in [b'\xff', b'\x01', b'"', b'a'] {
        let mut large = recording();
        let data = Bytes::from(vec![byte; 10 << 20]);
        large.batch = batch(1, vec![record(5, data.clone())]);
        let file = encode(&large);
        assert!(file.len() < 15 << 20, "{byte}: {}", file.len());
        assert_eq!(decode(&file).unwrap().batch.records[0].data, data);
    }
}
