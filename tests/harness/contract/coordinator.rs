//! The promises of a coordinator.

use std::time::Duration;

use shardmill_core::control::{Asked, Control, Deed, HistoryEntry, Pause};
use shardmill_core::fleet::{
    ApplicationStart, Errand, FleetRows, Incarnation, LeaderRow, Mail, Mailbox, OwnerSeen, Service,
    StreamIdentity, StreamRow, Task, Why, WorkerRow,
};
use shardmill_core::lease::{LeaseCounter, WorkerId};
use shardmill_core::plugin::PluginDigest;
use shardmill_core::ports::{CachedShards, Coordinator, Raced};
use shardmill_core::rollout::{Quarantined, VersionRow};
use shardmill_core::scaling::{Figure, HostLoad, ScalingPolicy};
use shardmill_core::stream::{
    HashKeyRange, InitialPosition, LeaseKey, SequenceNumber, Shard, ShardId, StreamName,
};

fn row(name: &str, run: &str, beat: u64) -> WorkerRow {
    WorkerRow {
        worker: WorkerId::new(name).expect("not empty"),
        incarnation: Incarnation::new(run).expect("not empty"),
        beat,
        lease_duration: Duration::from_millis(10_500),
        is_draining: beat > 5,
        max_leases: if beat > 5 { 3 } else { usize::MAX },
        versions: if beat > 5 {
            vec![
                version("active", 5, None),
                version("probing", 6, Some("why")),
            ]
        } else {
            Vec::new()
        },
        cannot_write: None,
        cannot_look: None,
        artifact: None,
        load: (beat > 5).then(|| HostLoad {
            shards: 3,
            needed_milli: 1_250,
            ..HostLoad::default()
        }),
    }
}

fn digest(of: &str) -> PluginDigest {
    PluginDigest::from_hex(&of.repeat(32)).expect("64 hex digits")
}

fn version(state: &str, since_ms: u64, reason: Option<&str>) -> VersionRow {
    VersionRow {
        digest: digest("a1"),
        state: state.to_owned(),
        since_ms,
        reason: reason.map(str::to_owned),
    }
}

fn leader(name: &str, version: u64) -> LeaderRow {
    let row = row(name, "run", 0);
    LeaderRow {
        holder: Some((row.worker, row.incarnation)),
        version,
        service: None,
    }
}

async fn fleet(coordinator: &dyn Coordinator) -> FleetRows {
    coordinator.fleet().await.expect("an answer")
}

/// Nothing is made up.
pub async fn an_empty_table_knows_nobody(coordinator: &dyn Coordinator) {
    assert_eq!(fleet(coordinator).await, FleetRows::default());
    assert_eq!(
        coordinator.worker(&row("a", "run", 0).worker).await,
        Ok(None)
    );
    assert_eq!(coordinator.shards().await, Ok(None));
}

/// The last process to register under an id is the one; the others learn of it at their next beat.
pub async fn a_worker_beats_until_another_run_of_it_registers(coordinator: &dyn Coordinator) {
    assert_eq!(
        coordinator.heartbeat(&row("a", "first", 1)).await,
        Ok(Raced::Lost),
        "not registered"
    );
    assert_eq!(
        coordinator.register(None, &row("a", "first", 0)).await,
        Ok(Raced::Applied)
    );
    assert_eq!(
        coordinator.heartbeat(&row("a", "first", 6)).await,
        Ok(Raced::Applied)
    );
    assert_eq!(
        coordinator.worker(&row("a", "first", 0).worker).await,
        Ok(Some(row("a", "first", 6)))
    );
    let seen = row("a", "first", 6);
    assert_eq!(
        coordinator
            .register(Some(&seen), &row("a", "second", 0))
            .await,
        Ok(Raced::Applied)
    );
    assert_eq!(
        coordinator.heartbeat(&row("a", "first", 7)).await,
        Ok(Raced::Lost)
    );
    assert_eq!(
        coordinator.register(None, &row("b", "other", 3)).await,
        Ok(Raced::Applied)
    );
    let mut workers = fleet(coordinator).await.workers;
    workers.sort_by(|a, b| a.worker.cmp(&b.worker));
    assert_eq!(workers, [row("a", "second", 0), row("b", "other", 3)]);
}

