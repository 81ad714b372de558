//! L1 to L3, L5 and L7: in the healed phase what is due happens, within its bound.

use std::collections::{BTreeMap, BTreeSet};

use crate::history::{Event, HostChange, Micros, Topology, What, Write, WriteKind};
use crate::limits::{Limits, Rate};
use crate::violation::{Invariant, Report};
use crate::world::{Shard, World, is_unfinished};

/// What is due.
#[derive(Debug)]
pub(crate) struct Liveness<'a> {
    limits: &'a Limits,
    /// Unfinished rows that nobody reads: since when, and by when they must be taken.
    orphans: BTreeMap<String, Orphan>,
    /// Hosts that signed off and were not started since.
    signed_off: BTreeSet<String>,
    /// Whether a host stopped before it was up: its registration may still arrive, and count in the
    /// shares for as long as it takes to see that nobody is behind it.
    has_ghost: bool,
    /// Hosts that were told to stop, and hold leases.
    stopping: BTreeMap<String, Micros>,
    /// Ends that were read, by shard: by whom and when.
    said_ends: BTreeMap<String, (String, Micros)>,
    /// When the fleet or the table was last disturbed.
    disturbed_at: Micros,
    /// Whether the fleet was judged at rest.
    was_at_rest: bool,
    calls: Vec<Micros>,
}

#[derive(Debug)]
struct Orphan {
    since: Micros,
    invariant: Invariant,
    is_reported: bool,
}

impl<'a> Liveness<'a> {
    pub(crate) fn new(limits: &'a Limits) -> Self {
        Self {
            limits,
            orphans: BTreeMap::new(),
            signed_off: BTreeSet::new(),
            has_ghost: false,
            stopping: BTreeMap::new(),
            said_ends: BTreeMap::new(),
            disturbed_at: limits.healed_at.unwrap_or_default(),
            was_at_rest: false,
            calls: Vec::new(),
        }
    }

    /// `world` does not know yet of an event at `now`.
    pub(crate) fn meet(&mut self, world: &World, now: Micros, report: &mut Report) {
        if !self.was_at_rest && self.limits.rests_at.is_some_and(|at| now >= at) {
            self.was_at_rest = true;
            self.balance(world, now, report);
        }
    }

    /// `world` already knows of `event`.
    pub(crate) fn see(&mut self, world: &World, event: &Event, report: &mut Report) {
        let Some(healed_at) = self.limits.healed_at else {
            return;
        };
        match &event.what {
            What::Written(write) => {
                self.churn(world, write, event.at, healed_at, report);
                self.due_at(world, event.at, Some(write), report);
            }
            What::Topology(change) => {
                if !matches!(change, Topology::Trimmed { .. }) {
                    self.disturbed_at = self.disturbed_at.max(event.at);
                }
                self.due_at(world, event.at, None, report);
            }
            What::Host { host, change } => {
                self.disturbed_at = self.disturbed_at.max(event.at);
                match change {
                    HostChange::SignedOff => drop(self.signed_off.insert(host.clone())),
                    HostChange::Stopped => self.has_ghost |= !self.signed_off.contains(host),
                    HostChange::Started => drop(self.signed_off.remove(host)),
                    _ => {}
                }
                match change {
                    HostChange::Stopping => {
                        self.stopping.insert(host.clone(), event.at.max(healed_at));
                    }
                    HostChange::Started | HostChange::Crashed => drop(self.stopping.remove(host)),
                    // What faults kept it from giving back are orphans.
                    HostChange::Stopped if event.at <= healed_at => {
                        self.stopping.remove(host);
                    }
                    HostChange::SignedOff
                    | HostChange::Stopped
                    | HostChange::Paused
                    | HostChange::Resumed => {}
                }
                self.due_at(world, event.at, None, report);
            }
            What::SaidEnd { host, shard } => {
                self.said_ends
                    .insert(shard.clone(), (host.clone(), event.at));
            }
            What::Called(_) => self.calls.push(event.at),
            _ => {}
        }
    }

    pub(crate) fn finish(&mut self, world: &World, report: &mut Report) {
        if self.limits.healed_at.is_none() {
            return;
        }
        self.due_at(world, self.limits.end, None, report);
        if !self.was_at_rest {
            self.balance(world, self.limits.end, report);
        }
        if let Some(rate) = self.limits.bounds.calls {
            self.storm(rate, report);
        }
    }

    fn due_at(&mut self, world: &World, now: Micros, write: Option<&Write>, report: &mut Report) {
        self.orphaned(world, now, write, report);
        self.unreleased(world, now, report);
        self.childless(world, now, report);
    }

