//! What the trial of a version shows, and what follows.

use std::time::Duration;

use super::{Active, At, Blamed, Change, Event, Phase, Probation, Rollout, StartFailure};
use crate::plugin::PluginDigest;
use crate::rollout::fault::Fault;
use crate::rollout::judge::{Judgement, Passed, Regression, judge_trial};
use crate::rollout::policy::PROBATION_STRIKES;
use crate::rollout::quarantine::Quarantined;
use crate::rollout::site::Site;
use crate::rollout::track::Sample;

/// Deaths in a row that make a version crash-looping: after one or two, the next instance may work.
const LOOP_DEATHS: u32 = 3;
/// How long to wait before an instance that could not be made is made again: what is missing
/// (memory of the host, a permission) comes back by itself, or an operator provides it.
pub(crate) const START_AGAIN_AFTER: Duration = Duration::from_secs(5);
/// Slow starts after which the version is blamed: a host that catches up on all its shards can take
/// five times as long to make an instance.
const SLOW_STARTS_MAX: u32 = 3;

impl Rollout {
    /// Applies what is due at `at`: ends quarantines, the wait for a turn in the fleet, the trial
    /// and the probation.
    pub fn tick(&mut self, at: At) {
        self.quarantine
            .expire(at.wall_ms, self.policy.quarantine_for);
        if let Some(candidate) = &mut self.candidate
            && at.now.since(candidate.offered_at) >= self.policy.share_wait
            && candidate.goes_on(Event::TurnCame { now: at.now })
        {
            self.revision += 1;
        }
        self.judge_candidate(at);
        self.end_probation(at);
    }

    fn end_probation(&mut self, at: At) {
        let batches = self.policy.canary_batches;
        let Some(active) = &mut self.active else {
            return;
        };
        let probation = active.probation.as_ref();
        if active.track.batches >= batches && probation.is_some_and(|it| it.is_over(at)) {
            active.probation = None;
            active.since_ms = at.wall_ms;
            let digest = active.digest.clone();
            self.change(Change::Proven(digest));
        }
    }

    /// It is this host's turn to try the version.
    pub fn let_start(&mut self, digest: &PluginDigest, at: At) {
        if let Some(candidate) = self.candidate_of(digest)
            && candidate.goes_on(Event::TurnCame { now: at.now })
        {
            self.revision += 1;
        }
    }

    /// Reports whether the probe of a version started.
    pub fn probed(&mut self, digest: &PluginDigest, result: Result<(), StartFailure>, at: At) {
        let Some(candidate) = self.candidate_of(digest) else {
            return;
        };
        match result {
            Ok(()) => {
                candidate.goes_on(Event::ProbeStarted);
                candidate.tried_since = at.now;
                self.revision += 1;
            }
            Err(failure) => self.candidate_did_not_start(failure, at),
        }
    }

    fn candidate_did_not_start(&mut self, failure: StartFailure, at: At) {
        let Some(candidate) = &mut self.candidate else {
            return;
        };
        candidate.slow_starts += u32::from(matches!(failure, StartFailure::TooSlow(_)));
        match failure {
            StartFailure::TooSlow(reason) | StartFailure::NotMade(reason)
                if candidate.slow_starts < SLOW_STARTS_MAX =>
            {
                candidate.goes_on(Event::ProbeIsMadeAgain {
                    not_before: at.now + START_AGAIN_AFTER,
                    trouble: reason,
                });
                self.revision += 1;
            }
            StartFailure::Failed(reason)
            | StartFailure::TooSlow(reason)
            | StartFailure::NotMade(reason) => {
                self.reject(Regression::DoesNotStart { reason }, at);
            }
        }
    }

    /// An instance of a version started.
    pub fn started(&mut self, digest: &PluginDigest) {
        self.last_started = Some(digest.clone());
        if let Some(active) = self.active_of(digest) {
            active.has_started = true;
            active.failed_restarts = None;
        }
    }