/// A registration that was on its way for long, of a run that is gone, must not end the run that
/// came after it.
pub async fn a_late_registration_replaces_nobody(coordinator: &dyn Coordinator) {
    assert_eq!(
        coordinator.register(None, &row("a", "run", 0)).await,
        Ok(Raced::Applied)
    );
    assert_eq!(
        coordinator.register(None, &row("a", "earlier", 0)).await,
        Ok(Raced::Lost)
    );
    assert_eq!(
        coordinator.heartbeat(&row("a", "run", 1)).await,
        Ok(Raced::Applied)
    );
    for stale in [row("a", "run", 0), row("a", "earlier", 1)] {
        assert_eq!(
            coordinator
                .register(Some(&stale), &row("a", "earlier", 0))
                .await,
            Ok(Raced::Lost)
        );
    }
    assert_eq!(fleet(coordinator).await.workers, [row("a", "run", 1)]);
}

/// A request that was on its way for long must not make a live worker look still.
pub async fn a_late_heartbeat_does_not_turn_the_beat_back(coordinator: &dyn Coordinator) {
    assert_eq!(
        coordinator.register(None, &row("a", "run", 0)).await,
        Ok(Raced::Applied)
    );
    assert_eq!(
        coordinator.heartbeat(&row("a", "run", 2)).await,
        Ok(Raced::Applied)
    );
    assert_eq!(
        coordinator.heartbeat(&row("a", "run", 1)).await,
        Ok(Raced::Lost)
    );
    assert_eq!(fleet(coordinator).await.workers, [row("a", "run", 2)]);
}

/// A worker that beat since is alive.
pub async fn a_worker_is_removed_only_as_it_was_seen(coordinator: &dyn Coordinator) {
    assert_eq!(
        coordinator.register(None, &row("a", "run", 4)).await,
        Ok(Raced::Applied)
    );
    for stale in [
        row("a", "run", 3),
        row("a", "earlier", 4),
        row("b", "run", 4),
    ] {
        assert_eq!(coordinator.remove_worker(&stale).await, Ok(Raced::Lost));
    }
    assert_eq!(
        coordinator.remove_worker(&row("a", "run", 4)).await,
        Ok(Raced::Applied)
    );
    assert_eq!(fleet(coordinator).await.workers, []);
}

/// The record is fenced: whoever saw an older one changes nothing.
pub async fn of_two_candidates_on_the_same_sight_one_leads(coordinator: &dyn Coordinator) {
    let first = leader("a", 1);
    assert_eq!(
        coordinator.write_leader(None, &first).await,
        Ok(Raced::Applied)
    );
    assert_eq!(
        coordinator.write_leader(None, &leader("b", 1)).await,
        Ok(Raced::Lost)
    );
    assert_eq!(
        coordinator
            .write_leader(Some(&first), &leader("a", 2))
            .await,
        Ok(Raced::Applied)
    );
    assert_eq!(
        coordinator
            .write_leader(Some(&first), &leader("b", 2))
            .await,
        Ok(Raced::Lost)
    );
    assert_eq!(fleet(coordinator).await.leader, Some(leader("a", 2)));
}

/// A record without a holder is free to take.
pub async fn the_office_is_given_back_and_taken_again(coordinator: &dyn Coordinator) {
    let (held, free) = (
        leader("a", 1),
        LeaderRow {
            holder: None,
            version: 2,
            service: None,
        },
    );
    coordinator
        .write_leader(None, &held)
        .await
        .expect("an answer");
    assert_eq!(
        coordinator.write_leader(Some(&held), &free).await,
        Ok(Raced::Applied)
    );
    assert_eq!(fleet(coordinator).await.leader, Some(free.clone()));
    assert_eq!(
        coordinator.write_leader(Some(&free), &leader("b", 3)).await,
        Ok(Raced::Applied)
    );
}

