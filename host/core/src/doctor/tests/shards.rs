//! Leases compared with a stream's shards.

use super::*;

#[test]
fn shards_without_leases_and_leases_without_shards_are_reported() {
    let parent = || closed(shard("s-p", &[], 0, u128::MAX));
    let (left, right) = (
        shard("s-0", &["s-p"], 0, HALF - 1),
        shard("s-1", &["s-p"], HALF, u128::MAX),
    );
    let children = || vec![parent(), left.clone(), right.clone()];
    let ended = |facts| change(facts, |lease| lease.checkpoint = Checkpoint::ShardEnd);
    let both = || vec![lease(&left, None), lease(&right, None)];
    check(vec![
        (
            "all as it should be",
            with_stream(table(both()), children()),
            Mode::Own,
            vec![],
        ),
        (
            "an empty table says nothing of shards",
            with_stream(table(vec![]), children()),
            Mode::Own,
            vec![],
        ),
        (
            "children wait for their parent",
            with_stream(table(vec![lease(&parent(), None)]), children()),
            Mode::Own,
            vec![],
        ),
        (
            "a parent ended and a child was never made",
            with_stream(
                table(vec![ended(lease(&parent(), None)), lease(&left, None)]),
                children(),
            ),
            Mode::Own,
            vec![
                (Warning, Topic::Holes),
                (Warning, Topic::ShardsWithoutLease),
            ],
        ),
        (
            "a grandchild waits through a shard without a row",
            with_stream(
                table(vec![lease(&parent(), None)]),
                vec![
                    parent(),
                    closed(left.clone()),
                    shard("s-2", &["s-0"], 0, 9),
                    right.clone(),
                ],
            ),
            Mode::Own,
            vec![],
        ),
        (
            "a closed shard without a row was read before",
            with_stream(table(both()), children()),
            Mode::Own,
            vec![],
        ),
        (
            "a shard whose hash keys an unfinished lease covers waits for that one",
            with_stream(
                table(both()),
                vec![left.clone(), right.clone(), shard("s-2", &["s-9"], 0, 9)],
            ),
            Mode::Own,
            vec![],
        ),
        (
            "a finished lease of a shard that is gone",
            with_stream(
                table([both(), vec![ended(lease(&parent(), None))]].concat()),
                vec![left.clone(), right.clone()],
            ),
            Mode::Own,
            vec![(Note, Topic::ShardsGone)],
        ),
        (
            "an unfinished lease of a shard that is gone",
            with_stream(
                table([both(), vec![lease(&parent(), None)]].concat()),
                vec![left.clone(), right.clone()],
            ),
            Mode::Own,
            vec![(Warning, Topic::ShardsGone)],
        ),
    ]);
}

#[test]
fn a_table_of_another_stream_is_refused() {
    let parent = || closed(shard("s-p", &[], 0, u128::MAX));
    let (left, right) = (
        shard("s-0", &["s-p"], 0, HALF - 1),
        shard("s-1", &["s-p"], HALF, u128::MAX),
    );
    let children = || vec![parent(), left.clone(), right.clone()];
    let at = |facts, sequence: &str| {
        change(facts, |lease| {
            lease.checkpoint = Checkpoint::parse(sequence, 0).unwrap();
        })
    };
    let both = || vec![lease(&left, None), lease(&right, None)];
    let status = |status: Option<&str>| {
        let stream = StreamFacts {
            name: StreamName::new("s").unwrap(),
            status: status.map(str::to_owned),
            identity: None,
            shards: vec![],
        };
        Facts {
            stream: Some(stream),
            ..facts(table(vec![]))
        }
    };
    check(vec![
        (
            "other hash keys",
            with_stream(
                table(vec![
                    lease(&shard("s-0", &[], 0, 9), None),
                    lease(&shard("s-1", &[], 10, u128::MAX), None),
                ]),
                vec![low(), high()],
            ),
            Mode::Own,
            vec![(FixFirst, Topic::OtherStream)],
        ),
        (
            "a checkpoint behind the end of its shard",
            with_stream(
                table([both(), vec![at(lease(&parent(), None), "101")]].concat()),
                children(),
            ),
            Mode::Own,
            vec![(FixFirst, Topic::OtherStream)],
        ),
        (
            "a checkpoint at the end of its shard",
            with_stream(
                table([both(), vec![at(lease(&parent(), None), "100")]].concat()),
                children(),
            ),
            Mode::Own,
            vec![],
        ),
        (
            "no shard in common",
            with_stream(
                table(vec![lease(&shard("t-0", &[], 0, u128::MAX), None)]),
                children(),
            ),
            Mode::Own,
            vec![(FixFirst, Topic::OtherStream)],
        ),
        (
            "no stream",
            status(None),
            Mode::Own,
            vec![(FixFirst, Topic::StreamNotActive)],
        ),
        (
            "a stream being deleted",
            status(Some("DELETING")),
            Mode::Own,
            vec![(FixFirst, Topic::StreamNotActive)],
        ),
        (
            "a stream being made",
            status(Some("CREATING")),
            Mode::Own,
            vec![(Warning, Topic::StreamNotActive)],
        ),
        (
            "a stream being resharded",
            status(Some("UPDATING")),
            Mode::Own,
            vec![],
        ),
    ]);
}

#[test]
fn the_stream_that_hosts_wrote_down_is_believed() {
    let written_down = |name: &str, created_at_ms| {
        let mut table = table(vec![lease(&low(), None), lease(&high(), None)]);
        let (name, identity) = (
            StreamName::new(name).unwrap(),
            StreamIdentity { created_at_ms },
        );
        table.fleet.stream = Some(StreamRow {
            name,
            identity,
            is_bootstrapped: true,
        });
        with_stream(table, vec![low(), high()])
    };
    let other = || vec![(FixFirst, Topic::OtherStream)];
    check(vec![
        ("the same", written_down("s", 5_000), Mode::Own, vec![]),
        ("another", written_down("t", 5_000), Mode::Own, other()),
        (
            "deleted and made again",
            written_down("s", 1_000),
            Mode::Own,
            other(),
        ),
    ]);
}
