//! How a host can use a table.

use std::fmt;

use super::{Census, Companions, LeaseTableFacts};

/// How a host may use a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// There is no table: the first host creates it.
    NoTable,
    /// A host cannot use it.
    NotALeaseTable,
    /// Only shardmill uses it. Rows of a stopped KCL 2.x are continued at their checkpoints.
    Own,
    /// Beside a live fleet that follows KCL 2.x rules.
    Kcl2Shared,
    /// Instead of a KCL 3.x fleet, which must be stopped: its leader would not give us leases.
    Kcl3Takeover,
}

impl Mode {
    /// The mode's name in documentation and for programs.
    pub fn code(self) -> &'static str {
        match self {
            Self::NoTable => "no-table",
            Self::NotALeaseTable => "not-a-lease-table",
            Self::Own => "own",
            Self::Kcl2Shared => "kcl2-shared",
            Self::Kcl3Takeover => "kcl3-takeover",
        }
    }

    pub(super) fn of(table: &LeaseTableFacts, companions: Companions, census: &Census) -> Self {
        let has_others = census.other_workers().any(|owner| owner.pulse.may_live());
        let is_ours = census
            .owners
            .iter()
            .any(|owner| owner.is_shardmill && owner.pulse.may_live());
        match rules_of(table, companions) {
            Rules::Kcl2 | Rules::Kcl3InKcl2Mode if has_others => Self::Kcl2Shared,
            Rules::Kcl2 => Self::Own,
            // We took over earlier; the traces stay.
            Rules::Kcl3 | Rules::Kcl3InKcl2Mode if is_ours && !has_others => Self::Own,
            Rules::Kcl3 | Rules::Kcl3InKcl2Mode => Self::Kcl3Takeover,
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoTable => {
                "no table yet: the first host creates it and starts at \
                initial-position"
            }
            Self::NotALeaseTable => "not a lease table: no host can use it",
            Self::Own => {
                "own: only hosts of shardmill use the table, and they continue from its checkpoints"
            }
            Self::Kcl2Shared => {
                "kcl2-shared: hosts of shardmill may join the live fleet, which \
                follows KCL 2.x rules"
            }
            Self::Kcl3Takeover => {
                "kcl3-takeover: once the KCL 3.x fleet is stopped, hosts of shardmill continue \
                    from its checkpoints"
            }
        })
    }
}

/// Whose rules the writers of a table follow.
enum Rules {
    Kcl2,
    /// KCL 3.x during an upgrade or after a roll-back: it takes leases and elects as KCL 2.x does.
    Kcl3InKcl2Mode,
    Kcl3,
}

fn rules_of(table: &LeaseTableFacts, companions: Companions) -> Rules {
    match table.client_version.as_deref() {
        Some("CLIENT_VERSION_UPGRADE_FROM_2X" | "CLIENT_VERSION_2X") => Rules::Kcl3InKcl2Mode,
        None if traces_of_kcl3(table, companions).is_empty() => Rules::Kcl2,
        Some(_) | None => Rules::Kcl3,
    }
}

/// The traces that only KCL 3.x leaves, in words.
pub(super) fn traces_of_kcl3(table: &LeaseTableFacts, companions: Companions) -> Vec<String> {
    let mut traces = Vec::new();
    let mut add = |is_there: bool, what: &str| {
        if is_there {
            traces.push(what.to_owned());
        }
    };
    add(table.has_owner_index, "index LeaseOwnerToLeaseKeyIndex");
    add(companions.worker_metrics, "a WorkerMetricStats table");
    add(companions.coordinator_state, "a CoordinatorState table");
    add(
        table.leases.iter().any(|facts| facts.has_entity_type),
        "entityType on leases",
    );
    add(
        table
            .leases
            .iter()
            .any(|facts| facts.lease.checkpoint_owner.is_some()),
        "checkpointOwner on leases",
    );
    traces.extend(
        table
            .other_rows
            .iter()
            .map(|(kind, count)| format!("{count} {kind}")),
    );
    traces
}