/// And changed only by who saw it.
pub async fn the_stream_is_written_down_once(coordinator: &dyn Coordinator) {
    let stream = |created_at_ms, is_bootstrapped| StreamRow {
        name: StreamName::new("orders").expect("valid"),
        identity: StreamIdentity { created_at_ms },
        is_bootstrapped,
    };
    assert_eq!(
        coordinator.write_stream(None, &stream(1, false)).await,
        Ok(Raced::Applied)
    );
    assert_eq!(
        coordinator.write_stream(None, &stream(2, false)).await,
        Ok(Raced::Lost)
    );
    assert_eq!(
        coordinator
            .write_stream(Some(&stream(2, false)), &stream(2, true))
            .await,
        Ok(Raced::Lost)
    );
    assert_eq!(
        coordinator
            .write_stream(Some(&stream(1, false)), &stream(1, true))
            .await,
        Ok(Raced::Applied)
    );
    assert_eq!(fleet(coordinator).await.stream, Some(stream(1, true)));
}

/// And never changed, whoever asks and whatever becomes of the stream's row.
pub async fn the_start_is_written_down_once_and_kept(coordinator: &dyn Coordinator) {
    for (index, position) in [
        InitialPosition::Latest,
        InitialPosition::AtTimestamp(3),
        InitialPosition::TrimHorizon,
    ]
    .into_iter()
    .enumerate()
    {
        let start = ApplicationStart {
            position,
            looked_at_ms: 7 + index as u64,
            found_leases: index == 0,
        };
        let expected = if index == 0 {
            Raced::Applied
        } else {
            Raced::Lost
        };
        assert_eq!(coordinator.write_start(&start).await, Ok(expected));
    }
    let row = StreamRow {
        name: StreamName::new("orders").expect("valid"),
        identity: StreamIdentity { created_at_ms: 1 },
        is_bootstrapped: false,
    };
    coordinator
        .write_stream(None, &row)
        .await
        .expect("an answer");
    coordinator
        .write_stream(
            Some(&row),
            &StreamRow {
                is_bootstrapped: true,
                ..row.clone()
            },
        )
        .await
        .expect("an answer");
    let first = ApplicationStart {
        position: InitialPosition::Latest,
        looked_at_ms: 7,
        found_leases: true,
    };
    assert_eq!(fleet(coordinator).await.start, Some(first));
}

/// A bad version stays written down until it is released, once for each version.
pub async fn a_version_is_quarantined_until_it_is_released(coordinator: &dyn Coordinator) {
    let host = row("a", "run", 0).worker;
    let entry = |of, reason: &str| Quarantined {
        digest: digest(of),
        host: host.clone(),
        reason: reason.into(),
        at_ms: 7,
    };
    for bad in [
        entry("b1", "leaks"),
        entry("b2", "traps"),
        entry("b1", "leaks more"),
    ] {
        assert_eq!(coordinator.quarantine(&bad).await, Ok(()));
    }
    let mut known = fleet(coordinator).await.quarantined;
    known.sort_by(|a, b| a.digest.as_str().cmp(b.digest.as_str()));
    assert_eq!(known, [entry("b1", "leaks more"), entry("b2", "traps")]);
    for of in ["b1", "b1", "b3"] {
        assert_eq!(
            coordinator.release_version(&digest(of)).await,
            Ok(()),
            "also if there is none"
        );
    }
    assert_eq!(fleet(coordinator).await.quarantined, [entry("b2", "traps")]);
}

/// Others look when it moves.
pub async fn the_bulletin_rises_with_every_announcement(coordinator: &dyn Coordinator) {
    for expected in 1..4 {
        coordinator.announce().await.expect("an answer");
        assert_eq!(fleet(coordinator).await.bulletin, expected);
    }
}

