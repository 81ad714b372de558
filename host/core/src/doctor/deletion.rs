//! Whether the tables of an application may be deleted.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::finding::some_of;
use super::mode::traces_of_kcl3;
use super::{Companions, LeaseTableFacts, TableFacts};
use crate::fleet::ApplicationStart;
use crate::lease::{Lease, LeaseObserver, Pulse, WorkerId};
use crate::time::Moment;

/// What is known of an application that is to be deleted.
#[derive(Debug, Clone, Copy)]
pub struct DeletionFacts<'a> {
    /// What is known of the lease table.
    pub table: &'a TableFacts,
    /// The tables beside it.
    pub companions: Companions,
    /// Where the application began, if that is written down.
    pub start: Option<&'a ApplicationStart>,
    /// Whether whoever asks says that a table with leases from before shardmill may go too.
    pub takes_older: bool,
    /// Everybody who may be alive, see [`living`].
    pub living: &'a BTreeMap<WorkerId, Pulse>,
}

/// Why an application's tables are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeletionRefusal {
    /// No host of shardmill has served it.
    NotServed,
    /// The table under its name is no lease table.
    OtherKey {
        /// What it is.
        problem: String,
    },
    /// The table is being made, changed or deleted.
    Busy {
        /// DynamoDB's word for that.
        status: String,
    },
    /// Somebody may be at work.
    Alive {
        /// Who, and what was seen of each.
        workers: Vec<(WorkerId, Pulse)>,
    },
    /// It has rows that are not shardmill's, or cannot be read.
    OtherRows {
        /// Which.
        what: String,
    },
    /// A KCL 3.x works with it, or did.
    Kcl3 {
        /// What it left.
        traces: Vec<String>,
    },
    /// It had leases before the first host of shardmill: a KCL's, or what an import wrote.
    Older,
}

/// The reasons to keep the tables; none if they may be deleted.
pub fn refuse_deletion(facts: &DeletionFacts<'_>) -> Vec<DeletionRefusal> {
    let mut refusals = Vec::new();
    if !facts.companions.own_coordinator {
        refusals.push(DeletionRefusal::NotServed);
    }
    match facts.table {
        // The rest of a deletion that was interrupted.
        TableFacts::Missing => {}
        TableFacts::OtherKey { problem } => refusals.push(DeletionRefusal::OtherKey {
            problem: problem.clone(),
        }),
        TableFacts::Leases(table) => refuse_table(table, facts.companions, &mut refusals),
    }
    let is_older = facts.start.is_some_and(|start| start.found_leases);
    if is_older && !facts.takes_older {
        refusals.push(DeletionRefusal::Older);
    }
    if !facts.living.is_empty() {
        let living = facts.living.iter();
        refusals.push(DeletionRefusal::Alive {
            workers: living.map(|(id, pulse)| (id.clone(), *pulse)).collect(),
        });
    }
    refusals
}

fn refuse_table(
    table: &LeaseTableFacts,
    companions: Companions,
    refusals: &mut Vec<DeletionRefusal>,
) {
    if table.status != "ACTIVE" {
        let status = table.status.clone();
        refusals.push(DeletionRefusal::Busy { status });
    }
    let traces = traces_of_kcl3(table, companions);
    if !traces.is_empty() {
        refusals.push(DeletionRefusal::Kcl3 { traces });
    }
    if !table.bad_rows.is_empty() {
        let rows = table.bad_rows.iter().map(|row| &row.key);
        refusals.push(DeletionRefusal::OtherRows {
            what: format!("{} cannot be read", some_of("row", rows)),
        });
    }
    let multi = table.leases.iter().map(|facts| &facts.lease.key);
    let multi: Vec<_> = multi.filter(|key| key.stream_prefix().is_some()).collect();
    if !multi.is_empty() {
        refusals.push(DeletionRefusal::OtherRows {
            what: format!("{} of the KCL's multi-stream mode", some_of("row", multi)),
        });
    }
}

/// Every owner of a lease, of any library, and every registered host that may be alive, by the rule
/// that hosts use. `lease_duration` is how long an owner may be silent that is not registered.
pub fn living(
    observer: &LeaseObserver,
    leases: &[Lease],
    now: Moment,
    lease_duration: Duration,
) -> BTreeMap<WorkerId, Pulse> {
    let mut living = BTreeMap::new();
    for lease in leases {
        if let Some(owner) = &lease.owner
            && let Some(pulse) = observer.pulse(lease, now, lease_duration)
        {
            note(&mut living, owner, pulse);
        }
    }
    for (row, _) in observer.workers(now) {
        if let Some(pulse) = observer.worker_pulse(&row.worker, now) {
            note(&mut living, &row.worker, pulse);
        }
    }
    living.retain(|_, pulse| pulse.may_live());
    living
}

fn note(living: &mut BTreeMap<WorkerId, Pulse>, worker: &WorkerId, pulse: Pulse) {
    let known = living.entry(worker.clone()).or_insert(pulse);
    *known = known.or_livelier(pulse);
}

/// What is wrong and how to go on.
impl fmt::Display for DeletionRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotServed => f.write_str(
                "it has no coordinator table, so no host of shardmill has served it: the table is \
                    somebody else's",
            ),
            Self::OtherKey { problem } => {
                write!(f, "the table of its name is no lease table: {problem}")
            }
            Self::Busy { status } => {
                write!(f, "its lease table is {status}: wait until it is ACTIVE")
            }
            Self::Alive { workers } => write_alive(workers, f),
            Self::OtherRows { what } => {
                write!(
                    f,
                    "its lease table holds {what}: they may be somebody else's"
                )
            }
            Self::Kcl3 { traces } => write!(
                f,
                "a KCL 3.x keeps its state there ({}): delete its tables by hand once it is gone \
                    for good",
                traces.join(", ")
            ),
            Self::Older => f.write_str(
                "its lease table had leases before the first host of shardmill, a KCL's or those \
                    that an import wrote; if nobody needs them, --older-leases deletes them too",
            ),
        }
    }
}

fn write_alive(workers: &[(WorkerId, Pulse)], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str("somebody may be at work: ")?;
    for (index, (worker, pulse)) in workers.iter().enumerate() {
        let comma = if index == 0 { "" } else { ", " };
        write!(f, "{comma}{worker} ({pulse})")?;
    }
    f.write_str(
        "; stop its hosts first. One that was killed counts as dead once it was watched for longer \
            than its lease duration: --watch-for",
    )
}
