//! S22 to S25: a fleet does what operators want of it, as soon as it certainly knows: a pause, a
//! seek, a skip, a drain.

use std::collections::{BTreeMap, BTreeSet};

use crate::history::{
    Delivery, Event, FleetWanted, GivenUp, HostChange, Micros, Pause, Skip, Wanted, What, Write,
    WriteKind,
};
use crate::limits::Limits;
use crate::policy::GiveUp;
use crate::violation::{Invariant, Report};
use crate::world::{TenureKey, World};

/// A host that is drained finishes what it does, and begins nothing: but it may be stopped for a
/// while between its last look and a call.
const HANDED_OVER_WITHIN: Micros = 35_000_000;

/// What is wanted, since when, and who certainly knows.
#[derive(Debug, Default)]
pub(crate) struct Commands {
    /// Of each shard, since when its row has the pause, and the skip, that it has.
    since: BTreeMap<String, Since>,
    /// Rows that a holder wrote to after it did something, before they show what is still wanted.
    obeyed: BTreeSet<String>,
    /// Of each shard, what was ever to be skipped.
    skips: BTreeMap<String, Vec<Asked>>,
    fleet: FleetWanted,
    /// Holders that were seen to stand, and the number of the pause.
    standing: BTreeMap<TenureKey, u64>,
    /// Hosts that were seen to know a pause of all shards, by its number, and since when.
    informed: BTreeMap<String, (u64, Micros)>,
    /// Hosts that were seen to know that they are drained, and since when.
    drained: BTreeMap<String, Micros>,
}

#[derive(Debug, Default)]
struct Since {
    pause: Micros,
    skip: Micros,
}

/// Records that were to be skipped.
#[derive(Debug)]
struct Asked {
    skip: Skip,
    /// The tenure that said that it is done.
    done_under: Option<u64>,
}

impl Commands {
    pub(crate) fn judge(
        &mut self,
        world: &World,
        event: &Event,
        limits: &Limits,
        report: &mut Report,
    ) {
        match &event.what {
            What::Written(write) => self.written(world, write, report),
            What::Wanted { shard, wanted } => self.wanted(world, shard, wanted, event.at, report),
            What::FleetWanted(wanted) => self.fleet_wanted(wanted, report),
            What::Stands {
                host,
                shard,
                epoch,
                pause,
            } => {
                let (host, shard, epoch) = (host.clone(), shard.clone(), *epoch);
                self.stands(TenureKey { host, shard, epoch }, *pause, event.at);
            }
            What::Drained { host, is_drained } => {
                if *is_drained && self.fleet.drained.contains(host) {
                    self.drained.entry(host.clone()).or_insert(event.at);
                } else {
                    self.drained.remove(host);
                }
            }
            What::GivenUp(given_up) => {
                report.add_all(Invariant::S24, self.wrongly_skipped(world, given_up));
            }
            What::DeliveryStarted(delivery) => {
                let key = TenureKey::of(delivery);
                report.add_all(Invariant::S22, self.paused(world, &key, event.at, limits));
                report.add_all(Invariant::S24, self.not_skipped(world, delivery));
                report.add_all(Invariant::S25, self.kept(delivery, event.at));
            }
            What::Ticks { host, shard, epoch } => {
                let (host, shard, epoch) = (host.clone(), shard.clone(), *epoch);
                let key = TenureKey { host, shard, epoch };
                report.add_all(Invariant::S22, self.paused(world, &key, event.at, limits));
            }
            What::Host {
                host,
                change: HostChange::Started | HostChange::Stopped | HostChange::Crashed,
            } => {
                self.standing.retain(|key, _| key.host != *host);
                self.informed.remove(host);
                self.drained.remove(host);
            }
            _ => {}
        }
    }

    fn written(&mut self, world: &World, write: &Write, report: &mut Report) {
        if self.obeyed.remove(&write.key) {
            let what = format!("{} still shows what was done", write.key);
            report.add(Invariant::S23, what);
        }
        if write.kind == WriteKind::Obey {
            self.obeyed.insert(write.key.clone());
            report.add_all(Invariant::S23, wrongly_obeyed(world, write));
        }
        let (WriteKind::Take { .. }, Some(by)) = (write.kind, &write.by) else {
            return;
        };
        if let Some(since) = self.drained.get(by)
            && write.sent_at > *since
        {
            let what = format!("{by} took {}, though it was drained at {since}", write.key);
            report.add(Invariant::S25, what);
        }
    }

