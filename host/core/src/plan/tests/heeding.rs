//! What a leader leaves for others, and what they do about it.

use std::collections::BTreeMap;

use super::*;
use crate::fleet::{Errand, Mail, OwnerSeen, Task, Why};

const NAMES: [&str; 4] = ["me", "w1", "w2", "w3"];

/// The errands of a leader, `me`, that `heeding` heed.
fn errands_of(
    leases: &[ObservedLease],
    heeding: &[&str],
    declined: &Declined,
) -> BTreeMap<WorkerId, Vec<Errand>> {
    let workers: Vec<_> = NAMES.iter().map(|name| registered(name)).collect();
    let ids: Vec<WorkerId> = heeding.iter().map(|name| worker(name)).collect();
    let all: Vec<WorkerId> = NAMES.iter().map(|name| worker(name)).collect();
    let (dead, run) = (worker("dead"), Incarnation::new("run").unwrap());
    let heeders = Heeders {
        ids: ids.iter().collect(),
        owners: all.iter().collect(),
        beats: BTreeMap::from([(&dead, (&run, 7))]),
        declined,
    };
    let me = worker("me");
    let view = FleetView {
        me: &me,
        leases,
        workers: &workers,
        shards: None,
        is_bootstrapped: true,
    };
    errands(&view, &LIMITS, &heeders)
}

fn takes(given: &BTreeMap<WorkerId, Vec<Errand>>) -> Vec<(&str, ShardId)> {
    let all = given
        .iter()
        .flat_map(|(host, errands)| errands.iter().map(move |errand| (host.as_str(), errand)));
    let takes = all.filter(|(_, errand)| matches!(errand.task, Task::Take { .. }));
    takes
        .map(|(host, errand)| (host, errand.key.shard_id()))
        .collect()
}

#[test]
fn what_is_free_goes_to_the_poorest_of_those_that_heed_up_to_their_share() {
    // Two each: w1 has them, w2 and w3 lack two, the leader one.
    let mut leases = vec![
        owned(0, "w1", Availability::Held),
        owned(1, "w1", Availability::Held),
        mine(2),
    ];
    leases.extend((3..8).map(free));
    let given = errands_of(&leases, &["w1", "w2", "w3"], &Declined::default());
    let hosts: Vec<_> = takes(&given).into_iter().map(|(host, _)| host).collect();
    assert_eq!(hosts, ["w2", "w2", "w3", "w3"]);
    let watching = errands_of(&leases, &["w3"], &Declined::default());
    assert_eq!(
        takes(&watching)
            .into_iter()
            .map(|(host, _)| host)
            .collect::<Vec<_>>(),
        ["w3", "w3"]
    );
    assert_eq!(
        errands_of(&leases, &[], &Declined::default()),
        BTreeMap::new(),
        "everybody watches"
    );
}

#[test]
fn an_expired_lease_is_left_with_the_beat_at_which_its_owner_stood_still() {
    let leases = [
        owned(0, "dead", Availability::Expired),
        owned(1, "unregistered", Availability::Expired),
    ];
    let given = errands_of(&leases, &["w1", "w2", "w3"], &Declined::default());
    let owners = given
        .values()
        .flatten()
        .filter_map(|errand| match &errand.task {
            Task::Take {
                owner,
                why: Why::BelowShare { fair_share: 1 },
                ..
            } => owner.clone(),
            _ => None,
        });
    let owners: BTreeMap<WorkerId, _> = owners
        .map(|owner: OwnerSeen| (owner.id, owner.beat))
        .collect();
    let beat = Some((Incarnation::new("run").unwrap(), 7));
    assert_eq!(
        owners,
        BTreeMap::from([(worker("dead"), beat), (worker("unregistered"), None)])
    );
}

#[test]
fn what_one_host_declines_another_is_asked_for_until_all_were_asked() {
    let mut declined = Declined::default();
    let mut asked = Vec::new();
    for _ in 0..6 {
        let given = errands_of(&[free(0)], &["w1", "w2", "w3"], &declined);
        asked.extend(takes(&given).into_iter().map(|(host, _)| host.to_owned()));
        declined.note(&given);
    }
    assert_eq!(
        asked,
        ["w1", "w2", "w3", "w1", "w2"],
        "once nobody is left to ask, it begins anew"
    );
}