/// However long it is, and a shorter one after it.
pub async fn the_shard_list_is_read_back_whole(coordinator: &dyn Coordinator) {
    let shard = |n: u128| Shard {
        id: ShardId::new(format!("shardId-{n:012}")).expect("valid"),
        parents: if n > 1 {
            vec![ShardId::new(format!("shardId-{:012}", n - 1)).expect("valid")]
        } else {
            Vec::new()
        },
        hash_range: HashKeyRange::new(n, u128::MAX).expect("in order"),
        ending_sequence: n
            .is_multiple_of(3)
            .then(|| SequenceNumber::parse("49640871423056104321897561").expect("digits")),
    };
    for count in [2_345, 2] {
        let list = CachedShards {
            identity: StreamIdentity { created_at_ms: 9 },
            shards: (0..count).map(shard).collect(),
            listed_by: Incarnation::new("run").expect("not empty"),
        };
        coordinator.write_shards(&list).await.expect("an answer");
        assert_eq!(coordinator.shards().await, Ok(Some(list)));
    }
}

/// What is read once in a while by every host does not grow with the fleet.
pub async fn the_board_shows_all_but_the_workers(coordinator: &dyn Coordinator) {
    let service = Service {
        deputies: vec![row("b", "run", 0).worker],
        hosts: 9,
        leases: 40,
        is_beside_kcl: true,
        hosts_wanted: Some(Figure {
            wanted: 4,
            undamped: Some(3),
            load_milli: 3_100,
            shards: 40,
            policy: ScalingPolicy::default(),
            why: "what arrives needs so many".to_owned(),
        }),
    };
    let leader = LeaderRow {
        service: Some(service),
        ..leader("a", 1)
    };
    let bad = Quarantined {
        digest: digest("b1"),
        host: row("a", "run", 0).worker,
        reason: "leaks".into(),
        at_ms: 7,
    };
    let stream = StreamRow {
        name: StreamName::new("orders").expect("valid"),
        identity: StreamIdentity { created_at_ms: 1 },
        is_bootstrapped: true,
    };
    assert_eq!(
        coordinator.register(None, &row("a", "run", 0)).await,
        Ok(Raced::Applied)
    );
    assert_eq!(
        coordinator.write_leader(None, &leader).await,
        Ok(Raced::Applied)
    );
    assert_eq!(
        coordinator.write_stream(None, &stream).await,
        Ok(Raced::Applied)
    );
    coordinator.quarantine(&bad).await.expect("an answer");
    coordinator.announce().await.expect("an answer");
    let all = fleet(coordinator).await;
    assert_eq!(
        (all.bulletin, &all.leader, all.workers.len()),
        (1, &Some(leader), 1)
    );
    assert_eq!(
        coordinator.board().await,
        Ok(FleetRows {
            workers: Vec::new(),
            ..all
        })
    );
}

/// For one worker, the last that was left, and no part of the fleet's rows.
pub async fn mail_is_read_back_by_its_worker_until_other_mail_is_left(
    coordinator: &dyn Coordinator,
) {
    let (a, b) = (row("a", "run", 0).worker, row("b", "run", 0).worker);
    let lease = |n: u32| LeaseKey::new(format!("shardId-{n:012}")).expect("valid");
    let run = Incarnation::new("run").expect("not empty");
    let owner = |beat| {
        Some(OwnerSeen {
            id: b.clone(),
            beat,
        })
    };
    let take = |owner, why| Task::Take {
        counter: LeaseCounter(8),
        owner,
        why,
    };
    let tasks = [
        take(None, Why::BelowShare { fair_share: 3 }),
        take(owner(Some((run.clone(), 7))), Why::Overdue),
        take(owner(None), Why::Uneven { lead: 2 }),
        Task::Claim {
            from: b.clone(),
            replaces: None,
            lead: 4,
        },
        Task::Claim {
            from: b.clone(),
            replaces: Some(a.clone()),
            lead: 4,
        },
        Task::Expect { by: b.clone() },
    ];
    let errands = tasks
        .into_iter()
        .zip(0..)
        .map(|(task, n)| Errand {
            key: lease(n),
            task,
        })
        .collect();
    let mail = Mail {
        to: run.clone(),
        number: u64::MAX,
        errands,
    };
    assert_eq!(coordinator.mailbox(&a).await, Ok(Mailbox::default()));
    coordinator
        .leave_mail(&a, Some(&mail))
        .await
        .expect("an answer");
    assert_eq!(coordinator.mailbox(&a).await, Ok(left(mail)));
    assert_eq!(coordinator.mailbox(&b).await, Ok(Mailbox::default()));
    let none = Mail {
        to: run,
        number: 2,
        errands: Vec::new(),
    };
    coordinator
        .leave_mail(&a, Some(&none))
        .await
        .expect("an answer");
    assert_eq!(coordinator.mailbox(&a).await, Ok(left(none)));
    for _ in 0..2 {
        coordinator.leave_mail(&a, None).await.expect("an answer");
    }
    assert_eq!(coordinator.mailbox(&a).await, Ok(Mailbox::default()));
    assert_eq!(fleet(coordinator).await, FleetRows::default());
}

