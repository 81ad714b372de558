//! Tables that somebody may need are not deleted.

use std::collections::BTreeMap;
use std::time::Duration;

use super::super::{
    Companions, DeletionFacts, DeletionRefusal, LeaseFacts, LeaseTableFacts, TableFacts, living,
    refuse_deletion,
};
use crate::fleet::{ApplicationStart, WorkerRow};
use crate::lease::{Checkpoint, Lease, LeaseCounter, LeaseObserver, Pulse, WorkerId};
use crate::ports::BadRow;
use crate::stream::{HashKeyRange, InitialPosition, LeaseKey, Shard, ShardId};
use crate::time::Moment;

const LEASE_DURATION: Duration = Duration::from_secs(10);

fn worker(id: &str) -> WorkerId {
    WorkerId::new(id).unwrap()
}

fn lease(number: u32, owner: Option<&str>) -> Lease {
    let shard = Shard {
        id: ShardId::new(format!("shardId-{number:012}")).unwrap(),
        parents: Vec::new(),
        hash_range: HashKeyRange::FULL,
        ending_sequence: None,
    };
    Lease {
        owner: owner.map(worker),
        ..Lease::fresh(&shard, Checkpoint::TrimHorizon)
    }
}

fn table(leases: Vec<Lease>) -> LeaseTableFacts {
    let facts = |lease| LeaseFacts {
        lease,
        has_pending_checkpoint: false,
        has_entity_type: false,
    };
    LeaseTableFacts {
        status: "ACTIVE".to_owned(),
        leases: leases.into_iter().map(facts).collect(),
        ..LeaseTableFacts::default()
    }
}

fn began(found_leases: bool) -> ApplicationStart {
    ApplicationStart {
        position: InitialPosition::TrimHorizon,
        looked_at_ms: 7,
        found_leases,
    }
}

const SERVED: Companions = Companions {
    worker_metrics: false,
    coordinator_state: false,
    own_coordinator: true,
};

/// A table that may be deleted, unless a test says otherwise.
struct Scene {
    table: TableFacts,
    companions: Companions,
    start: ApplicationStart,
    takes_older: bool,
    living: BTreeMap<WorkerId, Pulse>,
}

impl Scene {
    fn of(table: LeaseTableFacts) -> Self {
        Self {
            table: TableFacts::Leases(Box::new(table)),
            companions: SERVED,
            start: began(false),
            takes_older: false,
            living: BTreeMap::new(),
        }
    }

    fn refusals(&self) -> Vec<DeletionRefusal> {
        refuse_deletion(&DeletionFacts {
            table: &self.table,
            companions: self.companions,
            start: Some(&self.start),
            takes_older: self.takes_older,
            living: &self.living,
        })
    }

    /// The only reason to keep the tables, as it is told.
    fn reason(&self) -> String {
        let refusals = self.refusals();
        assert_eq!(refusals.len(), 1, "{refusals:?}");
        refusals[0].to_string()
    }
}

#[test]
fn an_application_of_dead_hosts_and_the_rest_of_one_may_be_deleted() {
    let mut scene = Scene::of(table(vec![lease(1, None)]));
    assert_eq!(scene.refusals(), []);
    scene.table = TableFacts::Missing;
    assert_eq!(scene.refusals(), []);
}

#[test]
fn tables_that_are_not_shardmills_alone_are_kept_with_the_reason() {
    let mut not_served = Scene::of(table(Vec::new()));
    not_served.companions = Companions::default();
    let reason = not_served.reason();
    assert!(reason.contains("no coordinator table"), "{reason}");
    let kcl3 = LeaseTableFacts {
        has_owner_index: true,
        ..table(Vec::new())
    };
    let bad = LeaseTableFacts {
        bad_rows: vec![BadRow {
            key: "x".to_owned(),
            problem: "?".to_owned(),
        }],
        ..table(Vec::new())
    };
    let mut multi = lease(1, None);
    multi.key = LeaseKey::new("123456789012:orders:7:shardId-000000000001").unwrap();
    let deleting = LeaseTableFacts {
        status: "DELETING".to_owned(),
        ..table(Vec::new())
    };
    for (table, word) in [
        (kcl3, "KCL 3.x"),
        (bad, "cannot be read"),
        (table(vec![multi]), "multi-stream"),
        (deleting, "DELETING"),
    ] {
        let reason = Scene::of(table).reason();
        assert!(reason.contains(word), "{reason}");
    }
}

#[test]
fn leases_from_before_shardmill_are_deleted_only_if_somebody_says_so() {
    let mut scene = Scene::of(table(Vec::new()));
    scene.start = began(true);
    let reason = scene.reason();
    assert!(reason.contains("--older-leases"), "{reason}");
    scene.takes_older = true;
    assert_eq!(scene.refusals(), []);
}

#[test]
fn whoever_may_live_keeps_the_tables_an_idle_host_and_a_kcl_included() {
    let idle = WorkerRow::beating("idle");
    let mut observer = LeaseObserver::default();
    let first = [lease(1, Some("kcl")), lease(2, Some("dead"))];
    let mut now = Moment::default();
    observer.observe_workers(std::slice::from_ref(&idle), now);
    observer.observe(&first, now);
    let unwatched = living(&observer, &first, now, LEASE_DURATION);
    assert_eq!(unwatched.len(), 3, "one look proves nothing: {unwatched:?}");
    now = now + LEASE_DURATION * 2;
    let mut second = first.clone();
    second[0].counter = LeaseCounter(1);
    let beating = WorkerRow { beat: 2, ..idle };
    observer.observe_workers(std::slice::from_ref(&beating), now);
    observer.observe(&second, now);
    let seen = living(&observer, &second, now, LEASE_DURATION);
    let ids: Vec<&WorkerId> = seen.keys().collect();
    assert_eq!(ids, [&worker("idle"), &worker("kcl")]);
    let mut scene = Scene::of(table(Vec::new()));
    scene.living = seen;
    let reason = scene.reason();
    assert!(
        reason.contains("idle") && reason.contains("kcl") && !reason.contains("dead ("),
        "{reason}"
    );
}
