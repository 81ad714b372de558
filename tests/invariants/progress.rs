//! L6: a shard that is held makes progress, or is shown as blocked.

use std::collections::{BTreeMap, BTreeSet};

use crate::history::{Checkpoint, Event, HostChange, Micros, Place, Topology, What};
use crate::holding::Holding;
use crate::limits::Limits;
use crate::violation::{Invariant, Report};
use crate::world::{Tenure, TenureKey, World, is_unfinished};

/// Every lease that is held, and since when it makes no progress.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    watched: BTreeMap<TenureKey, Watched>,
    /// What is shown as blocked. It stays shown while its host is paused, or waits for an answer
    /// about the lease.
    shown: BTreeSet<TenureKey>,
    /// The tenure of each delivery that runs.
    deliveries: BTreeMap<u64, TenureKey>,
}

/// What is known of a held lease.
#[derive(Debug, Default)]
struct Watched {
    /// Until when its host believed to hold it, when that was looked at last.
    held_until: Micros,
    /// Since when there are records that are not handled, and none is settled that was not before,
    /// or not in this tenure: after a checkpoint was set back by hand, old ones come again.
    undelivered: Waiting,
    /// Since when something settled is not written down, and nothing is.
    unwritten: Waiting,
}

/// Something to do that is not done.
#[derive(Debug, Default)]
struct Waiting {
    since: Option<Micros>,
    /// How much was done when that began.
    done: Done,
}

/// How far a shard is. Any change is progress.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
enum Done {
    #[default]
    Nothing,
    Settled {
        /// Records of the shard, by any host.
        records: usize,
        /// In this tenure. It never goes back.
        through: Option<Place>,
    },
    Written(Checkpoint),
}

impl Progress {
    /// `world` already knows of `event`.
    pub(crate) fn see(
        &mut self,
        world: &World,
        holding: &Holding,
        event: &Event,
        limits: &Limits,
        report: &mut Report,
    ) {
        if limits.bounds.shown_within.is_none() {
            return;
        }
        for key in self.concerned(world, event) {
            self.look(world, holding, &key, limits, report);
            if let What::Shown { why, .. } = &event.what {
                self.note_shown(&key, why.is_some());
                self.look(world, holding, &key, limits, report);
            }
        }
    }

    pub(crate) fn finish(
        &mut self,
        world: &World,
        holding: &Holding,
        limits: &Limits,
        report: &mut Report,
    ) {
        let keys: Vec<_> = self.watched.keys().cloned().collect();
        for key in keys {
            self.look(world, holding, &key, limits, report);
        }
    }

    /// The tenures that `event` may have moved or ended.
    fn concerned(&mut self, world: &World, event: &Event) -> Vec<TenureKey> {
        let of_host =
            |host: &String, shard: &str| holder(world, shard).filter(|key| key.host == *host);
        let one = match &event.what {
            What::Produced { shard, .. } | What::Topology(Topology::Trimmed { shard, .. }) => {
                holder(world, shard)
            }
            What::Called(call) => of_host(&call.host, &call.key),
            What::Shown { host, shard, .. } => of_host(host, shard),
            What::GivenUp(given_up) => world
                .tenure_of_given_up(given_up)
                .map(|tenure| tenure.key.clone()),
            What::StateSaved {
                host, shard, epoch, ..
            } => Some(TenureKey {
                host: host.clone(),
                shard: shard.clone(),
                epoch: *epoch,
            }),
            What::DeliveryStarted(delivery) => {
                self.deliveries.insert(delivery.id, TenureKey::of(delivery));
                None
            }
            What::DeliveryEnded { id, .. } => self.deliveries.remove(id),
            What::Written(write) => {
                let of_row = self.watched.keys().filter(|key| key.shard == write.key);
                return of_row.cloned().chain(holder(world, &write.key)).collect();
            }
            What::Host { host, change } if *change != HostChange::Started => {
                return self
                    .watched
                    .keys()
                    .filter(|key| key.host == *host)
                    .cloned()
                    .collect();
            }
            _ => None,
        };
        one.into_iter().collect()
    }

