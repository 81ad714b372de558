use bytes::Bytes;
use ciborium::Value;
use proptest::prelude::*;
use shardmill_core::stream::{HashKeyRange, Position, Record, SequenceNumber, Shard};

use crate::blocks::{SLICE_BYTES_MIN, SLICED_BYTES_MAX};
use crate::{
    CborWriter, Format, Message, PutResult, Reply, child_shard, read_event, read_message,
    read_put_results, read_reply,
};

/// A member of a structure, in both formats.
#[derive(Clone)]
enum Member {
    Null,
    Text(String),
    Blob(Vec<u8>),
    Number(i64),
    Time(i64),
    List(Vec<Member>),
    Map(Vec<(&'static str, Member)>),
}

impl Member {
    fn json(&self) -> String {
        match self {
            Self::Null => "null".to_owned(),
            Self::Text(text) => serde_json::to_string(text).unwrap(),
            Self::Blob(data) => format!(
                "\"{}\"",
                base64_simd::STANDARD.encode_to_string(data.as_slice())
            ),
            Self::Number(number) => number.to_string(),
            Self::Time(ms) => format!("{}.{:03}", ms / 1_000, ms % 1_000),
            Self::List(elements) => {
                let elements: Vec<_> = elements.iter().map(Self::json).collect();
                format!("[{}]", elements.join(", "))
            }
            Self::Map(members) => {
                let members: Vec<_> = members
                    .iter()
                    .map(|(name, value)| format!("\"{name}\": {}", value.json()))
                    .collect();
                format!("{{{}}}", members.join(","))
            }
        }
    }

    /// As somebody else's writer has it.
    fn cbor_value(&self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Text(text) => Value::Text(text.clone()),
            Self::Blob(data) => Value::Bytes(data.clone()),
            Self::Number(number) => Value::Integer((*number).into()),
            Self::Time(ms) => Value::Tag(1, Box::new(Value::Integer((*ms).into()))),
            Self::List(elements) => Value::Array(elements.iter().map(Self::cbor_value).collect()),
            Self::Map(members) => Value::Map(
                members
                    .iter()
                    .map(|(name, value)| (Value::Text((*name).to_owned()), value.cbor_value()))
                    .collect(),
            ),
        }
    }

    fn cbor(&self) -> Vec<u8> {
        let mut body = Vec::new();
        ciborium::into_writer(&self.cbor_value(), &mut body).unwrap();
        body
    }

    /// As our writer has it: maps and lists of indefinite length.
    fn write(&self, writer: &mut CborWriter) {
        match self {
            Self::Null => writer.null(),
            Self::Text(text) => writer.text(text),
            Self::Blob(data) => writer.bytes(data),
            Self::Number(number) => writer.integer(*number),
            Self::Time(ms) => writer.time_ms(*ms),
            Self::List(elements) => {
                writer.open_list();
                for element in elements {
                    element.write(writer);
                }
                writer.end();
            }
            Self::Map(members) => {
                writer.open_map();
                for (name, value) in members {
                    writer.text(name);
                    value.write(writer);
                }
                writer.end();
            }
        }
    }

    fn written(&self) -> Vec<u8> {
        let mut writer = CborWriter::default();
        self.write(&mut writer);
        writer.finish()
    }
}

fn text(text: &str) -> Member {
    Member::Text(text.to_owned())
}

fn optional<T>(member: Option<T>, make: impl Fn(T) -> Member) -> Member {
    member.map_or(Member::Null, make)
}

/// A reply as Kinesis writes it.
fn written(reply: &Reply) -> Member {
    let record = |record: &Record| {
        Member::Map(vec![
            ("SequenceNumber", text(&record.position.to_string())),
            (
                "ApproximateArrivalTimestamp",
                Member::Time(i64::try_from(record.arrival_ms).unwrap()),
            ),
            ("Data", Member::Blob(record.data.to_vec())),
            ("PartitionKey", text(&record.partition_key)),
            ("EncryptionType", text("KMS")),
            ("Something", Member::List(vec![text("new"), Member::Null])),
        ])
    };
    let child = |shard: &Shard| {
        let parents = shard.parents.iter().map(|id| text(id.as_str())).collect();
        let range = vec![
            (
                "StartingHashKey",
                text(&shard.hash_range.start().to_string()),
            ),
            ("EndingHashKey", text(&shard.hash_range.end().to_string())),
        ];
        Member::Map(vec![
            ("ShardId", text(shard.id.as_str())),
            ("ParentShards", Member::List(parents)),
            ("HashKeyRange", Member::Map(range)),
        ])
    };
    Member::Map(vec![
        (
            "Records",
            Member::List(reply.records.iter().map(record).collect()),
        ),
        (
            "NextShardIterator",
            optional(reply.next.clone(), Member::Text),
        ),
        (
            "ContinuationSequenceNumber",
            optional(reply.continuation.clone(), Member::Text),
        ),
        (
            "MillisBehindLatest",
            optional(reply.millis_behind_latest, Member::Number),
        ),
        (
            "ChildShards",
            Member::List(reply.children.iter().map(child).collect()),
        ),
    ])
}

fn records() -> impl Strategy<Value = Record> {
    let data = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..40),
        (any::<u8>(), 1_000..9_000_usize).prop_map(|(byte, length)| vec![byte; length]),
    ];
    // From 2013, when Kinesis began.
    let arrived = prop_oneof![Just(0), 1_380_000_000_000..4_000_000_000_000_u64];
    ("[1-9][0-9]{0,60}", data, any::<String>(), arrived).prop_map(
        |(sequence, data, partition_key, arrival_ms)| Record {
            data: Bytes::from(data),
            partition_key,
            explicit_hash_key: None,
            position: Position::plain(SequenceNumber::parse(&sequence).unwrap()),
            arrival_ms,
        },
    )
}