    /// L1, and L5 for what a stopping host gave back.
    fn orphaned(&mut self, world: &World, now: Micros, write: Option<&Write>, report: &mut Report) {
        let healed_at = self.limits.healed_at.unwrap_or_default();
        let is_anybody_live = world.hosts.values().any(crate::world::HostFacts::is_live);
        // Judged before rows leave the list, or a late take would go unseen.
        for (key, orphan) in &mut self.orphans {
            let bound = match orphan.invariant {
                Invariant::L5 => self.limits.bounds.handed_on_within,
                _ => self.limits.bounds.retaken_within,
            };
            let waited = now.saturating_sub(orphan.since.max(healed_at));
            if bound.is_some_and(|bound| waited > bound) && !orphan.is_reported {
                orphan.is_reported = true;
                report.add(
                    orphan.invariant,
                    format!("nobody took {key} for {waited} us"),
                );
            }
        }
        for key in concerned(world, write) {
            if !is_anybody_live || !is_orphan(world, key) {
                self.orphans.remove(key);
                continue;
            }
            let was_given_back = write.is_some_and(|write| {
                let by = write.by.as_ref().and_then(|by| world.hosts.get(by));
                write.key == *key
                    && !self.has_ghost
                    && write.kind == WriteKind::Release
                    && by.is_some_and(|by| by.stopping_since.is_some())
            });
            let invariant = if was_given_back {
                Invariant::L5
            } else {
                Invariant::L1
            };
            self.orphans.entry(key.clone()).or_insert(Orphan {
                since: now,
                invariant,
                is_reported: false,
            });
        }
    }

    /// L5: what a host that was told to stop still holds.
    fn unreleased(&mut self, world: &World, now: Micros, report: &mut Report) {
        let Some(bound) = self.limits.bounds.released_within else {
            return;
        };
        self.stopping.retain(|host, since| {
            let owns = |row: &crate::history::Row| {
                row.owner.as_ref() == Some(host) && is_unfinished(&row.checkpoint)
            };
            let kept: Vec<_> = world
                .table
                .rows
                .iter()
                .filter(|(_, facts)| owns(&facts.row))
                .map(|(key, _)| key)
                .collect();
            let is_late = now > since.saturating_add(bound);
            // Also if this event is what released the last: it is on the list because it held some
            // before.
            if is_late {
                report.add(
                    Invariant::L5,
                    format!("{host} was told to stop at {since} and held leases until {now}"),
                );
            }
            !is_late && !kept.is_empty()
        });
    }

    /// L3: children of a shard whose end its holder has read and whose records are all settled.
    fn childless(&mut self, world: &World, now: Micros, report: &mut Report) {
        let healed_at = self.limits.healed_at.unwrap_or_default();
        let Some(bound) = self.limits.bounds.children_within else {
            return;
        };
        self.said_ends.retain(|id, (host, said_at)| {
            let Some(shard) = world.stream.shard(id) else {
                return false;
            };
            let is_live = world
                .hosts
                .get(host)
                .is_none_or(crate::world::HostFacts::is_live);
            let is_held = world
                .table
                .row(id)
                // The same shard's end is told to all applications that share its reads: to one
                // that has finished it, it says nothing new.
                .is_some_and(|row| {
                    row.owner.as_ref() == Some(host) && is_unfinished(&row.checkpoint)
                });
            let missing: Vec<_> = shard
                .children
                .iter()
                .filter(|child| !world.table.created_at.contains_key(*child))
                .collect();
            // Whoever takes the lease next reads the end again.
            if !is_live || !is_held {
                return false;
            }
            if now <= said_at.saturating_add(bound) {
                return !missing.is_empty();
            }
            let Some(settled_at) = shard.all_settled_at() else {
                return true;
            };
            let due_at = settled_at
                .max(*said_at)
                .max(healed_at)
                .saturating_add(bound);
            // Also if this event is what made the last of them.
            if now > due_at {
                report.add(
                    Invariant::L3,
                    format!("{host} read the end of {id} at {said_at}, late are {missing:?}"),
                );
            }
            now <= due_at && !missing.is_empty()
        });
    }

