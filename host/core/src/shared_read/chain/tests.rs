use super::*;

const RATE: ReadRate = ReadRate {
    call_interval: Duration::from_millis(200),
    bytes_per_second: 2_000_000.0,
    idle_every: Duration::from_secs(1),
    idle_max: Duration::from_secs(4),
};

fn at(seconds: u64) -> Moment {
    Moment::from_origin(Duration::from_secs(seconds))
}

fn sequence(number: u64) -> SequenceNumber {
    SequenceNumber::parse(&number.to_string()).unwrap()
}

fn after(number: u64) -> ChainPlace {
    ChainPlace::After(sequence(number))
}

fn reply(numbers: impl IntoIterator<Item = u64>, next: Option<&str>) -> Fetched {
    let record = |number| Record {
        data: "x".into(),
        partition_key: "k".to_owned(),
        explicit_hash_key: None,
        position: crate::stream::Position::plain(sequence(number)),
        arrival_ms: 1_000 * number,
    };
    Fetched {
        records: numbers.into_iter().map(record).collect(),
        next: next.map(|iterator| ShardIterator(iterator.to_owned())),
        millis_behind_latest: Some(0),
        children: Vec::new(),
    }
}

/// A chain that follows record 10, whose replies are kept.
fn chain() -> Chain<()> {
    let origin = ReadFrom::AfterSequenceNumber(sequence(10));
    Chain::new(0, origin, ShardIterator("first".to_owned()), at(0))
}

fn absorb(chain: &mut Chain<()>, reply: Fetched, now: u64) -> Absorbed {
    chain.calls_mut().ended(Ok(()), at(now), &RATE);
    chain.absorb(reply, at(now), at(now), &RATE, |_| Some(()))
}

/// The numbers of the records that a caller at `place` gets, and where it goes on.
fn take(
    chain: &mut Chain<()>,
    place: &ChainPlace,
    limit: u32,
) -> (Vec<String>, Option<ChainPlace>) {
    let served = chain.take(place, limit, 2, at(1));
    let numbers = served.records.iter();
    let numbers = numbers.map(|record| record.position.sequence.to_string());
    (numbers.collect(), served.next)
}

#[test]
fn callers_at_any_place_that_is_held_are_served_from_the_same_replies() {
    let mut chain = chain();
    absorb(&mut chain, reply([11, 12], Some("a")), 0);
    absorb(&mut chain, reply([12, 13], Some("b")), 1);
    assert!(chain.covers(&after(10)) && chain.covers(&after(13)));
    assert!(!chain.covers(&after(9)) && !chain.covers(&after(14)));
    assert!(chain.has_news_for(&after(12)) && !chain.has_news_for(&after(13)));
    let (records, next) = take(&mut chain, &after(11), 10);
    assert_eq!(
        (records, next),
        (vec!["12".into(), "13".into()], Some(after(13)))
    );
    let (records, next) = take(&mut chain, &after(10), 1);
    assert_eq!((records, next), (vec!["11".into()], Some(after(11))));
}

#[test]
fn what_all_have_had_or_nobody_needs_any_more_is_forgotten() {
    let mut chain = chain();
    absorb(&mut chain, reply([11], Some("a")), 0);
    take(&mut chain, &after(10), 10);
    chain.trim(at(1), 2);
    assert!(chain.covers(&after(10)), "for the second reader");
    take(&mut chain, &after(10), 10);
    chain.trim(at(1), 2);
    assert!(!chain.covers(&after(10)) && chain.covers(&after(11)));
    absorb(&mut chain, reply([12], Some("b")), 2);
    chain.trim(at(61), 2);
    assert!(chain.covers(&after(11)));
    chain.trim(at(62), 2);
    assert!(!chain.covers(&after(11)), "a minute old");
}

#[test]
fn a_reply_without_room_drops_the_older_ones_and_lives_until_it_is_served() {
    let mut chain = chain();
    absorb(&mut chain, reply([11], Some("a")), 0);
    chain.absorb(reply([12], Some("b")), at(1), at(1), &RATE, |_| None);
    assert!(!chain.covers(&after(10)));
    let (records, _) = take(&mut chain, &after(11), 10);
    assert_eq!(records, ["12"]);
    assert!(!chain.covers(&after(11)));
}

#[test]
fn a_chain_goes_on_only_behind_the_record_that_it_follows() {
    let mut trimmed = chain().anchored();
    assert_eq!(
        absorb(&mut trimmed, reply([12], Some("a")), 0),
        Absorbed::Severed
    );
    let mut ended = chain().anchored();
    assert_eq!(absorb(&mut ended, reply([], None), 0), Absorbed::Severed);
    let mut whole = chain().anchored();
    let absorbed = absorb(&mut whole, reply([10, 11], Some("a")), 0);
    assert!(matches!(absorbed, Absorbed::Good(_)) && !whole.is_anchored());
    let (records, _) = take(&mut whole, &after(10), 10);
    assert_eq!(records, ["11"]);
}

#[test]
fn the_end_is_served_with_the_last_records_and_not_before() {
    let mut chain = chain();
    absorb(&mut chain, reply([11, 12], None), 0);
    assert!(chain.is_ended() && chain.has_news_for(&after(12)));
    let (records, next) = take(&mut chain, &after(10), 1);
    assert_eq!((records, next), (vec!["11".into()], Some(after(11))));
    assert_eq!(take(&mut chain, &after(11), 10), (vec!["12".into()], None));
}

#[test]
fn an_idle_chain_is_asked_less_and_less_and_an_expired_one_resumes_at_its_last_record() {
    let mut chain = chain();
    let mut waits = Vec::new();
    for now in 1..5 {
        absorb(&mut chain, reply([], Some("a")), now);
        waits.push(chain.calls().due().since(at(now)).as_secs());
    }
    assert_eq!(waits, [1, 2, 4, 4]);
    let calls = chain.calls();
    assert!(calls.is_idle() && calls.is_fresh(at(5)) && !calls.is_fresh(at(8)));
    chain.expired();
    assert_eq!(chain.source(), &Source::Anew);
    assert_eq!(
        chain.resume_from(),
        Some(ReadFrom::AtSequenceNumber(sequence(10)))
    );
    chain.resume(ShardIterator("b".to_owned()));
    assert!(chain.is_anchored());
}
