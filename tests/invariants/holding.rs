//! S10 and S11: a delivery starts only while its host may believe that it holds the lease, and is
//! in no doubt; and nobody takes a lease that its holder may still believe in.

use std::collections::{BTreeMap, BTreeSet};

use crate::history::{
    Call, CallResult, Delivery, Event, Heartbeat, HostChange, Micros, What, Write, WriteKind,
};
use crate::limits::Limits;
use crate::rules;
use crate::violation::{Invariant, Report};
use crate::world::World;

/// What each host may believe of its leases.
#[derive(Debug, Default)]
pub(crate) struct Holding {
    holds: BTreeMap<(String, String), Hold>,
    /// Each host's heartbeats since it started, in the order in which it got their answers.
    beats: BTreeMap<String, Vec<Beat>>,
    /// When each host got the answer to the first heartbeat after its last missed deadline, by its
    /// own clock.
    hearts_back_at: BTreeMap<String, Micros>,
    /// Of each host, since when what is written is held by its heartbeats, by its own clock: since
    /// it registered last, or since its heart was back.
    generations: BTreeMap<String, Micros>,
    /// Hosts that have sent a registration, and no heartbeat or registration of theirs was answered
    /// since.
    registering: BTreeSet<String>,
    /// When each paused host woke. What it sent at that moment, it may have counted from long
    /// before.
    woke_at: BTreeMap<String, Micros>,
    /// Hosts that left in order, and did not come back.
    away: BTreeSet<String>,
    /// Host, row and sending time of each applied write.
    applied: BTreeSet<(String, String, Micros)>,
}

/// What a host may believe of one lease.
#[derive(Debug, Default)]
struct Hold {
    /// By the host's own clock; `None` without a lease.
    until: Option<Micros>,
    /// When the last heartbeat was sent that holds it, by the true clock. One that comes after a
    /// missed deadline, or after the host's row was gone, holds only what is written after it, so
    /// that others need not wait for it.
    beaten_at: Option<Micros>,
    /// When the last applied write to the row was sent, by the host's own clock.
    local_written: Micros,
    /// When the last write or heartbeat was sent that holds it, by the true clock.
    last_sent_at: Micros,
    /// When it got to know that an answer is missing.
    in_doubt_since: Option<Micros>,
    /// Unanswered writes, which may turn out to have been applied.
    unanswered: Vec<Unanswered>,
    /// The host was paused: it may have looked at its lease right before.
    may_be_late: bool,
    /// The last of what surely holds it: an answered take, and each write or heartbeat that was
    /// answered while the one before it still held.
    certain: Option<Certain>,
}

/// When something was sent whose answer came in time, by both clocks.
#[derive(Debug, Clone, Copy)]
struct Certain {
    sent: Micros,
    local_sent: Micros,
    /// When the last write to the row was sent: a heart that missed its deadline afterwards holds
    /// nothing for certain.
    local_written: Micros,
}

/// An answered heartbeat, by both clocks.
#[derive(Debug, Clone, Copy)]
struct Beat {
    sent: Micros,
    local_sent: Micros,
    local_answered: Micros,
    /// What was written before that is not held by it.
    holds_from: Micros,
}

#[derive(Debug)]
struct Unanswered {
    sent_at: Micros,
    local_sent_at: Micros,
    is_take: bool,
}

impl Holding {
    pub(crate) fn judge(
        &mut self,
        world: &World,
        event: &Event,
        limits: &Limits,
        report: &mut Report,
    ) {
        match &event.what {
            What::Written(write) => {
                report.add_all(Invariant::S10, self.live_take(world, write, limits));
                if let Some(by) = &write.by {
                    self.applied
                        .insert((by.clone(), write.key.clone(), write.sent_at));
                }
            }
            What::Called(call) => self.called(call, event.at, limits),
            What::Heartbeat(beat) => self.beat(beat, limits),
            What::Host { host, change } => {
                if *change == HostChange::Resumed {
                    self.woke_at.insert(host.clone(), event.at);
                }
                self.host_changed(world, host, *change, report);
            }
            What::DeliveryStarted(delivery) => {
                self.delivered(world, delivery, event.at, limits, report);
            }
            _ => {}
        }
    }

