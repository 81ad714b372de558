//! The workers of the application as a table.

use comfy_table::Table;
use shardmill_core::fleet::{FleetRows, WorkerRow};
use shardmill_core::lease::{LeaseObserver, Pulse};
use shardmill_core::time::Moment;

use crate::output::{short_reason, table};

/// Characters that tables show of the reason of a trouble; `explain` shows all of it.
pub(super) const TROUBLE_SHOWN: usize = 160;

/// The workers, and what each does. Shows which are alive only if the observer saw more than one
/// look.
pub(super) fn worker_table(fleet: &FleetRows, observer: &LeaseObserver, now: Moment) -> Table {
    let mut table = table(["worker", "run", "beat", "lease", "most", "state"]);
    for row in &fleet.workers {
        let mut state: Vec<String> = office(row, fleet).map(str::to_owned).into_iter().collect();
        state.extend(life(row, observer, now));
        state.extend(troubles(row));
        table.add_row([
            row.worker.to_string(),
            row.incarnation.to_string(),
            row.beat.to_string(),
            humantime::format_duration(row.lease_duration).to_string(),
            most_leases(row),
            joined(&state),
        ]);
    }
    table
}

fn office(row: &WorkerRow, fleet: &FleetRows) -> Option<&'static str> {
    let leader = fleet.leader.as_ref().and_then(|row| row.holder.as_ref());
    // Its row says that it shuts down, for hosts that know no drain.
    if fleet.control.drains.contains_key(&row.worker) {
        return Some("drained");
    }
    if row.is_draining {
        return Some("shutting down");
    }
    let (worker, run) = leader?;
    (*worker == row.worker && *run == row.incarnation).then_some("leader")
}

fn life(row: &WorkerRow, observer: &LeaseObserver, now: Moment) -> Option<String> {
    match observer.worker_pulse(&row.worker, now)? {
        Pulse::Unwatched { .. } => None,
        pulse => Some(pulse.to_string()),
    }
}

fn troubles(row: &WorkerRow) -> Vec<String> {
    let mut troubles = Vec::new();
    if let Some(reason) = &row.cannot_write {
        let reason = short_reason(reason, TROUBLE_SHOWN);
        troubles.push(format!("cannot write lease rows: {reason}"));
    }
    if let Some(reason) = &row.cannot_look {
        let reason = short_reason(reason, TROUBLE_SHOWN);
        troubles.push(format!("cannot read its leases: {reason}"));
    }
    troubles
}

fn most_leases(row: &WorkerRow) -> String {
    match row.max_leases {
        usize::MAX => "-".to_owned(),
        most => most.to_string(),
    }
}

fn joined(state: &[String]) -> String {
    if state.is_empty() {
        return "-".to_owned();
    }
    state.join(", ")
}
