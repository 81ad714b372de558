use super::*;
use crate::stream::SequenceNumber;

fn record(data: impl Into<Bytes>) -> Record {
    Record {
        data: data.into(),
        partition_key: "outer".to_owned(),
        explicit_hash_key: None,
        position: Position::plain(SequenceNumber::parse("4955").unwrap()),
        arrival_ms: 1_700,
    }
}

/// An aggregate around any bytes, with the right checksum.
fn sealed(body: &[u8]) -> Record {
    record([&MAGIC[..], body, &Md5::digest(body)[..]].concat())
}

fn packed(aggregate: &AggregatedRecord) -> Record {
    sealed(&aggregate.encode_to_vec())
}

fn user_record(key: u64, hash_key: Option<u64>, data: &[u8]) -> UserRecord {
    UserRecord {
        partition_key_index: Some(key),
        explicit_hash_key_index: hash_key,
        data: Some(Bytes::copy_from_slice(data)),
    }
}

fn three() -> AggregatedRecord {
    AggregatedRecord {
        partition_keys: vec!["a".to_owned(), "ключ\0鍵".to_owned()],
        explicit_hash_keys: vec!["340282366920938463463374607431768211455".to_owned()],
        records: vec![
            user_record(1, None, b"one"),
            user_record(0, Some(0), b""),
            user_record(1, None, &MAGIC),
        ],
    }
}

/// The user records of an intact aggregate.
fn opened(record: Record) -> Vec<Record> {
    assert!(may_be_aggregate(&record));
    match expand(record) {
        Expansion::Aggregate(records) => records,
        other => panic!("not an aggregate: {other:?}"),
    }
}

/// What is wrong with an aggregate, which must come back as it was.
fn damage(record: &Record) -> Damage {
    assert!(may_be_aggregate(record));
    match expand(record.clone()) {
        Expansion::Damaged(same, damage) => {
            assert_eq!(same, *record, "whole, as it came");
            damage
        }
        other => panic!("not damaged: {other:?}"),
    }
}

fn assert_plain(record: &Record) {
    assert_eq!(expand(record.clone()), Expansion::Plain(record.clone()));
    assert!(!may_be_aggregate(record));
}

#[test]
fn user_records_come_in_order_with_their_keys_and_numbers() {
    let outer = packed(&three());
    let records = opened(outer.clone());
    let seen: Vec<_> = records
        .iter()
        .map(|r| {
            (
                r.position.to_string(),
                r.partition_key.as_str(),
                r.explicit_hash_key.as_deref(),
                &r.data[..],
            )
        })
        .collect();
    let all = Some("340282366920938463463374607431768211455");
    assert_eq!(
        seen,
        [
            ("4955".to_owned(), "ключ\0鍵", None, &b"one"[..]),
            ("4955/1".to_owned(), "a", all, b""),
            ("4955/2".to_owned(), "ключ\0鍵", None, &MAGIC[..])
        ]
    );
    assert!(
        records
            .iter()
            .all(|user_record| user_record.arrival_ms == outer.arrival_ms)
    );
}

#[test]
fn data_are_slices_of_the_aggregate_and_not_copies() {
    let outer = packed(&three());
    let (start, end) = (
        outer.data.as_ptr() as usize,
        outer.data.as_ptr() as usize + outer.data.len(),
    );
    for user_record in opened(outer)
        .iter()
        .filter(|user_record| !user_record.data.is_empty())
    {
        assert!((start..end).contains(&(user_record.data.as_ptr() as usize)));
    }
}

#[test]
fn ten_thousand_user_records_are_all_there() {
    let records = (0..10_000_u64)
        .map(|number| user_record(0, None, number.to_string().as_bytes()))
        .collect();
    let records = opened(packed(&AggregatedRecord { records, ..three() }));
    assert_eq!(records.len(), 10_000);
    assert!(
        records
            .iter()
            .zip(0_u64..)
            .all(|(r, n)| r.position.sub_sequence == n && r.data == n.to_string())
    );
}

#[test]
fn an_aggregate_without_user_records_opens_to_nothing() {
    assert_eq!(
        opened(packed(&AggregatedRecord {
            records: Vec::new(),
            ..three()
        })),
        []
    );
}

#[test]
fn an_aggregate_in_an_aggregate_stays_closed() {
    let inner = packed(&three()).data;
    let outer = AggregatedRecord {
        records: vec![user_record(0, None, &inner)],
        ..three()
    };
    let records = opened(packed(&outer));
    assert_eq!(records.len(), 1);
    assert_eq!(records[0].data, inner);
}

#[test]
fn fields_that_the_format_may_get_later_are_passed_over() {
    let mut body = three().encode_to_vec();
    // Field 9 with text, field 10 with a number; in the record, its tags (field 4).
    body.extend([0x4a, 2, b'h', b'i', 0x50, 7]);
    body.extend([0x1a, 8, 0x08, 0, 0x1a, 0, 0x22, 2, 0x0a, 0]);
    let records = opened(sealed(&body));
    assert_eq!((records.len(), records[3].partition_key.as_str()), (4, "a"));
}

#[test]
fn what_lacks_magic_or_room_for_a_checksum_is_a_plain_record() {
    assert_plain(&record(Vec::new()));
    assert_plain(&record(&MAGIC[..3]));
    let aggregate = packed(&three()).data;
    // The last of them would be the magic and the checksum of nothing, which the KCL does not open
    // either.
    for length in MAGIC.len()..=MAGIC.len() + DIGEST_BYTES {
        assert_plain(&record(aggregate.slice(..length)));
    }
    assert_plain(&sealed(b""));
    assert_plain(&record([b"\xf3\x89\x9a\xc3", &aggregate[4..]].concat()));
}