#[test]
fn hosts_that_have_less_are_told_to_ask_and_those_that_have_more_to_expect_it() {
    let leases: Vec<_> = (0..8).map(|n| owned(n, "w1", Availability::Held)).collect();
    let given = errands_of(&leases, &["w1", "w2", "w3"], &Declined::default());
    let claims = |name: &str| -> Vec<ShardId> {
        let claim = |errand: &Errand| matches!(&errand.task, Task::Claim { from, .. } if *from == worker("w1"));
        let errands = given.get(&worker(name)).into_iter().flatten();
        errands
            .filter(|errand| claim(errand))
            .map(|errand| errand.key.shard_id())
            .collect()
    };
    assert_eq!(
        [claims("w1").len(), claims("w2").len(), claims("w3").len()],
        [0, 2, 2]
    );
    let expected: BTreeMap<ShardId, &WorkerId> = given[&worker("w1")]
        .iter()
        .filter_map(|errand| match &errand.task {
            Task::Expect { by } => Some((errand.key.shard_id(), by)),
            Task::Take { .. } | Task::Claim { .. } => None,
        })
        .collect();
    // Also what the leader will ask for by itself.
    assert_eq!(expected.len(), 6);
    assert!(
        claims("w2")
            .iter()
            .all(|shard| *expected[shard] == worker("w2"))
    );
    // And a claim that is there already, of a host that watches or is older.
    let asked = [claimed(owned(0, "w2", Availability::Held), "w3")];
    let told = errands_of(&asked, &["w2"], &Declined::default());
    let task = Task::Expect { by: worker("w3") };
    assert_eq!(
        told[&worker("w2")],
        [Errand {
            key: asked[0].lease.key.clone(),
            task
        }]
    );
}

#[test]
fn a_mail_holds_no_more_than_can_be_read_once_a_second() {
    let leases: Vec<_> = (0..2_000).map(free).collect();
    let given = errands_of(&leases, &["w1", "w2", "w3"], &Declined::default());
    assert!(
        given
            .values()
            .all(|errands| errands.len() == Mail::ERRANDS_MAX)
    );
}

fn row(owner: Option<&str>, counter: u64, claimant: Option<&str>) -> Lease {
    let mut lease = Lease::fresh(&shard(1, &[]), Checkpoint::TrimHorizon);
    lease.owner = owner.map(worker);
    lease.counter = LeaseCounter(counter);
    lease.claimant = claimant.map(worker);
    lease
}

fn errand(task: Task) -> Errand {
    Errand {
        key: row(None, 0, None).key,
        task,
    }
}

fn take_from(owner: Option<&str>) -> Errand {
    let owner = owner.map(|owner| OwnerSeen {
        id: worker(owner),
        beat: None,
    });
    errand(Task::Take {
        counter: LeaseCounter(5),
        owner,
        why: Why::BelowShare { fair_share: 2 },
    })
}

fn heeded(errand: &Errand, row: &Lease, is_mine: bool) -> &'static str {
    let me = worker("me");
    match heed(
        errand,
        Some(row),
        AtHand {
            me: &me,
            is_mine,
            is_avoided: false,
            has_room: true,
        },
    ) {
        Heeded::Do(step) => step.code(),
        Heeded::Wait => "wait",
        Heeded::Done => "over",
    }
}

#[test]
fn a_lease_is_taken_only_if_its_row_is_as_the_leader_saw_it() {
    let (free, expired) = (take_from(None), take_from(Some("dead")));
    assert_eq!(heeded(&free, &row(None, 5, None), false), "take");
    assert_eq!(heeded(&expired, &row(Some("dead"), 5, None), false), "take");
    for (errand, row) in [
        (&free, row(None, 6, None)),
        (&free, row(Some("other"), 5, None)),
        (&expired, row(Some("dead"), 6, None)),
        (&expired, row(None, 5, None)),
        (&expired, row(Some("other"), 5, None)),
    ] {
        assert_eq!(heeded(errand, &row, false), "over", "{errand:?} {row:?}");
    }
    assert_eq!(
        heeded(&free, &row(Some("me"), 6, None), true),
        "over",
        "it was taken, and is served"
    );
    assert_eq!(
        heeded(&free, &row(Some("me"), 6, None), false),
        "take",
        "it was taken, and the answer got lost"
    );
    let mut finished = row(None, 5, None);
    finished.checkpoint = Checkpoint::ShardEnd;
    assert_eq!(heeded(&free, &finished, false), "over");
    let me = worker("me");
    for (is_avoided, has_room) in [(true, true), (false, false)] {
        let at_hand = AtHand {
            me: &me,
            is_mine: false,
            is_avoided,
            has_room,
        };
        assert_eq!(
            heed(&free, Some(&row(None, 5, None)), at_hand),
            Heeded::Done
        );
        assert_eq!(heed(&free, None, at_hand), Heeded::Done);
    }
}