    /// A take from an owner that was alive: neither it nor the row was silent for a whole lease
    /// duration.
    fn live_take(&self, world: &World, write: &Write, limits: &Limits) -> Option<String> {
        let WriteKind::Take { seen } = write.kind else {
            return None;
        };
        let facts = world.table.rows.get(&write.key)?;
        // A take that did not know the row breaks the fence, which is said there.
        if write.before.as_ref()?.counter != seen {
            return None;
        }
        let owner = facts
            .row
            .owner
            .as_ref()
            .filter(|owner| write.by.as_ref() != Some(owner))?;
        // It said itself that it holds nothing any more; that it could not give the row back harms
        // nobody. Nor does it where a person named an owner that nobody is.
        if self.away.contains(owner) || !world.hosts.contains_key(owner) {
            return None;
        }
        let beaten_at = self
            .holds
            .get(&(owner.clone(), write.key.clone()))
            .and_then(|hold| hold.beaten_at);
        let moved_at = facts.raised_at().max(beaten_at.unwrap_or_default());
        (!rules::may_expire(moved_at, write.sent_at, limits)).then(|| {
            let alive_for = write.sent_at.saturating_sub(moved_at);
            format!(
                "{:?} took {} from {owner}, who was alive {alive_for} us before",
                write.by, write.key
            )
        })
    }

    fn called(&mut self, call: &Call, at: Micros, limits: &Limits) {
        let is_take = matches!(call.kind, Some(WriteKind::Take { .. }));
        let is_release = matches!(call.kind, Some(WriteKind::Release | WriteKind::GiveUp));
        let is_keepers = is_release
            || matches!(
                call.kind,
                Some(WriteKind::Renew | WriteKind::Checkpoint | WriteKind::End | WriteKind::Obey)
            );
        if call.kind.is_some() && !is_take && !is_keepers {
            return;
        }
        let id = |sent_at| (call.host.clone(), call.key.clone(), sent_at);
        let was_applied = call.result == CallResult::Ok || self.applied.contains(&id(call.sent_at));
        let hold = self
            .holds
            .entry((call.host.clone(), call.key.clone()))
            .or_default();
        let this = Unanswered {
            sent_at: call.sent_at,
            local_sent_at: call.local_sent_at,
            is_take,
        };
        match (call.result, call.kind) {
            // An earlier try of the same call was applied and its answer lost; the last one was
            // refused.
            (CallResult::NotApplied, Some(_)) if was_applied => {
                hold.unanswered.push(this);
                return;
            }
            (CallResult::NotApplied, _) | (CallResult::Unknown, None) => return,
            (CallResult::Unknown, Some(_)) => {
                if is_keepers {
                    hold.in_doubt_since.get_or_insert(at);
                }
                hold.unanswered.push(this);
                return;
            }
            (CallResult::Ok, Some(WriteKind::Release | WriteKind::GiveUp)) => {
                *hold = Hold::default();
                return;
            }
            (CallResult::Ok | CallResult::Conflict, kind) => {
                // A read that was sent before the write says nothing of it.
                if hold
                    .unanswered
                    .iter()
                    .all(|unanswered| unanswered.sent_at <= call.sent_at)
                {
                    hold.in_doubt_since = None;
                }
                if kind.is_some() && was_applied {
                    hold.held_by(&this, limits);
                    let local_sent = call.local_sent_at;
                    let certain = Certain {
                        sent: call.sent_at,
                        local_sent,
                        local_written: local_sent,
                    };
                    let was_asleep = self.woke_at.get(&call.host) == Some(&call.sent_at);
                    if is_take {
                        hold.certain = (!was_asleep).then_some(certain);
                    } else if !was_asleep {
                        hold.surely_held_by(certain, call.local_at, limits);
                    }
                    if is_take {
                        hold.unanswered.clear();
                        hold.beaten_at = None;
                    }
                    hold.held_by_beats(self.beats.get(&call.host), call.local_sent_at, limits);
                }
            }
        }
        let unanswered = std::mem::take(&mut hold.unanswered);
        for write in unanswered
            .iter()
            .filter(|write| self.applied.contains(&id(write.sent_at)))
        {
            hold.held_by(write, limits);
            hold.held_by_beats(self.beats.get(&call.host), write.local_sent_at, limits);
        }
        hold.unanswered = unanswered;
    }

