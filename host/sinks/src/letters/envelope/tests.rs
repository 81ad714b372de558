use proptest::prelude::*;

use super::*;

/// The smallest line that a sink may be set to.
const SMALLEST: usize = 64 << 10;

pub(crate) fn letter(data: impl Into<Bytes>) -> DeadLetter {
    DeadLetter {
        record: Record {
            data: data.into(),
            partition_key: "UA".into(),
            explicit_hash_key: None,
            position: Position::plain(
                SequenceNumber::parse("49590338271490256608559692538361571095").unwrap(),
            ),
            arrival_ms: 1_700_000_000_123,
        },
        stream: StreamName::new("flights").unwrap(),
        shard: ShardId::new("shardId-000000000002").unwrap(),
        application: "delays".into(),
        plugin: PluginName::new("delays").unwrap(),
        digest: PluginDigest::from_hex(&"ab".repeat(32)).unwrap(),
        reason: "the plugin trapped: unreachable".into(),
        attempts: 5,
        failed_at_ms: 1_700_000_100_000,
    }
}

fn text(line: &Bytes) -> &str {
    std::str::from_utf8(line).unwrap()
}

fn joined(lines: &[Bytes]) -> DeadLetter {
    let mut fragments: Vec<_> = lines
        .iter()
        .map(|line| Fragment::decode(line).unwrap())
        .collect();
    fragments.sort_by_key(|fragment| fragment.piece.map_or(1, |piece| piece.part));
    let data: Vec<u8> = fragments
        .iter()
        .flat_map(|fragment| fragment.letter.record.data.to_vec())
        .collect();
    let mut whole = fragments.swap_remove(0).letter;
    whole.record.data = data.into();
    whole
}

#[test]
fn a_letter_of_a_plugin_on_one_of_several_streams_is_read() {
    let mut written = letter("x");
    written.plugin = written.plugin.on_stream("orders.eu");
    assert_eq!(joined(&encode(&written, None)), written);
}

