use bytes::Bytes;
use shardmill_core::artifact::ArtifactRef;
use shardmill_core::backup::{BackedUpShard, BackedUpStream, Backup};
use shardmill_core::control::{Asked, DeployAsked, Deployed, Directives, Finding, Pause};
use shardmill_core::fleet::{ApplicationStart, StreamIdentity, StreamRow};
use shardmill_core::lease::{Checkpoint, Lease, Sought, WorkerId};
use shardmill_core::plugin::{PluginDigest, StateFill};
use shardmill_core::ports::SavedState;
use shardmill_core::rollout::Quarantined;
use shardmill_core::stream::{
    HashKeyRange, InitialPosition, Position, SequenceNumber, Shard, ShardId, StreamName,
};

use super::read::decode;
use super::*;

fn digest() -> PluginDigest {
    PluginDigest::from_hex(&"ab".repeat(32)).unwrap()
}

fn pause() -> Pause {
    Pause {
        asked: Asked {
            by: "ops".to_owned(),
            why: "incident 7".to_owned(),
            at_ms: 11,
        },
        until_ms: Some(12),
    }
}

fn deploy() -> DeployAsked {
    let pinned = |name: &str| {
        let text = format!(
            "https://r.example/{name}.wasm?v=1@sha256:{}",
            digest().as_str()
        );
        ArtifactRef::parse(&text).unwrap()
    };
    DeployAsked {
        asked: pause().asked,
        reference: pinned("totals"),
        version: digest(),
        before: Some(Deployed {
            reference: pinned("before"),
            version: Some(digest()),
        }),
        is_in_turns: true,
        proven: Some(Finding {
            by: "host-1".to_owned(),
            why: "active for 5m".to_owned(),
            at_ms: 7,
        }),
        failed: None,
    }
}

fn shard(number: u32, checkpoint: Checkpoint, with_state: bool) -> BackedUpShard {
    let id = |number: u32| ShardId::new(format!("shardId-{number:012}")).unwrap();
    let shard = Shard {
        id: id(number),
        parents: vec![id(90), id(91)],
        hash_range: HashKeyRange::new(u128::MAX - 1, u128::MAX).unwrap(),
        ending_sequence: None,
    };
    let state = with_state.then(|| SavedState {
        bytes: Bytes::from_static(&[0, 255, b'\n', b'"']),
        checkpoint: checkpoint.clone(),
        plugin_digest: Some(digest()),
    });
    BackedUpShard {
        lease: Lease {
            children: vec![id(95)],
            plugin_digest: Some(digest()),
            settled_arrival_ms: Some(u64::MAX),
            given_up: Some("record 5: bad".to_owned()),
            state_fill: with_state.then_some(StateFill(80)),
            directives: Directives {
                version: 1,
                pause: Some(pause()),
                ..Directives::default()
            },
            ..Lease::fresh(&shard, checkpoint)
        },
        state,
        read_at_ms: 14,
    }
}

fn content() -> Content {
    let number = SequenceNumber::parse("49590338271490256608559692538361571095").unwrap();
    let at = Checkpoint::At(Position {
        sequence: number.clone(),
        sub_sequence: 7,
    });
    let places = [
        at,
        Checkpoint::Sought(Sought::Sequence(number)),
        Checkpoint::Sought(Sought::Time(5)),
        Checkpoint::Latest,
        Checkpoint::TrimHorizon,
    ];
    let shards = (0..).zip(places);
    let mut shards: Vec<_> = shards.map(|(number, at)| shard(number, at, true)).collect();
    shards.push(shard(9, Checkpoint::ShardEnd, false));
    Content {
        backup: Backup {
            application: "totals".to_owned(),
            at_ms: 1_767_225_600_000,
            stream: BackedUpStream {
                row: StreamRow {
                    name: StreamName::new("orders").unwrap(),
                    identity: StreamIdentity {
                        created_at_ms: 5_000,
                    },
                    is_bootstrapped: true,
                },
                arn: Some("arn:aws:kinesis:eu-west-1:123456789012:stream/orders".to_owned()),
            },
            start: ApplicationStart {
                position: InitialPosition::AtTimestamp(6),
                looked_at_ms: 7,
                found_leases: true,
            },
            pause: Some(pause()),
            deploy: Some(deploy()),
            quarantined: vec![Quarantined {
                digest: digest(),
                host: WorkerId::new("a").unwrap(),
                reason: "slow".to_owned(),
                at_ms: 8,
            }],
            shards,
        },
        files: vec![PluginFile {
            name: "totals.wasm".to_owned(),
            bytes: vec![0, 97, 115, 109],
        }],
    }
}