/// A mailbox with mail and no nudge.
fn left(mail: Mail) -> Mailbox {
    Mailbox {
        mail: Some(mail),
        nudge: None,
    }
}

/// A nudge comes beside the mail, and goes with it.
pub async fn a_nudge_is_read_with_the_mail_until_there_is_another(coordinator: &dyn Coordinator) {
    let a = WorkerId::new("a").expect("not empty");
    for number in [7, u64::MAX] {
        coordinator.nudge(&a, number).await.expect("an answer");
        let expected = Mailbox {
            mail: None,
            nudge: Some(number),
        };
        assert_eq!(coordinator.mailbox(&a).await, Ok(expected));
    }
    let mail = Mail {
        to: Incarnation::new("run").expect("not empty"),
        number: 1,
        errands: Vec::new(),
    };
    coordinator
        .leave_mail(&a, Some(&mail))
        .await
        .expect("an answer");
    let expected = Mailbox {
        mail: Some(mail),
        nudge: Some(u64::MAX),
    };
    assert_eq!(coordinator.mailbox(&a).await, Ok(expected));
    coordinator.leave_mail(&a, None).await.expect("an answer");
    assert_eq!(coordinator.mailbox(&a).await, Ok(Mailbox::default()));
}

/// Of two who read the same, one wins; every host reads it with the other small rows.
pub async fn what_operators_want_of_all_hosts_is_changed_by_one_at_a_time(
    coordinator: &dyn Coordinator,
) {
    let asked = Asked {
        by: "ops".to_owned(),
        why: "incident 7".to_owned(),
        at_ms: 5,
    };
    let first = Control::default().changed(|next| {
        next.pause = Some(Pause {
            asked: asked.clone(),
            until_ms: Some(9),
        });
        let host = WorkerId::new("host.a:1").expect("not empty");
        next.drains.insert(host, asked);
    });
    let none = Control::default();
    let raced = coordinator.write_control(&none, &first).await;
    assert_eq!(raced, Ok(Raced::Applied));
    let raced = coordinator
        .write_control(&none, &none.changed(|_| {}))
        .await;
    assert_eq!(raced, Ok(Raced::Lost));
    assert_eq!(fleet(coordinator).await.control, first);
    let second = first.changed(|next| next.pause = None);
    let raced = coordinator.write_control(&first, &second).await;
    assert_eq!(raced, Ok(Raced::Applied));
    let board = coordinator.board().await.expect("an answer");
    assert_eq!(board.control, second);
}

/// Entries are no rows of the fleet.
pub async fn the_history_is_added_to_and_changes_nothing_else(coordinator: &dyn Coordinator) {
    let entry = HistoryEntry {
        at_ms: 5,
        by: "ops".to_owned(),
        deed: Deed::Pause,
        shard: None,
        details: "all shards".to_owned(),
        why: "incident 7".to_owned(),
    };
    for _ in 0..2 {
        coordinator.record(&entry).await.expect("an answer");
    }
    assert_eq!(fleet(coordinator).await, FleetRows::default());
}