    /// An instance of a version could not be made on a shard.
    pub fn did_not_start(
        &mut self,
        site: &Site,
        digest: &PluginDigest,
        failure: StartFailure,
        at: At,
    ) {
        if self.is_candidate(digest) {
            return self.candidate_did_not_start(failure, at);
        }
        if self.active() != Some(digest) {
            // The previous version cannot show what caused it.
            return self.abandon(site);
        }
        if self.gives_way(&failure, at) {
            return;
        }
        let Some(active) = &mut self.active else {
            return;
        };
        match failure {
            StartFailure::Failed(reason) if active.probation.is_some() => {
                self.reject_active(Regression::DoesNotStart { reason }, at);
            }
            // The shard goes on with what it has, if it has any, and tries again.
            StartFailure::TooSlow(_) | StartFailure::NotMade(_) if active.probation.is_some() => {}
            StartFailure::Failed(reason)
            | StartFailure::TooSlow(reason)
            | StartFailure::NotMade(reason) => {
                active.died(reason);
            }
        }
    }

    /// The host could not do its part in a call of this version: the time of its trial starts
    /// again.
    pub(crate) fn hindered(&mut self, digest: &PluginDigest, at: At) {
        if let Some(candidate) = self.candidate_of(digest) {
            candidate.tried_since = at.now;
        }
    }

    /// A version could not save its state. Returns whether it is rolled back for that. Then its
    /// instance is dropped with what was not saved, and the version before starts from the
    /// checkpoint.
    pub fn did_not_save(&mut self, digest: &PluginDigest, reason: String, at: At) -> bool {
        self.did_not_work(digest, Regression::DoesNotSave { reason }, at)
    }

    /// A version failed when it was called because time had passed. Returns whether it is rolled
    /// back for that, as after [`Rollout::did_not_save`].
    pub fn did_not_tick(&mut self, digest: &PluginDigest, reason: String, at: At) -> bool {
        self.did_not_work(digest, Regression::DoesNotTick { reason }, at)
    }

    /// A version failed at something that no record has a part in: at once on trial, and a few
    /// times on probation.
    fn did_not_work(&mut self, digest: &PluginDigest, regression: Regression, at: At) -> bool {
        if self.is_candidate(digest) {
            self.reject(regression, at);
            return true;
        }
        let active = self.active_of(digest);
        let Some(probation) = active.and_then(|active| active.probation.as_mut()) else {
            return false;
        };
        probation.strikes += 1;
        let is_out = probation.strikes >= PROBATION_STRIKES;
        if is_out {
            self.reject_active(regression, at);
        }
        is_out
    }

    /// A version handled a batch.
    pub(crate) fn handled(&mut self, digest: &PluginDigest, sample: Sample, at: At) {
        if let Some(candidate) = self.candidate_of(digest) {
            candidate.track.handled(sample);
            self.judge_candidate(at);
        } else if let Some(active) = self.active_of(digest) {
            active.track.handled(sample);
            active.deaths = 0;
            active.trouble = None;
        }
    }

    /// A version failed on a shard. It is held against the records only where no other version
    /// could do better.
    pub(crate) fn failed(&mut self, site: &Site, digest: &PluginDigest, fault: Fault) -> Blamed {
        if self.is_candidate(digest) {
            return self.candidate_failed(site, fault);
        }
        match &self.active {
            Some(active) if active.digest == *digest => self.active_failed(site, fault),
            // Where versions are not tried, each failure counts, as on any other host.
            Some(active) if self.policy.enabled && !active.is_judged_by(digest, site) => {
                Blamed::Nothing {
                    instead: active.digest.clone(),
                }
            }
            Some(_) | None => Blamed::Records,
        }
    }

    fn candidate_failed(&mut self, site: &Site, fault: Fault) -> Blamed {
        let Some(candidate) = &mut self.candidate else {
            return Blamed::Records;
        };
        let reason = fault.reason.clone();
        candidate.track.failed(fault.kind);
        candidate.goes_on(Event::Failed { on: site, fault });
        let digest = candidate.digest.clone();
        self.change(Change::Suspected(digest, site.clone(), reason));
        match &self.active {
            Some(active) => Blamed::Version {
                judge: active.proven().clone(),
            },
            None => Blamed::Records,
        }
    }