#[test]
fn whatever_byte_is_changed_or_cut_off_the_record_comes_back_whole() {
    let aggregate = packed(&three()).data;
    for at in MAGIC.len()..aggregate.len() {
        for bit in 0..8 {
            let mut changed = aggregate.to_vec();
            changed[at] ^= 1 << bit;
            assert_eq!(damage(&record(changed)), Damage::Checksum);
        }
    }
    for length in MAGIC.len() + DIGEST_BYTES + 1..aggregate.len() {
        assert_eq!(damage(&record(aggregate.slice(..length))), Damage::Checksum);
    }
}

#[test]
fn a_checksum_that_is_right_makes_no_message_of_other_bytes() {
    let body = three().encode_to_vec();
    for bad in [
        // Cut off in the middle of a record.
        &body[..body.len() - 1],
        b"this is not protobuf",
        // A partition key that is not UTF-8.
        b"\x0a\x02\xc3\x28",
        // An endless number.
        b"\x50\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        // The records as a number.
        b"\x18\x01",
    ] {
        assert_eq!(damage(&sealed(bad)), Damage::Encoding, "{bad:?}");
    }
}

#[test]
fn a_user_record_without_key_or_data_gives_the_whole_aggregate_back() {
    for bad in [
        user_record(2, None, b"partition key out of range"),
        user_record(u64::MAX, None, b"partition key out of any range"),
        user_record(0, Some(1), b"hash key out of range"),
        UserRecord {
            partition_key_index: None,
            ..user_record(0, None, b"no partition key")
        },
        UserRecord {
            data: None,
            ..user_record(0, None, b"")
        },
    ] {
        // The bad record is the first, the last or the only one.
        for (before, after) in [(0, 0), (0, 2), (2, 0), (1, 1)] {
            let good = |count| std::iter::repeat_n(user_record(0, None, b"good"), count);
            let records = good(before)
                .chain([bad.clone()])
                .chain(good(after))
                .collect();
            assert_eq!(
                damage(&packed(&AggregatedRecord { records, ..three() })),
                Damage::KeyIndex,
                "{bad:?}"
            );
        }
    }
}

#[test]
fn lengths_that_lie_and_deep_groups_are_refused_without_allocating() {
    let huge = [0xff_u8, 0xff, 0xff, 0xff, 0x0f];
    for tag in [0x0a_u8, 0x12, 0x1a, 0x4a] {
        assert_eq!(
            damage(&sealed(&[&[tag][..], &huge, b"short"].concat())),
            Damage::Encoding
        );
    }
    // In a record of the right length, the length of the data is wrong.
    assert_eq!(
        damage(&sealed(&[&[0x1a, 8, 0x08, 0, 0x1a][..], &huge].concat())),
        Damage::Encoding
    );
    let deep = [vec![0x4b; 100_000], vec![0x4c; 100_000]].concat();
    assert_eq!(damage(&sealed(&deep)), Damage::Encoding);
    let in_a_record = [&[0x1a, 0xc0, 0x9a, 0x0c][..], &deep].concat();
    assert_eq!(damage(&sealed(&in_a_record)), Damage::Encoding);
}

#[test]
fn more_entries_than_a_record_of_the_kpl_can_have_are_refused_before_they_are_built() {
    for entry in [&b"\x0a\x00"[..], b"\x12\x00", b"\x1a\x00"] {
        assert_eq!(
            damage(&sealed(&entry.repeat(ENTRIES_MAX + 1))),
            Damage::TooLarge
        );
    }
    // At the bound, entries are examined: these records lack everything.
    assert_eq!(
        damage(&sealed(&b"\x1a\x00".repeat(ENTRIES_MAX))),
        Damage::KeyIndex
    );
    assert_eq!(opened(sealed(&b"\x0a\x00".repeat(ENTRIES_MAX))), []);
}

#[test]
fn one_long_key_for_many_records_does_not_multiply_beyond_the_bound() {
    let of = |count, key: usize| {
        let records = std::iter::repeat_n(user_record(0, None, b""), count).collect();
        packed(&AggregatedRecord {
            partition_keys: vec!["k".repeat(key)],
            explicit_hash_keys: Vec::new(),
            records,
        })
    };
    assert_eq!(damage(&of(1 << 10, 1 << 20)), Damage::TooLarge);
    // As many as fit into 1 MiB, with a key of 255 letters, the longest of one byte each: just
    // allowed.
    let densest = of(((1 << 20) - 300) / 6, 255);
    assert!(densest.data.len() <= 1 << 20);
    let records = opened(densest);
    assert!(records.iter().map(Record::cost_bytes).sum::<usize>() <= EXPANDED_BYTES_MAX);
}

#[test]
fn an_aggregate_may_cost_as_much_as_the_bound_and_no_byte_more() {
    let of = |key: usize| {
        let records = std::iter::repeat_n(user_record(0, None, b""), 1 << 10).collect();
        packed(&AggregatedRecord {
            partition_keys: vec!["k".repeat(key)],
            explicit_hash_keys: Vec::new(),
            records,
        })
    };
    let key = (EXPANDED_BYTES_MAX >> 10) - Record::cost_of(0, 0, 0);
    assert_eq!(
        opened(of(key))
            .iter()
            .map(Record::cost_bytes)
            .sum::<usize>(),
        EXPANDED_BYTES_MAX
    );
    assert_eq!(damage(&of(key + 1)), Damage::TooLarge);
}

#[test]
fn each_damage_is_a_word_of_its_own_in_the_metric() {
    assert_eq!(
        Damage::ALL.map(Damage::code),
        ["checksum", "encoding", "key_index", "too_large"]
    );
}