    fn beat(&mut self, beat: &Heartbeat, limits: &Limits) {
        // Its row is gone: what it held before, its heart holds again only once the lease's row was
        // written. Whether it is gone, or another process beats, the host knows a moment later.
        if beat.result == CallResult::Conflict {
            self.hearts_back_at.insert(beat.host.clone(), beat.local_at);
        }
        // Whatever the answer: it may have been applied. The row is gone since the first of
        // several.
        if beat.is_registration && self.registering.insert(beat.host.clone()) {
            let registered_at = beat.local_sent_at;
            self.generations.insert(beat.host.clone(), registered_at);
        }
        if beat.result != CallResult::Ok {
            return;
        }
        self.registering.remove(&beat.host);
        let beats = self.beats.entry(beat.host.clone()).or_default();
        if beats
            .last()
            .is_some_and(|last| beat.local_at > rules::hold_until(last.local_sent, limits))
        {
            self.hearts_back_at.insert(beat.host.clone(), beat.local_at);
            self.generations.insert(beat.host.clone(), beat.local_at);
        }
        let generation = self.generations.get(&beat.host);
        let beat_of = Beat {
            sent: beat.sent_at,
            local_sent: beat.local_sent_at,
            local_answered: beat.local_at,
            holds_from: generation.copied().unwrap_or_default(),
        };
        beats.push(beat_of);
        let was_asleep = self.woke_at.get(&beat.host) == Some(&beat.sent_at);
        let heart_back_at = self
            .hearts_back_at
            .get(&beat.host)
            .copied()
            .unwrap_or_default();
        for (_, hold) in self
            .holds
            .iter_mut()
            .filter(|((host, _), _)| *host == beat.host)
        {
            hold.held_by_beat(beat_of, limits);
            if limits.heartbeats_hold && !was_asleep {
                hold.surely_held_by_beat(beat_of, heart_back_at, limits);
            }
        }
    }

    /// Whether a heartbeat of `host` was answered since it started.
    pub(crate) fn has_beaten(&self, host: &str) -> bool {
        self.beats.contains_key(host)
    }

    /// Until when `host` may believe at most that it holds `shard`, by the true clock.
    pub(crate) fn believed_until(
        &self,
        host: &str,
        shard: &str,
        limits: &Limits,
    ) -> Option<Micros> {
        let hold = self
            .holds
            .get(&(host.to_owned(), shard.to_owned()))
            .filter(|hold| hold.until.is_some())?;
        Some(hold.last_sent_at.saturating_add(limits.lease_duration))
    }

    /// Until when `host` has to make progress on `shard`, by the true clock. Beside a KCL a heartbeat
    /// holds nothing: a lease whose row cannot be written is over, though its host goes on beating.
    pub(crate) fn answerable_until(
        &self,
        host: &str,
        shard: &str,
        limits: &Limits,
    ) -> Option<Micros> {
        let believed = self.believed_until(host, shard, limits)?;
        if limits.heartbeats_hold {
            return Some(believed);
        }
        let hold = self.holds.get(&(host.to_owned(), shard.to_owned()))?;
        let written = hold.certain?.sent;
        Some(believed.min(written.saturating_add(limits.lease_duration)))
    }

    /// A row that its host gives back after it may have lost the lease: it owed no checkpoint any
    /// more, and could write none.
    pub(crate) fn given_back_by_name<'a>(
        &self,
        event: &'a Event,
        limits: &Limits,
    ) -> Option<&'a str> {
        let What::Written(write) = &event.what else {
            return None;
        };
        let is_given_back = matches!(write.kind, WriteKind::Release | WriteKind::GiveUp);
        let by = write.by.as_ref().filter(|_| is_given_back)?;
        (!self.surely_holds(by, &write.key, write.sent_at, limits)).then_some(write.key.as_str())
    }

    /// Whether `host` holds `shard` for certain at `at`, by the true clock: its own may be fast by
    /// half the margin.
    pub(crate) fn surely_holds(
        &self,
        host: &str,
        shard: &str,
        at: Micros,
        limits: &Limits,
    ) -> bool {
        let hold = self.holds.get(&(host.to_owned(), shard.to_owned()));
        let hold_for = limits.hold_for().saturating_sub(limits.margin / 2);
        hold.and_then(|hold| hold.certain)
            .is_some_and(|certain| at <= certain.sent.saturating_add(hold_for))
    }

    fn host_changed(&mut self, world: &World, host: &str, change: HostChange, report: &mut Report) {
        if change == HostChange::SignedOff
            && let Some(open) = world.in_flight.values().find(|open| open.host == host)
        {
            report.add(
                Invariant::S10,
                format!("{host} signed off while it delivered {}", open.shard),
            );
        }
        match change {
            HostChange::SignedOff | HostChange::Stopped => {
                self.away.insert(host.to_owned());
            }
            HostChange::Started => {
                self.away.remove(host);
            }
            HostChange::Crashed
            | HostChange::Stopping
            | HostChange::Paused
            | HostChange::Resumed => {}
        }
        match change {
            HostChange::SignedOff
            | HostChange::Started
            | HostChange::Stopped
            | HostChange::Crashed => {
                self.holds.retain(|(holder, _), _| holder != host);
                self.beats.remove(host);
                self.hearts_back_at.remove(host);
                self.generations.remove(host);
                self.registering.remove(host);
            }
            HostChange::Resumed => {
                let mine = self
                    .holds
                    .iter_mut()
                    .filter(|((holder, _), _)| holder == host);
                for ((_, key), hold) in mine {
                    // Whoever waits for a plugin is not between a look at the lease and a call.
                    let is_busy = world
                        .in_flight
                        .values()
                        .any(|open| open.host == host && open.shard == *key);
                    hold.may_be_late = !is_busy;
                }
            }
            HostChange::Stopping | HostChange::Paused => {}
        }
    }

    fn delivered(
        &mut self,
        world: &World,
        delivery: &Delivery,
        at: Micros,
        limits: &Limits,
        report: &mut Report,
    ) {
        let (host, shard) = (&delivery.host, &delivery.shard);
        let hold = self.holds.entry((host.clone(), shard.clone())).or_default();
        // One batch, and only that one, may have been past the check when the host was paused.
        let is_excused = std::mem::take(&mut hold.may_be_late);
        if let (Some(since), false) = (hold.in_doubt_since, is_excused)
            && at > since.saturating_add(limits.check_to_call)
        {
            report.add(
                Invariant::S11,
                format!("{host} delivers {shard}, in doubt since {since}"),
            );
        }
        let Some(tenure) = world.tenure_of(delivery) else {
            let what = format!(
                "{host} delivers {shard} under epoch {}, which it never held",
                delivery.epoch
            );
            return report.add(Invariant::S10, what);
        };
        if is_excused {
            return;
        }
        let Some(until) = hold.until else {
            let what = format!("{host} delivers {shard} but holds no lease on it");
            return report.add(Invariant::S10, what);
        };
        let is_lost = world.table.rows.contains_key(shard)
            && !world.is_held(delivery)
            && !tenure.is_interfered;
        if is_lost {
            let what = format!(
                "{host} delivers {shard} under epoch {}, but the row is another's",
                delivery.epoch
            );
            report.add(Invariant::S10, what);
        } else if delivery.local_at >= until.saturating_add(limits.check_to_call) {
            let late = delivery.local_at - until;
            report.add(
                Invariant::S10,
                format!("{host} delivers {shard} {late} us after its deadline"),
            );
        }
    }
}