    fn wanted(
        &mut self,
        world: &World,
        shard: &str,
        wanted: &Wanted,
        at: Micros,
        report: &mut Report,
    ) {
        let before = world.wanted.get(shard).cloned().unwrap_or_default();
        let is_obeyed = self.obeyed.remove(shard);
        if is_obeyed && *wanted != without_done(&before) {
            let what = format!("{shard}: {before:?} was obeyed and left {wanted:?}");
            report.add(Invariant::S23, what);
        }
        // A row that is made anew has none.
        if wanted.version != before.version + 1 && wanted.version != 0 {
            let what = format!("{shard}: {wanted:?} came after {before:?}");
            report.add(Invariant::S23, what);
        }
        let since = self.since.entry(shard.to_owned()).or_default();
        if wanted.pause != before.pause {
            since.pause = at;
        }
        if wanted.skip == before.skip {
            return;
        }
        since.skip = at;
        let skips = self.skips.entry(shard.to_owned()).or_default();
        if let (true, Some(last)) = (is_obeyed, skips.last_mut()) {
            last.done_under = world.table.rows.get(shard).and_then(|facts| facts.epoch);
        }
        skips.extend(wanted.skip.clone().map(|skip| Asked {
            skip,
            done_under: None,
        }));
    }

    fn fleet_wanted(&mut self, wanted: &FleetWanted, report: &mut Report) {
        if wanted.version != self.fleet.version + 1 {
            let what = format!("{wanted:?} came after {:?}", self.fleet);
            report.add(Invariant::S22, what);
        }
        self.fleet = wanted.clone();
        let drained = &self.fleet.drained;
        self.drained.retain(|host, _| drained.contains(host));
    }

    fn stands(&mut self, key: TenureKey, pause: Option<u64>, at: Micros) {
        let Some(number) = pause else {
            self.standing.remove(&key);
            return;
        };
        let is_fleets = self
            .fleet
            .pause
            .as_ref()
            .is_some_and(|of| of.number == number);
        let is_known = self
            .informed
            .get(&key.host)
            .is_some_and(|(of, _)| *of == number);
        if is_fleets && !is_known {
            self.informed.insert(key.host.clone(), (number, at));
        }
        self.standing.insert(key, number);
    }

    /// S22: a delivery or a tick while the shard is paused, by a holder that stood for this pause, or that was
    /// told of it with its take.
    fn paused(
        &self,
        world: &World,
        key: &TenureKey,
        at: Micros,
        limits: &Limits,
    ) -> Option<String> {
        let holds = |pause: &&Pause| {
            let is_sure = !limits.policy.is_age_unsure;
            pause.until.is_none_or(|until| is_sure && at < until)
        };
        let own = world
            .wanted
            .get(&key.shard)
            .and_then(|wanted| wanted.pause.as_ref())
            .filter(holds);
        let fleets = self.fleet.pause.as_ref().filter(holds);
        let TenureKey { host, shard, .. } = key;
        let stands_for = self.standing.get(key);
        for pause in [own, fleets].into_iter().flatten() {
            if stands_for == Some(&pause.number) {
                return Some(format!(
                    "{host} delivers {shard}, and showed that it is paused: {pause:?}"
                ));
            }
        }
        let facts = world.table.rows.get(shard)?;
        let taken_at = facts.taken_at;
        if !world.holds(key) {
            return None;
        }
        let since = self.since.get(shard).map(|since| since.pause);
        if let (Some(pause), Some(since)) = (own, since)
            && since < taken_at
        {
            return Some(format!(
                "{host} delivers {shard}, which it took at {taken_at}, paused since {since}: {pause:?}"
            ));
        }
        let (number, informed_at) = self.informed.get(host)?;
        let is_informed = fleets.is_some_and(|pause| pause.number == *number);
        // A take is answered a moment after it was applied.
        (is_informed && *informed_at < taken_at).then(|| {
            format!(
                "{host} delivers {shard}, which it took at {taken_at}, and showed at {informed_at} \
                that all are paused"
            )
        })
    }