fn children() -> impl Strategy<Value = Shard> {
    ("[a-z0-9-]{1,20}", any::<u128>(), any::<u128>()).prop_map(|(id, one, other)| {
        let range = HashKeyRange::new(one.min(other), one.max(other)).unwrap();
        child_shard(&id, &["p-1".to_owned()], range).unwrap()
    })
}

fn replies() -> impl Strategy<Value = Reply> {
    (
        proptest::collection::vec(records(), 0..20),
        proptest::option::of(any::<String>()),
        proptest::option::of("[0-9]{1,56}"),
        proptest::option::of(-1_000_000_000_000..1_000_000_000_000_i64),
        proptest::collection::vec(children(), 0..3),
    )
        .prop_map(
            |(records, next, continuation, millis_behind_latest, children)| Reply {
                records,
                next,
                continuation,
                millis_behind_latest,
                children,
            },
        )
}

proptest! {
    #[test]
    fn a_reply_says_the_same_in_every_format_and_by_every_way_of_reading_it(reply in replies()) {
        let member = written(&reply);
        for body in [member.json().into_bytes(), member.cbor(), member.written()] {
            prop_assert_eq!(read_event(&body), Ok(reply.clone()));
            prop_assert_eq!(read_reply(&Bytes::from(body)), Ok(reply.clone()));
        }
    }

    #[test]
    fn a_reply_cut_short_is_never_read(reply in replies(), cut in any::<prop::sample::Index>()) {
        let member = written(&reply);
        for body in [member.json().into_bytes(), member.cbor(), member.written()] {
            prop_assert!(read_event(&body[..cut.index(body.len())]).is_err());
        }
    }

    /// Whoever reads more than others read could end a shard that did not end.
    #[test]
    fn of_a_damaged_reply_nothing_is_read_that_others_do_not_read(
        reply in replies(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let member = written(&reply);
        let mut json = member.json().into_bytes();
        let place = at.index(json.len());
        json[place] = byte;
        if read_reply(&Bytes::from(json.clone())).is_ok() && Format::of(&json) == Format::Json {
            prop_assert!(serde_json::from_slice::<serde_json::Value>(&json).is_ok());
        }
        for mut cbor in [member.cbor(), member.written()] {
            let place = at.index(cbor.len());
            cbor[place] = byte;
            if read_reply(&Bytes::from(cbor.clone())).is_ok() && Format::of(&cbor) == Format::Cbor {
                prop_assert!(ciborium::from_reader::<Value, _>(&cbor[..]).is_ok());
            }
        }
    }

    #[test]
    fn results_of_puts_say_the_same_in_both_formats(
        codes in proptest::collection::vec(proptest::option::of(any::<String>()), 0..20)
    ) {
        let results: Vec<_> = codes
            .into_iter()
            .map(|code| PutResult {
                sequence_number: code.is_none().then(|| "42".to_owned()),
                shard_id: code.is_none().then(|| "s-1".to_owned()),
                error_message: code.clone(),
                error_code: code,
            })
            .collect();
        let result = |result: &PutResult| Member::Map(vec![
            ("SequenceNumber", optional(result.sequence_number.clone(), Member::Text)),
            ("ShardId", optional(result.shard_id.clone(), Member::Text)),
            ("ErrorCode", optional(result.error_code.clone(), Member::Text)),
            ("ErrorMessage", optional(result.error_message.clone(), Member::Text)),
        ]);
        let member = Member::Map(vec![
            ("FailedRecordCount", Member::Number(1)),
            ("Records", Member::List(results.iter().map(result).collect())),
        ]);
        for body in [member.json().into_bytes(), member.cbor(), member.written()] {
            prop_assert_eq!(read_put_results(&Bytes::from(body)), Ok(results.clone()));
        }
    }
}

fn one_record(data: usize) -> Member {
    let record = Member::Map(vec![
        ("SequenceNumber", text("42")),
        ("Data", Member::Blob(vec![7; data])),
    ]);
    Member::Map(vec![("Records", Member::List(vec![record]))])
}

#[test]
fn data_is_a_slice_of_a_reply_in_cbor_unless_that_would_keep_too_much_alive() {
    for (bytes, is_slice) in [
        (SLICE_BYTES_MIN - 1, false),
        (SLICE_BYTES_MIN, true),
        (SLICED_BYTES_MAX + 1, false),
    ] {
        let body = Bytes::from(one_record(bytes).cbor());
        let reply = read_reply(&body).unwrap();
        let data = reply.records[0].data.as_ptr_range();
        let within = body.as_ptr_range();
        assert_eq!(
            data.start >= within.start && data.end <= within.end,
            is_slice
        );
    }
}

#[test]
fn a_time_is_the_same_however_it_is_written() {
    let arrived = |json: &str| {
        let body = format!(
            r#"{{"Records":[{{"SequenceNumber":"1","Data":"","ApproximateArrivalTimestamp":{json}}}]}}"#
        );
        read_event(body.as_bytes()).map(|reply| reply.records[0].arrival_ms)
    };
    for json in [
        "1441215410.867",
        "1.441215410867E9",
        "1441215410867e-3",
        "1441215410.8670",
        "144121541086.7e-2",
        "1441215410.86699986",
    ] {
        assert_eq!(arrived(json), Ok(1_441_215_410_867), "{json}");
    }
    assert_eq!(arrived("1441215410"), Ok(1_441_215_410_000));
    assert_eq!(arrived("-5.5"), Ok(0), "before 1970 is not known");
    for wrong in [
        "01",
        "1.",
        ".5",
        "1e",
        "\"1\"",
        "1e-9",
        "1e99",
        "99999999999999999999",
    ] {
        assert!(arrived(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn times_in_cbor_are_milliseconds_from_kinesis_and_seconds_from_emulators() {
    let arrived = |value: Value| {
        let record = Value::Map(vec![
            (
                Value::Text("SequenceNumber".into()),
                Value::Text("1".into()),
            ),
            (Value::Text("Data".into()), Value::Bytes(Vec::new())),
            (Value::Text("ApproximateArrivalTimestamp".into()), value),
        ]);
        let reply = Value::Map(vec![(
            Value::Text("Records".into()),
            Value::Array(vec![record]),
        )]);
        let mut body = Vec::new();
        ciborium::into_writer(&reply, &mut body).unwrap();
        read_event(&body).map(|reply| reply.records[0].arrival_ms)
    };
    let (ms, seconds) = (1_441_215_410_867_i64, 1_441_215_410_i64);
    assert_eq!(arrived(Value::Integer(ms.into())), Ok(1_441_215_410_867));
    assert_eq!(
        arrived(Value::Integer(seconds.into())),
        Ok(1_441_215_410_000)
    );
    assert_eq!(
        arrived(Value::Float(1_441_215_410.867)),
        Ok(1_441_215_410_867)
    );
    assert_eq!(arrived(Value::Integer((-1).into())), Ok(0));
    for wrong in [
        Value::Float(f64::NAN),
        Value::Float(1e300),
        Value::Bool(true),
        Value::Text("1".into()),
    ] {
        assert!(arrived(wrong.clone()).is_err(), "{wrong:?}");
    }
}

#[test]
fn strings_in_pieces_and_escapes_are_put_together() {
    // {"Records": [{"SequenceNumber": (_ "4", "2"), "Data": (_ h'01', h'02')}]}
    let mut body = vec![0xBF, 0x67];
    body.extend(b"Records");
    body.extend([0x9F, 0xBF, 0x6E]);
    body.extend(b"SequenceNumber");
    body.extend([0x7F, 0x61, b'4', 0x61, b'2', 0xFF, 0x64]);
    body.extend(b"Data");
    body.extend([0x5F, 0x41, 1, 0x41, 2, 0xFF, 0xFF, 0xFF, 0xFF]);
    let record = read_event(&body).unwrap().records.remove(0);
    assert_eq!(
        (&record.data[..], record.position.to_string().as_str()),
        (&[1, 2][..], "42")
    );
    let json =
        r#"{"Records":[{"SequenceNumber":"42","Data":"A\u0051I=","PartitionKey":"\"\\\u00e9"}]}"#;
    let record = read_event(json.as_bytes()).unwrap().records.remove(0);
    assert_eq!(
        (&record.data[..], record.partition_key.as_str()),
        (&[1, 2][..], "\"\\é")
    );
}

#[test]
fn what_is_odd_is_refused() {
    let json = [
        "",
        "[]",
        "{} {}",
        r#"{"Records":null}"#,
        r#"{"Records":[{"Data":""}]}"#,
        r#"{"Records":[{"SequenceNumber":"1"}]}"#,
        r#"{"Records":[{"SequenceNumber":"1","Data":"a"}]}"#,
        r#"{"Records":[{"SequenceNumber":"1","Data":"AQI"}]}"#,
        r#"{"Records":[{"SequenceNumber":"one","Data":""}]}"#,
        r#"{"Records":[{"SequenceNumber":"1","Data":"","EncryptionType":5}]}"#,
        r#"{"Records":[],"Records":[]}"#,
        r#"{"MillisBehindLatest":1.5}"#,
        "{\"NextShardIterator\":\"\n\"}",
        "{\"NextShardIterator\":\"\\ud800\"}",
        r#"{"ChildShards":[{"ShardId":"s-1"}]}"#,
        r#"{"New":[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]}"#,
        r#"{"New":tru}"#,
        r#"{"New":01}"#,
    ];
    for body in json {
        assert!(read_event(body.as_bytes()).is_err(), "{body}");
    }
    let cbor: [&[u8]; 6] = [
        // Longer than the input, in one piece or in many.
        &[0xBB, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF],
        &[
            0xA1, 0x61, b'a', 0x5B, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF,
        ],
        // A length that the format does not know.
        &[0xBC],
        // Something behind it.
        &[0xA0, 0x00],
        // A break where a value should be.
        &[0xA1, 0x61, b'a', 0xFF],
        // Text that is no UTF-8.
        &[0xA1, 0x61, b'a', 0x61, 0xFF],
    ];
    for body in cbor {
        assert!(read_event(body).is_err(), "{body:?}");
    }
}

#[test]
fn an_error_in_cbor_has_its_short_name_and_its_message() {
    let error = Member::Map(vec![
        (
            "__type",
            text("com.amazonaws.kinesis#ExpiredIteratorException"),
        ),
        ("message", text("old")),
        ("x", Member::Null),
    ]);
    let told = Message {
        code: Some("ExpiredIteratorException".to_owned()),
        message: Some("old".to_owned()),
    };
    assert_eq!(read_message(&error.cbor()), Ok(told));
    assert!(read_message(b"<html>").is_err());
}

/// Whether a reply is read in which a member that nobody knows has this value.
fn is_read_with(value: u8) -> bool {
    let mut body = b"\xa2\x67Records\x80\x65Extra".to_vec();
    body.push(value);
    read_reply(&Bytes::from(body)).is_ok()
}

/// Found by damaging replies.
#[test]
fn a_value_that_means_nothing_is_refused_also_where_nobody_reads_it() {
    for value in [0xf4, 0xf5, 0xf6, 0xf7] {
        assert!(is_read_with(value), "{value:#x}");
    }
    for value in [0xe0, 0xec, 0xf3] {
        assert!(!is_read_with(value), "{value:#x}");
    }
}