impl Hold {
    /// Counts from the sending of an applied write. Also if its answer came after the old deadline,
    /// as after a pause: it met its condition, so the lease was not taken before, and it moved the
    /// row, so it is not taken for a while.
    fn held_by(&mut self, write: &Unanswered, limits: &Limits) {
        let until = rules::hold_until(write.local_sent_at, limits);
        self.last_sent_at = self.last_sent_at.max(write.sent_at);
        self.local_written = self.local_written.max(write.local_sent_at);
        if write.is_take {
            self.until = Some(until);
            self.in_doubt_since = None;
        } else if self.until.is_some() {
            self.until = self.until.max(Some(until));
        }
    }

    /// A lease that ran out is not revived by a late answer.
    fn held_by_beat(&mut self, beat: Beat, limits: &Limits) {
        let is_in_time = self.until.is_some_and(|old| beat.local_answered <= old);
        if is_in_time && self.local_written >= beat.holds_from {
            self.until = self
                .until
                .max(Some(rules::hold_until(beat.local_sent, limits)));
            self.beaten_at = self.beaten_at.max(Some(beat.sent));
            self.last_sent_at = self.last_sent_at.max(beat.sent);
        }
    }

    fn surely_held_by_beat(&mut self, beat: Beat, heart_back_at: Micros, limits: &Limits) {
        let Some(certain) = self
            .certain
            .filter(|certain| certain.local_written >= heart_back_at)
        else {
            return;
        };
        let next = Certain {
            sent: beat.sent,
            local_sent: beat.local_sent,
            ..certain
        };
        self.surely_held_by(next, beat.local_answered, limits);
    }

    fn surely_held_by(&mut self, next: Certain, local_answered: Micros, limits: &Limits) {
        // A take whose answer was lost is known by the first write after it.
        let last = self.certain.unwrap_or(next);
        let is_in_time = local_answered <= rules::hold_until(last.local_sent, limits);
        if self.until.is_some() && is_in_time && last.sent <= next.sent {
            self.certain = Some(next);
        }
    }

    /// Heartbeats that were answered since the write was sent, each while the write or one of them
    /// still held.
    fn held_by_beats(&mut self, beats: Option<&Vec<Beat>>, written_at: Micros, limits: &Limits) {
        let beats = beats.map_or(&[][..], Vec::as_slice);
        let first = beats.partition_point(|beat| beat.local_answered < written_at);
        for beat in &beats[first..] {
            self.held_by_beat(*beat, limits);
        }
    }
}