#[test]
fn a_lease_that_names_a_host_which_does_not_serve_it_is_served_or_given_back() {
    let me = worker("me");
    let at_hand = AtHand {
        me: &me,
        is_mine: false,
        is_avoided: false,
        has_room: true,
    };
    let done = |row: Option<&Lease>, taken_at: Option<u64>, at_hand| match reclaim(
        row,
        taken_at.map(LeaseCounter),
        at_hand,
    ) {
        Heeded::Do(step) => step.code(),
        Heeded::Wait => "wait",
        Heeded::Done => "over",
    };
    let own = row(Some("me"), 6, None);
    assert_eq!(done(Some(&own), None, at_hand), "take");
    assert_eq!(done(Some(&own), Some(5), at_hand), "take");
    assert_eq!(
        done(
            Some(&own),
            None,
            AtHand {
                has_room: false,
                ..at_hand
            }
        ),
        "release"
    );
    assert_eq!(
        done(
            Some(&own),
            None,
            AtHand {
                is_avoided: true,
                ..at_hand
            }
        ),
        "release"
    );
    assert_eq!(
        done(
            Some(&own),
            None,
            AtHand {
                is_mine: true,
                ..at_hand
            }
        ),
        "over"
    );
    let (seen, moved) = (row(Some("dead"), 5, None), row(Some("other"), 6, None));
    assert_eq!(
        done(Some(&seen), Some(5), at_hand),
        "wait",
        "the take may still arrive"
    );
    assert_eq!(done(Some(&moved), Some(5), at_hand), "over");
    assert_eq!(done(Some(&seen), None, at_hand), "over");
    assert_eq!(done(None, Some(5), at_hand), "over");
    let mut finished = own.clone();
    finished.checkpoint = Checkpoint::ShardEnd;
    assert_eq!(done(Some(&finished), None, at_hand), "over");
    let free = take_from(None);
    let full = AtHand {
        has_room: false,
        ..at_hand
    };
    let Heeded::Do(step) = heed(&free, Some(&own), full) else {
        panic!("its heart holds what nobody reads")
    };
    assert_eq!(step.code(), "release");
}

#[test]
fn a_claim_is_made_once_waited_for_and_taken_when_the_lease_is_given_up() {
    let claim = |replaces: Option<&str>| {
        errand(Task::Claim {
            from: worker("rich"),
            replaces: replaces.map(worker),
            lead: 3,
        })
    };
    assert_eq!(
        heeded(&claim(None), &row(Some("rich"), 5, None), false),
        "claim"
    );
    assert_eq!(
        heeded(&claim(None), &row(Some("rich"), 5, Some("other")), false),
        "over",
        "another was faster"
    );
    assert_eq!(
        heeded(
            &claim(Some("other")),
            &row(Some("rich"), 5, Some("other")),
            false
        ),
        "claim"
    );
    assert_eq!(
        heeded(&claim(None), &row(Some("rich"), 5, Some("me")), false),
        "wait"
    );
    assert_eq!(
        heeded(&claim(None), &row(Some("rich"), 9, Some("me")), false),
        "wait",
        "it checkpointed"
    );
    assert_eq!(
        heeded(&claim(None), &row(None, 9, Some("me")), false),
        "take"
    );
    assert_eq!(
        heeded(&claim(None), &row(Some("third"), 9, Some("me")), false),
        "over"
    );
}

#[test]
fn a_lease_is_given_to_the_host_that_was_told_to_ask_once_it_asks() {
    let expect = errand(Task::Expect { by: worker("poor") });
    assert_eq!(heeded(&expect, &row(Some("me"), 5, None), true), "wait");
    assert_eq!(
        heeded(&expect, &row(Some("me"), 5, Some("dead")), true),
        "wait"
    );
    assert_eq!(
        heeded(&expect, &row(Some("me"), 5, Some("poor")), true),
        "hand over"
    );
    assert_eq!(heeded(&expect, &row(None, 6, Some("poor")), false), "over");
}