/// Pins version 1: files that are written today are read for ever.
#[test]
fn version_1_looks_like_this() {
    let expected = concat!(
        r#"{"shardmill-dead-letter":1,"application":"delays","plugin":"delays","digest":""#,
        "abababababababababababababababababababababababababababababababab",
        r#"","stream":"flights","shard":"shardId-000000000002","#,
        r#""sequence-number":"49590338271490256608559692538361571095","sub-sequence-number":0,"partition-key":"UA","#,
        r#""arrival-ms":1700000000123,"failed-at-ms":1700000100000,"attempts":5,"#,
        r#""reason":"the plugin trapped: unreachable","#,
        r#""debug":"shardmill debug delays shardId-000000000002@49590338271490256608559692538361571095","#,
        r#""data":"{\"a\":1}"}"#,
    );
    let lines = encode(&letter(r#"{"a":1}"#), None);
    assert_eq!(lines.iter().map(text).collect::<Vec<_>>(), [expected]);
    let (before, rest) = expected.split_once(r#","debug":"#).unwrap();
    let (_, after) = rest.split_once("\",").unwrap();
    let without_command = format!("{before},{after}");
    for line in [expected, without_command.as_str()] {
        assert_eq!(
            Fragment::decode(line.as_bytes()).unwrap().letter,
            letter(r#"{"a":1}"#)
        );
    }
}

#[test]
fn what_is_not_text_or_would_grow_is_base64() {
    for (data, expected) in [
        (&b"caf\xc3\xa9"[..], "\"data\":\"café\"".to_owned()),
        (b"", "\"data\":\"\"".to_owned()),
        (
            br#"{"id":"hang","k":"7"}"#,
            r#""data":"{\"id\":\"hang\",\"k\":\"7\"}""#.to_owned(),
        ),
        (&[0xff, 0xfe], "\"data-base64\":\"//4=\"".to_owned()),
        (&[1, 2, 3], "\"data-base64\":\"AQID\"".to_owned()),
    ] {
        let lines = encode(&letter(data.to_vec()), None);
        assert!(text(&lines[0]).contains(&expected), "{}", text(&lines[0]));
    }
    let quotes = |count: usize| text(&encode(&letter("\"".repeat(count)), None)[0]).to_owned();
    assert!(quotes(READABLE_BYTES_MAX / 2).contains("\"data\":"));
    assert!(quotes(READABLE_BYTES_MAX / 2 + 1).contains("\"data-base64\":"));
    let most = encode(&letter("\"".repeat(READABLE_BYTES_MAX / 2)), Some(SMALLEST));
    assert_eq!(most.len(), 1, "what is readable is in one line");
}

#[test]
fn a_record_of_10_mib_is_cut_into_parts_that_fit_a_target_of_1_mib() {
    let data: Vec<u8> = (0..10_u32 << 20).map(|n| (n % 251) as u8).collect();
    let letter = letter(data);
    let lines = encode(&letter, Some(1 << 20));
    assert_eq!(lines.len(), 14);
    assert!(lines.iter().all(|line| line.len() <= 1 << 20));
    assert_eq!(joined(&lines), letter);
}

#[test]
fn lines_that_are_no_letters_are_told_from_damaged_ones() {
    let good = encode(&letter("x"), None);
    for (line, expected) in [
        (String::from("plain"), LetterError::Other),
        (String::from(r#"{"a":1}"#), LetterError::Other),
        (
            text(&good[0]).replace(":1,", ":2,"),
            LetterError::Version(2),
        ),
    ] {
        assert_eq!(Fragment::decode(line.as_bytes()), Err(expected), "{line}");
    }
    let whole = text(&good[0]);
    for damaged in [
        whole[..whole.len() - 3].to_owned(),
        whole.replace("\"data\"", "\"dat\""),
        whole.replace("abab", "xyxy"),
        whole.replace("\"49590", "\"x9590"),
        whole.replace("\"data\":\"x\"", "\"data-base64\":\"*\""),
        whole.replace(
            "\"application\"",
            "\"part\":3,\"parts\":2,\"data-bytes\":1,\"application\"",
        ),
    ] {
        assert!(
            matches!(
                Fragment::decode(damaged.as_bytes()),
                Err(LetterError::Damaged(_))
            ),
            "{damaged}"
        );
    }
}

#[test]
fn a_later_minor_addition_does_not_stop_a_reader() {
    let line =
        text(&encode(&letter("x"), None)[0]).replace("\"attempts\"", "\"new\":{},\"attempts\"");
    assert_eq!(
        Fragment::decode(line.as_bytes()).unwrap().letter,
        letter("x")
    );
}

fn any_letter() -> impl Strategy<Value = DeadLetter> {
    let data = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..300),
        ".{0,80}".prop_map(String::into_bytes),
        (any::<u8>(), 0_usize..400_000).prop_map(|(byte, count)| vec![byte; count]),
    ];
    let key = prop_oneof![".{1,256}", "\u{1}{256}", "\u{10ffff}{256}"];
    (
        data,
        key,
        any::<Option<u128>>(),
        (any::<u64>(), any::<u64>(), any::<u64>(), any::<u32>()),
        ".{0,4000}",
    )
        .prop_map(
            |(
                data,
                partition_key,
                hash,
                (sub_sequence, arrival_ms, failed_at_ms, attempts),
                reason,
            )| {
                let mut letter = letter(data);
                letter.record.partition_key = partition_key;
                letter.record.explicit_hash_key = hash.map(|hash| hash.to_string());
                letter.record.position.sub_sequence = sub_sequence;
                letter.record.arrival_ms = arrival_ms;
                DeadLetter {
                    failed_at_ms,
                    attempts,
                    reason,
                    ..letter
                }
            },
        )
}

proptest! {
    #[test]
    fn every_letter_comes_back_as_it_was(letter in any_letter()) {
        let lines = encode(&letter, None);
        prop_assert_eq!(lines.len(), 1);
        prop_assert!(!lines[0].contains(&b'\n'));
        let fragment = Fragment::decode(&lines[0]).unwrap();
        prop_assert_eq!(fragment, Fragment { letter, piece: None });
    }

    #[test]
    fn every_part_fits_and_all_parts_are_the_letter(letter in any_letter(), more in 0_usize..100_000) {
        let lines = encode(&letter, Some(SMALLEST + more));
        prop_assert!(lines.iter().all(|line| line.len() <= SMALLEST + more));
        prop_assert_eq!(joined(&lines), letter);
    }

    #[test]
    fn the_length_of_escaped_text_is_what_json_makes_of_it(text in any::<String>()) {
        prop_assert_eq!(escaped_bytes(&text) + 2, serde_json::to_string(&text).unwrap().len());
    }

    #[test]
    fn no_line_makes_the_reader_panic(line in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Fragment::decode(&line);
    }
}

#[test]
fn an_application_that_no_host_can_have_is_refused() {
    let letter = DeadLetter {
        application: "a".repeat(256),
        ..letter("x")
    };
    let told = Fragment::decode(&encode(&letter, None)[0])
        .unwrap_err()
        .to_string();
    assert!(told.contains("application is longer"), "{told}");
}