    fn active_failed(&mut self, site: &Site, fault: Fault) -> Blamed {
        let Some(active) = &mut self.active else {
            return Blamed::Records;
        };
        active.track.failed(fault.kind);
        let Some(probation) = &mut active.probation else {
            if fault.is_deadly {
                active.died(fault.reason);
            }
            return Blamed::Records;
        };
        let judge = probation.last_good.clone();
        let reason = fault.reason.clone();
        probation.verifying.insert(site.clone(), Some(fault));
        let digest = active.digest.clone();
        self.change(Change::Suspected(digest, site.clone(), reason));
        Blamed::Version { judge }
    }

    /// Counts a failure that need not be verified, since the version before failed on these records
    /// too.
    pub(crate) fn failed_again(&mut self, digest: &PluginDigest, fault: Fault) {
        if let Some(active) = self.active_of(digest) {
            active.track.failed(fault.kind);
            if fault.is_deadly {
                active.died(fault.reason);
            }
        }
    }

    /// The version before got what the newer one failed on: whether it handled it.
    pub(crate) fn verified(&mut self, site: &Site, is_handled: bool, at: At) {
        let phase = self.candidate.as_ref().map(|candidate| &candidate.phase);
        match phase {
            Some(Phase::Verifying {
                site: claimed,
                fault,
            }) if claimed == site => {
                if is_handled {
                    let regression = fault.clone().held_against_version(1);
                    self.reject(regression, at);
                } else {
                    self.clear_candidate(site);
                }
            }
            _ => self.active_verified(site, is_handled, at),
        }
    }

    /// The version before failed too, and keeps the shard until it is done with the records.
    fn clear_candidate(&mut self, site: &Site) {
        let Some(candidate) = &mut self.candidate else {
            return;
        };
        candidate.goes_on(Event::BeforeFailedToo { on: site });
        let digest = candidate.digest.clone();
        if let Some(probation) = self.probation_mut() {
            probation.verifying.insert(site.clone(), None);
        }
        self.change(Change::Cleared(digest, site.clone()));
    }

    fn active_verified(&mut self, site: &Site, is_handled: bool, at: At) {
        let Some(active) = &mut self.active else {
            return;
        };
        let digest = active.digest.clone();
        let Some(probation) = &mut active.probation else {
            return;
        };
        let Some(fault) = probation.verifying.get_mut(site).and_then(Option::take) else {
            return;
        };
        if !is_handled {
            return self.change(Change::Cleared(digest, site.clone()));
        }
        probation.verifying.remove(site);
        probation.strikes += 1;
        let strikes = probation.strikes;
        if strikes >= PROBATION_STRIKES {
            return self.reject_active(fault.held_against_version(strikes), at);
        }
        self.revision += 1;
    }

    /// The records that failed through their own fault on a shard are settled: it runs what the
    /// others run again.
    pub fn settled(&mut self, site: &Site) {
        if let Some(probation) = self.probation_mut()
            && probation.verifying.get(site) == Some(&None)
        {
            probation.verifying.remove(site);
            self.revision += 1;
        }
    }

    fn judge_candidate(&mut self, at: At) {
        let (Some(active), Some(candidate)) = (&self.active, &self.candidate) else {
            return;
        };
        if !matches!(candidate.phase, Phase::Canary { .. }) {
            return;
        }
        let tried_for = at.now.since(candidate.tried_since);
        match judge_trial(&active.track, &candidate.track, &self.policy, tried_for) {
            Judgement::Continue => {}
            Judgement::Promote(passed) => self.promote(passed, at),
            Judgement::RollBack(regression) => self.reject(regression, at),
        }
    }

    fn promote(&mut self, passed: Passed, at: At) {
        let (Some(candidate), Some(before)) = (self.candidate.take(), self.active.take()) else {
            return;
        };
        let digest = candidate.digest;
        self.activate(digest.clone(), Some(before.proven().clone()), at);
        if let Some(active) = &mut self.active {
            // The probe started, at least.
            active.has_started = true;
            active.track = candidate.track;
        }
        self.change(Change::Promoted(digest, passed));
    }