    /// S24: what is given up by command was to be, in this way.
    fn wrongly_skipped(&self, world: &World, given_up: &GivenUp) -> Option<String> {
        use crate::policy::Cause;
        if given_up.cause != Cause::Skipped {
            return None;
        }
        let GivenUp {
            shard, epoch, at, ..
        } = given_up;
        let wrong = |what: &str| Some(format!("{at:?} of {shard} was skipped, but {what}"));
        let is_stored = given_up.how == GiveUp::DeadLetter;
        let is_due = |asked: &&Asked| {
            let is_over = asked.done_under.is_some_and(|done| *epoch >= done);
            asked.skip.has(at) && !is_over
        };
        let mut due = self
            .skips
            .get(shard)
            .into_iter()
            .flatten()
            .filter(is_due)
            .peekable();
        if due.peek().is_none() {
            return wrong("nobody wanted that");
        }
        if !due.any(|asked| asked.skip.is_stored == is_stored) {
            return wrong("not as it was wanted");
        }
        let tenure = world.tenure_of_given_up(given_up)?;
        // What an instance handled that is gone by now comes again; what is checkpointed does not.
        if tenure.written.covers(at) {
            return wrong("it was settled before");
        }
        let letter = (shard.clone(), at.clone());
        if is_stored && !world.dead_letters.contains(&letter) {
            return wrong("nobody has stored it");
        }
        None
    }

    /// S24: a delivery of what is to be skipped, by a holder that was told so with its take.
    fn not_skipped(&self, world: &World, delivery: &Delivery) -> Option<String> {
        let skip = world.wanted.get(&delivery.shard)?.skip.as_ref()?;
        let since = self.since.get(&delivery.shard)?.skip;
        let taken_at = world.table.rows.get(&delivery.shard)?.taken_at;
        if !world.is_held(delivery) || taken_at <= since {
            return None;
        }
        let place = delivery.places.iter().find(|place| skip.has(place))?;
        let Delivery { host, shard, .. } = delivery;
        Some(format!(
            "{host} delivers {place:?} of {shard}, which is to be skipped since {since}"
        ))
    }

    /// S25: a lease that a host keeps though it knows that it is drained.
    fn kept(&self, delivery: &Delivery, at: Micros) -> Option<String> {
        let since = self.drained.get(&delivery.host)?;
        let waited = at.saturating_sub(*since);
        let Delivery { host, shard, .. } = delivery;
        (waited > HANDED_OVER_WITHIN)
            .then(|| format!("{host} delivers {shard}, {waited} us after it was drained"))
    }
}

/// S23: a write of a holder that does not do what was wanted, or does it while a delivery runs.
fn wrongly_obeyed(world: &World, write: &Write) -> Option<String> {
    let (key, after) = (&write.key, write.after.as_ref()?);
    let before = write.before.as_ref()?;
    let Some(wanted) = world.wanted.get(key) else {
        return Some(format!("{key}: nothing was wanted"));
    };
    let expected = match (&wanted.seek, &wanted.skip) {
        (Some(seek), _) if seek.is_passed(&before.checkpoint) => &before.checkpoint,
        (Some(seek), _) => &seek.to,
        (None, Some(_)) => &before.checkpoint,
        (None, None) => return Some(format!("{key}: nothing was wanted, but {wanted:?}")),
    };
    if after.checkpoint != *expected {
        return Some(format!(
            "{key} is at {:?}, not at {expected:?}",
            after.checkpoint
        ));
    }
    let is_busy = |key: &crate::world::Tenure| key.open().len() > 0;
    let is_sought = wanted.seek.is_some();
    let busy = world
        .tenure_of_write(write)
        .filter(|tenure| is_sought && is_busy(tenure));
    busy.map(|_| format!("{key} was sent elsewhere while a delivery of it ran"))
}

/// What is wanted after a holder has done the first of it.
fn without_done(before: &Wanted) -> Wanted {
    let mut after = Wanted {
        version: before.version + 1,
        ..before.clone()
    };
    if after.seek.is_some() {
        after.seek = None;
    } else {
        after.skip = None;
    }
    after
}