#[test]
fn a_backup_survives_a_round_trip_to_the_last_bit() {
    let bytes = encode(&content()).unwrap();
    assert_eq!(decode(&bytes).unwrap(), content());
}

#[test]
fn a_backup_of_which_anything_is_missing_or_changed_is_refused() {
    let bytes = encode(&content()).unwrap();
    for cut in 0..bytes.len() {
        assert!(decode(&bytes[..cut]).is_err(), "only {cut} bytes of it");
    }
    for changed in (0..bytes.len()).step_by(7) {
        let mut bytes = bytes.clone();
        bytes[changed] ^= 1;
        assert!(decode(&bytes).is_err(), "byte {changed}");
    }
    let doubled = [&bytes[..], &bytes[..]].concat();
    assert!(decode(&doubled).is_err());
}

/// The text with the last line that belongs to it.
fn ended(text: &str) -> Vec<u8> {
    let (shards, sha256) = (
        text.matches("\"line\":\"shard\"").count(),
        digest_of(text.as_bytes()),
    );
    let files = text.matches("\"line\":\"file\"").count();
    let end = format!(
        r#"{{"line":"end","shards":{shards},"files":{files},"sha256":"{}"}}"#,
        sha256.as_str()
    );
    format!("{text}{end}\n").into_bytes()
}

const HEAD: &str = r#"{"line":"backup","version":1,"application":"a","at-ms":1,"stream":{"name":"s","created-at-ms":1,"bootstrapped":true},"start":{"position":"latest","looked-at-ms":1,"found-leases":false}}"#;

fn complaint(text: &str) -> String {
    crate::output::in_one_line(&decode(&ended(text)).unwrap_err())
}

#[test]
fn a_later_version_is_refused_by_its_number_and_what_a_version_adds_is_passed_over() {
    let later = HEAD.replace("\"version\":1", "\"version\":2,\"more\":{}");
    let told = complaint(&format!("{later}\n"));
    assert!(
        told.contains("version 2") && told.contains("reads version 1"),
        "{told}"
    );
    let added = HEAD.replace("\"version\":1", "\"version\":1,\"added-later\":[1]");
    assert_eq!(
        decode(&ended(&format!("{added}\n")))
            .unwrap()
            .backup
            .application,
        "a"
    );
}

#[test]
fn a_mistake_names_its_line() {
    let shard = |fields: &str| {
        format!(
            "{HEAD}\n{{\"line\":\"shard\",\"shard\":\"shardId-0\",\"read-at-ms\":1,{fields}}}\n"
        )
    };
    for (text, expected) in [
        (
            shard(r#""checkpoint":"soon""#),
            "line 2: `checkpoint` \"soon\"",
        ),
        (
            shard(r#""checkpoint":"SHARD_END","state":{"bytes":""}"#),
            "line 2: the end of a shard has no state",
        ),
        (
            shard(r#""checkpoint":"5","state":{"bytes":"%"}"#),
            "not base64",
        ),
        (
            shard(r#""checkpoint":"5","hash-keys":["9","5"]"#),
            "not a hash key range",
        ),
        (
            format!(
                "{HEAD}\n{}",
                shard(r#""checkpoint":"5""#)
                    .split_once('\n')
                    .unwrap()
                    .1
                    .repeat(2)
            ),
            "it has shardId-0 twice",
        ),
        (
            format!("{HEAD}\n{{\"line\":\"file\",\"name\":\"../x.wasm\",\"content\":\"\"}}\n"),
            "is not the name of a plugin's file",
        ),
        (
            format!("{HEAD}\n{{\"line\":\"file\",\"name\":\"shardmill.toml\",\"content\":\"\"}}\n"),
            "\"shardmill.toml\" belongs to no component of the backup",
        ),
        (
            format!("{HEAD}\n{HEAD}\n"),
            "line 2 stands in the wrong place",
        ),
        ("{}\n".to_owned(), "no backup of `shardmill backup`"),
        (String::new(), "no backup"),
    ] {
        let told = complaint(&text);
        assert!(told.contains(expected), "{told}");
    }
}
