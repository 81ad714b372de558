//! Which hosts watch a fleet, and which ones get errands: so that reading grows with the hosts and
//! with the leases, not with their product.
//!
//! The leader and two deputies watch everything, as all hosts of a small fleet do. The others heed:
//! each reads its own row, where the leader leaves errands, and looks itself only rarely. When the
//! leader dies, its deputies have already watched for a while, so a dead leader's leases expire as
//! soon as any other's.

use std::collections::BTreeSet;

use crate::lease::WorkerId;
use crate::scaling::Figure;

/// Hosts that watch beside the leader. Two: one may be lost with the leader.
pub const DEPUTIES: usize = 2;

/// In a fleet of this many hosts that no leader serves yet, not all look: fewer hosts cost little,
/// and get their shares a second sooner.
const SPARE_FROM: usize = 16;

/// What a leader reports about its service, in its record. A leader of an older version reports
/// nothing, and then every host watches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// The deputies, in order of id. Fewer than [`DEPUTIES`] in a fleet so small that every host
    /// watches.
    pub deputies: Vec<WorkerId>,
    /// Live hosts, the leader included.
    pub hosts: usize,
    /// Rows of the lease table.
    pub leases: usize,
    /// Whether a KCL shares the lease table, so that each row must be renewed.
    pub is_beside_kcl: bool,
    /// How many hosts are wanted; `None` if the leader does not say.
    pub hosts_wanted: Option<Figure>,
}

/// How a host learns what to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It reads all rows, and plans for itself.
    Watch,
    /// It does what the leader leaves for it.
    Heed,
}

/// Whether `me` will not watch once there is a leader with deputies: a fleet whose hosts start
/// together must not list all leases once for each host. Goes by order of id, as the choice of
/// deputies does.
pub fn is_spare(me: &WorkerId, live: &BTreeSet<WorkerId>) -> bool {
    live.len() >= SPARE_FROM && !live.iter().take(DEPUTIES + 1).any(|id| id == me)
}

impl Service {
    /// Chooses the deputies of `leader` among the live hosts: those of `before` that are left, then
    /// others in order of id. A deputy that stays knows how long each row has not moved.
    pub fn choose_deputies(
        before: &[WorkerId],
        live: &BTreeSet<WorkerId>,
        leader: &WorkerId,
    ) -> Vec<WorkerId> {
        let stay = before
            .iter()
            .filter(|id| live.contains(*id) && *id != leader);
        let others = live
            .iter()
            .filter(|id| !before.contains(id) && *id != leader);
        let mut deputies: Vec<WorkerId> = stay.chain(others).take(DEPUTIES).cloned().collect();
        deputies.sort();
        deputies
    }

    /// The role of `me`, which does not lead.
    pub fn role(&self, me: &WorkerId) -> Role {
        if !self.has_deputies() || self.deputies.contains(me) {
            Role::Watch
        } else {
            Role::Heed
        }
    }

    /// Whether it has all its deputies, so that others need not watch.
    pub fn has_deputies(&self) -> bool {
        self.deputies.len() >= DEPUTIES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(names: &[&str]) -> Vec<WorkerId> {
        names
            .iter()
            .map(|name| WorkerId::new(name).unwrap())
            .collect()
    }

    fn deputies(before: &[&str], live: &[&str]) -> Vec<WorkerId> {
        Service::choose_deputies(
            &ids(before),
            &ids(live).into_iter().collect(),
            &WorkerId::new("lead").unwrap(),
        )
    }

    #[test]
    fn deputies_stay_while_they_live_and_are_never_the_leader() {
        assert_eq!(deputies(&[], &["b", "c", "d", "lead"]), ids(&["b", "c"]));
        assert_eq!(
            deputies(&["c", "d"], &["a", "b", "c", "d", "lead"]),
            ids(&["c", "d"])
        );
        assert_eq!(
            deputies(&["c", "d"], &["a", "b", "d", "lead"]),
            ids(&["a", "d"])
        );
        assert_eq!(deputies(&["lead", "z"], &["lead"]), ids(&[]));
    }

    #[test]
    fn in_a_large_fleet_without_a_leader_three_hosts_look_and_in_a_small_one_all() {
        let fleet = |hosts| -> BTreeSet<WorkerId> {
            (0..hosts)
                .map(|n| WorkerId::new(&format!("host-{n:04}")).unwrap())
                .collect()
        };
        let looking = |hosts| {
            let live = fleet(hosts);
            live.iter().filter(|me| !is_spare(me, &live)).count()
        };
        assert_eq!(
            [looking(1), looking(15), looking(16), looking(1_000)],
            [1, 15, 3, 3]
        );
    }

    #[test]
    fn in_a_small_fleet_everybody_watches_and_in_a_large_one_the_deputies() {
        let service = |names| Service {
            deputies: ids(names),
            hosts: 9,
            leases: 9,
            is_beside_kcl: false,
            hosts_wanted: None,
        };
        let me = WorkerId::new("b").unwrap();
        assert_eq!(service(&["a"]).role(&me), Role::Watch);
        assert_eq!(service(&["a", "b"]).role(&me), Role::Watch);
        assert_eq!(service(&["a", "c"]).role(&me), Role::Heed);
    }
}