    /// L2: nothing changes hands in a fleet that had time to settle.
    fn churn(
        &mut self,
        world: &World,
        write: &Write,
        now: Micros,
        healed_at: Micros,
        report: &mut Report,
    ) {
        match write.kind {
            WriteKind::Admin | WriteKind::End | WriteKind::Create | WriteKind::Obey => {
                self.disturbed_at = self.disturbed_at.max(now);
            }
            // What waited for a shard that retention took is free from then on.
            WriteKind::Delete
                if write
                    .before
                    .as_ref()
                    .is_some_and(|row| is_unfinished(&row.checkpoint)) =>
            {
                self.disturbed_at = self.disturbed_at.max(now);
            }
            // Nobody can read a shard that is gone, and each gives it up until the leader has
            // missed it in enough listings.
            WriteKind::Take { .. }
                if world
                    .stream
                    .shard(&write.key)
                    .is_none_or(|shard| shard.is_gone) =>
            {
                self.disturbed_at = self.disturbed_at.max(now);
            }
            WriteKind::Take { .. } if now >= healed_at => {
                let Some(bound) = self.limits.bounds.balanced_within else {
                    return;
                };
                if now > self.disturbed_at.saturating_add(bound) {
                    let what = format!(
                        "{:?} took {}, undisturbed since {}",
                        write.by, write.key, self.disturbed_at
                    );
                    report.add(Invariant::L2, what);
                }
            }
            _ => {}
        }
    }

    /// L2: the counts `now`, if the fleet had time to settle.
    fn balance(&self, world: &World, now: Micros, report: &mut Report) {
        let Some(bound) = self.limits.bounds.balanced_within else {
            return;
        };
        if now <= self.disturbed_at.saturating_add(bound) {
            return;
        }
        let live = world.hosts.iter().filter(|(_, facts)| facts.is_live());
        let mut counts: BTreeMap<&str, usize> = live.map(|(host, _)| (host.as_str(), 0)).collect();
        let rows = world
            .table
            .rows
            .values()
            .map(|facts| &facts.row)
            .filter(|row| is_unfinished(&row.checkpoint));
        for owner in rows.filter_map(|row| row.owner.as_deref()) {
            if let Some(count) = counts.get_mut(owner) {
                *count += 1;
            }
        }
        let (fewest, most) = (
            counts.values().min().copied(),
            counts.values().max().copied(),
        );
        if most.unwrap_or_default() > fewest.unwrap_or_default() + 1 {
            report.add(Invariant::L2, format!("leases are spread as {counts:?}"));
        }
    }

    /// L7: too many calls in one window, once things should have calmed down.
    fn storm(&self, rate: Rate, report: &mut Report) {
        let from = self
            .limits
            .healed_at
            .unwrap_or_default()
            .saturating_add(rate.after);
        let calls: Vec<_> = self
            .calls
            .iter()
            .copied()
            .filter(|at| *at >= from)
            .collect();
        let crowd = calls
            .windows(rate.max + 1)
            .find(|window| window[rate.max] - window[0] < rate.window);
        if let Some([first, ..]) = crowd {
            report.add(
                Invariant::L7,
                format!(
                    "more than {} calls in {} us from {}",
                    rate.max, rate.window, first
                ),
            );
        }
    }
}

/// The rows that may be orphans now and were none before, or the other way round: the row that was
/// written and the next ones of its descendants, or else all.
fn concerned<'a>(world: &'a World, write: Option<&'a Write>) -> Vec<&'a String> {
    let Some(write) = write else {
        return world.table.rows.keys().collect();
    };
    let mut concerned = vec![&write.key];
    let mut open: Vec<&String> = world
        .stream
        .shard(&write.key)
        .map_or(Vec::new(), |shard| shard.children.iter().collect());
    while let Some(key) = open.pop() {
        concerned.push(key);
        if world.table.row(key).is_none() {
            open.extend(
                world
                    .stream
                    .shard(key)
                    .into_iter()
                    .flat_map(|shard| &shard.children),
            );
        }
    }
    concerned
}

/// Whether a row that could be read is read by nobody.
fn is_orphan(world: &World, key: &str) -> bool {
    let Some(row) = world
        .table
        .row(key)
        .filter(|row| is_unfinished(&row.checkpoint))
    else {
        return false;
    };
    let Some(shard) = world.stream.shard(key).filter(|shard| !shard.is_gone) else {
        return false;
    };
    let is_read = row.owner.as_ref().is_some_and(|owner| {
        let facts = world.hosts.get(owner);
        facts.is_none_or(|facts| facts.is_running && !facts.is_paused)
    });
    !is_read && !waits(world, shard)
}

/// Whether an ancestor is still to be read, or to be found gone.
pub(crate) fn waits(world: &World, shard: &Shard) -> bool {
    shard
        .parents
        .iter()
        .any(|parent| match world.table.row(parent) {
            Some(row) => is_unfinished(&row.checkpoint),
            None => world
                .stream
                .shard(parent)
                .is_some_and(|parent| waits(world, parent)),
        })
}
