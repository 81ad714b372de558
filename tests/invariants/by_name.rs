//! L8: in calm, a lease that a row says is a running host's is read by it, or given back.

use std::collections::BTreeMap;

use crate::history::{Event, Micros, What};
use crate::holding::Holding;
use crate::limits::Limits;
use crate::liveness::waits;
use crate::violation::{Invariant, Report};
use crate::world::{HostFacts, World, is_unfinished};

/// How often all rows are looked at.
const EVERY: Micros = 1_000_000;

/// Leases that are a host's by name, and that it does not believe to hold.
#[derive(Debug, Default)]
pub(crate) struct ByName {
    is_calm: bool,
    looked_at: Micros,
    /// By row: whose it is, and since when it was seen like that.
    unread: BTreeMap<String, (String, Micros)>,
}

impl ByName {
    /// `world` already knows of `event`.
    pub(crate) fn see(
        &mut self,
        world: &World,
        holding: &Holding,
        event: &Event,
        limits: &Limits,
        report: &mut Report,
    ) {
        let Some(bound) = limits.bounds.taken_up_within else {
            return;
        };
        if let What::Calm(is_calm) = event.what {
            self.look(world, holding, limits, bound, report);
            self.is_calm = is_calm;
            self.unread.clear();
        }
        if self.is_calm && event.at >= self.looked_at.saturating_add(EVERY) {
            self.look(world, holding, limits, bound, report);
        }
    }

    fn look(
        &mut self,
        world: &World,
        holding: &Holding,
        limits: &Limits,
        bound: Micros,
        report: &mut Report,
    ) {
        let now = report.now;
        self.looked_at = now;
        if !self.is_calm {
            return;
        }
        for key in world.table.rows.keys() {
            let Some(host) = unread_by(world, holding, key, limits, now) else {
                self.unread.remove(key);
                continue;
            };
            let (of, since) = self
                .unread
                .entry(key.clone())
                .or_insert_with(|| (host.to_owned(), now));
            if of != host {
                (*of, *since) = (host.to_owned(), now);
            }
            let waited = now.saturating_sub(*since);
            if waited > bound {
                // Once for each stretch of that length.
                *since = now;
                report.add(
                    Invariant::L8,
                    format!("{key} is {host}'s by name, which does not read it for {waited} us"),
                );
            }
        }
    }
}

/// The host whose lease a row is by name only: it runs, may read the shard, and does not believe to
/// hold it.
fn unread_by<'a>(
    world: &'a World,
    holding: &Holding,
    key: &str,
    limits: &Limits,
    now: Micros,
) -> Option<&'a str> {
    let row = world
        .table
        .row(key)
        .filter(|row| is_unfinished(&row.checkpoint))?;
    let shard = world.stream.shard(key).filter(|shard| !shard.is_gone)?;
    let owner = row
        .owner
        .as_deref()
        .filter(|owner| world.hosts.get(*owner).is_some_and(HostFacts::is_live))?;
    // A host without a version that it may run does not register, and leaves the lease to others.
    if !holding.has_beaten(owner) {
        return None;
    }
    let is_held = holding
        .believed_until(owner, key, limits)
        .is_some_and(|until| now <= until);
    (!is_held && !waits(world, shard)).then_some(owner)
}