    /// Quarantines the version on trial, or else the one in probation.
    fn reject(&mut self, regression: Regression, at: At) {
        let Some(candidate) = self.candidate.take() else {
            return self.reject_active(regression, at);
        };
        self.quarantine_for(candidate.digest, regression, at);
    }

    fn reject_active(&mut self, regression: Regression, at: At) {
        let Some(active) = self.active.take() else {
            return;
        };
        let Some(probation) = &active.probation else {
            return self.active = Some(active);
        };
        self.go_back(probation.last_good.clone(), at);
        self.quarantine_for(active.digest, regression, at);
    }

    /// The version that worked before the one at work, or that runs where that one has not started.
    pub(super) fn last_good(&self) -> Option<PluginDigest> {
        let active = self.active.as_ref()?;
        let before = active
            .probation
            .as_ref()
            .map(|probation| &probation.last_good);
        if before.is_none() && !active.has_started {
            return self.last_started.clone();
        }
        before.cloned()
    }

    /// Returns to a version that worked: the next one is tried against it.
    pub(super) fn go_back(&mut self, last_good: PluginDigest, at: At) {
        self.activate(last_good, None, at);
        if let Some(back) = &mut self.active {
            back.has_started = true;
        }
    }

    fn quarantine_for(&mut self, digest: PluginDigest, regression: Regression, at: At) {
        self.quarantine.add(Quarantined {
            digest: digest.clone(),
            host: self.host.clone(),
            reason: regression.to_string(),
            at_ms: at.wall_ms,
        });
        self.change(Change::RolledBack(digest, regression));
    }

    /// Adds what another host quarantined, or this one before a restart.
    pub fn learn(&mut self, entry: &Quarantined, at: At) {
        let is_over = entry.is_expired(at.wall_ms, self.policy.quarantine_for);
        let is_heeded = self.policy.enabled || entry.is_deadly();
        if !is_heeded || is_over || self.quarantine.get(&entry.digest).is_some() {
            return;
        }
        self.quarantine.add(entry.clone());
        if self.is_candidate(&entry.digest) {
            self.withdraw();
        }
        let active = self.active_of(&entry.digest);
        if let Some(probation) = active.and_then(|active| active.probation.as_ref()) {
            let last_good = probation.last_good.clone();
            self.go_back(last_good, at);
            self.change(Change::Withdrawn(entry.digest.clone()));
        }
    }

    /// Releases a version from quarantine.
    pub fn release(&mut self, digest: &PluginDigest) {
        self.releases += 1;
        if self.quarantine.release(digest) {
            self.change(Change::Released(digest.clone()));
        }
    }
}

impl Probation {
    /// Also needs batches: time alone proves nothing of a version that got no records.
    fn is_over(&self, at: At) -> bool {
        self.until <= at.now && self.verifying.is_empty()
    }
}

impl Active {
    /// The version to go back to from one that follows this one.
    pub(super) fn proven(&self) -> &PluginDigest {
        self.probation
            .as_ref()
            .map_or(&self.digest, |probation| &probation.last_good)
    }

    /// Whether `digest` gets the batches of the shard on which this version failed.
    fn is_judged_by(&self, digest: &PluginDigest, site: &Site) -> bool {
        self.probation.as_ref().is_some_and(|probation| {
            probation.last_good == *digest && probation.verifying.contains_key(site)
        })
    }

    fn died(&mut self, reason: String) {
        self.deaths = self.deaths.saturating_add(1);
        if self.deaths >= LOOP_DEATHS {
            self.trouble = Some(reason);
        }
    }
}

impl Fault {
    /// The version before handled the records: `times` is how often that happened.
    fn held_against_version(self, times: u32) -> Regression {
        Regression::Fails {
            kind: self.kind,
            reason: self.reason,
            times,
        }
    }
}