    /// From a change on, the wait of `key` is counted from zero.
    fn note_shown(&mut self, key: &TenureKey, is_shown: bool) {
        if is_shown {
            self.shown.insert(key.clone());
        } else {
            self.shown.remove(key);
        }
        self.watched.remove(key);
    }

    /// Judges what `key` waited for until now, and notes what it waits for from here on.
    fn look(
        &mut self,
        world: &World,
        holding: &Holding,
        key: &TenureKey,
        limits: &Limits,
        report: &mut Report,
    ) {
        let (now, bound) = (
            report.now,
            limits.bounds.shown_within.unwrap_or(Micros::MAX),
        );
        let is_shown = self.shown.contains(key);
        let watched = self.watched.entry(key.clone()).or_default();
        // What its host holds under a later tenure says nothing of this one.
        if holder(world, &key.shard).as_ref() == Some(key) {
            watched.held_until = holding
                .answerable_until(&key.host, &key.shard, limits)
                .unwrap_or_default();
        }
        let held_until = watched.held_until;
        // One that ran out meanwhile was not held until now.
        let until = now.min(held_until);
        for (waiting, what) in [
            (&mut watched.undelivered, "settled"),
            (&mut watched.unwritten, "written down"),
        ] {
            let waited = waiting.since.map_or(0, |since| until.saturating_sub(since));
            if waited > bound && !is_shown {
                waiting.since = None;
                let TenureKey { host, shard, .. } = key;
                report.add(
                    Invariant::L6,
                    format!(
                        "{host} holds {shard}, nothing was {what} for {waited} us, and it \
                        shows nothing"
                    ),
                );
            }
        }
        let tenure = world
            .tenures
            .get(key)
            .filter(|_| now < held_until && is_held(world, key));
        let Some(tenure) = tenure else {
            self.watched.remove(key);
            return;
        };
        watched
            .undelivered
            .note(undelivered(world, tenure), is_shown, now);
        watched.unwritten.note(unwritten(tenure), is_shown, now);
    }
}

impl Waiting {
    /// `done` is how far it is, if there is more to do.
    fn note(&mut self, done: Option<Done>, is_shown: bool, now: Micros) {
        let Some(done) = done.filter(|_| !is_shown) else {
            *self = Self::default();
            return;
        };
        if self.since.is_none() || self.done != done {
            *self = Self {
                since: Some(now),
                done,
            };
        }
    }
}

/// Whoever has the lease now.
fn holder(world: &World, shard: &str) -> Option<TenureKey> {
    let facts = world.table.rows.get(shard)?;
    Some(TenureKey {
        host: facts.row.owner.clone()?,
        shard: shard.to_owned(),
        epoch: facts.epoch?,
    })
}

fn is_held(world: &World, key: &TenureKey) -> bool {
    let runs = world
        .hosts
        .get(&key.host)
        .is_some_and(|host| host.is_running && !host.is_paused);
    let is_open = world
        .table
        .row(&key.shard)
        .is_some_and(|row| is_unfinished(&row.checkpoint));
    runs && is_open && holder(world, &key.shard).as_ref() == Some(key)
}

fn undelivered(world: &World, tenure: &Tenure) -> Option<Done> {
    let shard = world
        .shard_of(tenure)
        .filter(|_| tenure.generation == world.stream.generation)?;
    let mut due = shard.due(&tenure.frontier(), &Checkpoint::End);
    due.any(|place| !tenure.is_done_with(place))
        .then(|| Done::Settled {
            records: shard.settled.len(),
            through: tenure.settled_through.clone(),
        })
}

fn unwritten(tenure: &Tenure) -> Option<Done> {
    if tenure.waits_to_save() {
        return None;
    }
    let settled = Checkpoint::At(tenure.settled_through.clone()?);
    (settled > tenure.written).then(|| Done::Written(tenure.written.clone()))
}
