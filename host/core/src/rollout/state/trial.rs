//! What the trial of a version finds, and what follows.

use std::time::Duration;

use super::{
    Active, At, Blamed, Candidate, Change, Fault, Phase, Probation, Rollout, Site, StartFailure,
    probing,
};
use crate::plugin::PluginDigest;
use crate::rollout::judge::{Judgement, Passed, Regression, judge_trial};
use crate::rollout::policy::PROBATION_STRIKES;
use crate::rollout::quarantine::Quarantined;
use crate::rollout::track::Sample;

/// Deaths in a row from which on a version is said to loop: one or two are mended by the next
/// instance.
const LOOP_DEATHS: u32 = 3;
/// How long to wait before an instance that could not be made is made again: what is missing
/// (memory of the host, a permission) comes back by itself, or by somebody's hand.
pub const START_AGAIN_AFTER: Duration = Duration::from_secs(5);
/// Instances of a version that are not made in time before that is held against it: a host that
/// catches up on all its shards has been seen to take five times as long for one.
const SLOW_STARTS_MAX: u32 = 3;

impl Rollout {
    /// Lets time have its say.
    pub fn tick(&mut self, at: At) {
        self.quarantine
            .expire(at.wall_ms, self.policy.quarantine_for);
        if let Some(candidate) = &mut self.candidate
            && candidate.phase == Phase::Waiting
            && at.now.since(candidate.offered_at) >= self.policy.share_wait
        {
            candidate.phase = probing(at.now, None);
            self.revision += 1;
        }
        self.judge_candidate(at);
        let batches = self.policy.canary_batches;
        if let Some(active) = &mut self.active
            && active.track.batches >= batches
            && active
                .probation
                .as_ref()
                .is_some_and(|probation| probation.is_over(at))
        {
            active.probation = None;
            active.since_ms = at.wall_ms;
            let digest = active.digest.clone();
            self.change(Change::Proven(digest));
        }
    }

    /// It is this host's turn to try the version.
    pub fn let_start(&mut self, digest: &PluginDigest, at: At) {
        if let Some(candidate) = self
            .candidate
            .as_mut()
            .filter(|candidate| candidate.digest == *digest)
            && candidate.phase == Phase::Waiting
        {
            candidate.phase = probing(at.now, None);
            self.revision += 1;
        }
    }

    /// How the probe ended.
    pub fn probed(&mut self, digest: &PluginDigest, result: Result<(), StartFailure>, at: At) {
        let Some(candidate) = self
            .candidate
            .as_mut()
            .filter(|candidate| candidate.digest == *digest)
        else {
            return;
        };
        match result {
            Ok(()) => {
                candidate.phase = Phase::Canary { site: None };
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
                candidate.phase = probing(at.now + START_AGAIN_AFTER, Some(reason));
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
        if let Some(active) = self
            .active
            .as_mut()
            .filter(|active| active.digest == *digest)
        {
            active.has_started = true;
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
        if self
            .candidate
            .as_ref()
            .is_some_and(|candidate| candidate.digest == *digest)
        {
            return self.candidate_did_not_start(failure, at);
        }
        let Some(active) = &mut self.active else {
            return;
        };
        if active.digest != *digest {
            // The version before cannot tell whose fault it was.
            return self.abandon(site);
        }
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
    pub fn hindered(&mut self, digest: &PluginDigest, at: At) {
        if let Some(candidate) = self
            .candidate
            .as_mut()
            .filter(|candidate| candidate.digest == *digest)
        {
            candidate.tried_since = at.now;
        }
    }

    /// A version could not save its state. Whether it is rolled back for that: its instance goes,
    /// and with it what was not saved, so that the version before starts from the checkpoint.
    pub fn did_not_save(&mut self, digest: &PluginDigest, reason: String, at: At) -> bool {
        if self
            .candidate
            .as_ref()
            .is_some_and(|candidate| candidate.digest == *digest)
        {
            self.reject(Regression::DoesNotSave { reason }, at);
            return true;
        }
        let Some(active) = self
            .active
            .as_mut()
            .filter(|active| active.digest == *digest)
        else {
            return false;
        };
        let Some(probation) = &mut active.probation else {
            return false;
        };
        probation.strikes += 1;
        let is_out = probation.strikes >= PROBATION_STRIKES;
        if is_out {
            self.reject_active(Regression::DoesNotSave { reason }, at);
        }
        is_out
    }

    /// A version handled a batch.
    pub fn handled(&mut self, digest: &PluginDigest, sample: Sample, at: At) {
        if let Some(candidate) = self
            .candidate
            .as_mut()
            .filter(|candidate| candidate.digest == *digest)
        {
            candidate.track.handled(sample);
            self.judge_candidate(at);
        } else if let Some(active) = self
            .active
            .as_mut()
            .filter(|active| active.digest == *digest)
        {
            active.track.handled(sample);
            (active.deaths, active.trouble) = (0, None);
        }
    }

    /// A version failed on a shard. What it failed on is the records' fault only where no other
    /// version could do better.
    pub fn failed(&mut self, site: &Site, digest: &PluginDigest, fault: Fault) -> Blamed {
        if let Some(candidate) = self
            .candidate
            .as_mut()
            .filter(|candidate| candidate.digest == *digest)
        {
            candidate.track.failed(fault.kind);
            let reason = fault.reason.clone();
            candidate.phase = Phase::Verifying {
                site: site.clone(),
                fault,
            };
            self.change(Change::Suspected(digest.clone(), site.clone(), reason));
            return self
                .active
                .as_ref()
                .map_or(Blamed::Records, |active| Blamed::Version {
                    judge: active.proven().clone(),
                });
        }
        let Some(active) = &mut self.active else {
            return Blamed::Records;
        };
        if active.digest != *digest {
            let is_judge = active.probation.as_ref().is_some_and(|probation| {
                probation.last_good == *digest && probation.verifying.contains_key(site)
            });
            // Where versions are not tried, each failure counts, as on any other host.
            let is_records = is_judge || !self.policy.enabled;
            return if is_records {
                Blamed::Records
            } else {
                Blamed::Nothing {
                    instead: active.digest.clone(),
                }
            };
        }
        active.track.failed(fault.kind);
        if let Some(probation) = &mut active.probation {
            let (reason, judge) = (fault.reason.clone(), probation.last_good.clone());
            probation.verifying.insert(site.clone(), Some(fault));
            self.change(Change::Suspected(digest.clone(), site.clone(), reason));
            return Blamed::Version { judge };
        }
        if fault.is_deadly {
            active.died(fault.reason);
        }
        Blamed::Records
    }

    /// Takes in a failure that is not to be verified, since the version before failed on these
    /// records too.
    pub fn failed_again(&mut self, digest: &PluginDigest, fault: Fault) {
        if let Some(active) = self
            .active
            .as_mut()
            .filter(|active| active.digest == *digest)
        {
            active.track.failed(fault.kind);
            if fault.is_deadly {
                active.died(fault.reason);
            }
        }
    }

    /// The version before got what the newer one failed on: whether it handled it.
    pub fn verified(&mut self, site: &Site, is_handled: bool, at: At) {
        if let Some(Candidate { digest, phase, .. }) = &mut self.candidate
            && let Phase::Verifying {
                site: claimed,
                fault,
            } = &*phase
            && claimed == site
        {
            if is_handled {
                let (kind, reason) = (fault.kind, fault.reason.clone());
                return self.reject(
                    Regression::Fails {
                        kind,
                        reason,
                        times: 1,
                    },
                    at,
                );
            }
            let digest = digest.clone();
            *phase = Phase::Canary { site: None };
            if let Some(probation) = self
                .active
                .as_mut()
                .and_then(|active| active.probation.as_mut())
            {
                // The version that judged deals with them.
                probation.verifying.insert(site.clone(), None);
            }
            return self.change(Change::Cleared(digest, site.clone()));
        }
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
        if probation.strikes >= PROBATION_STRIKES {
            let Fault { kind, reason, .. } = fault;
            let times = probation.strikes;
            return self.reject_active(
                Regression::Fails {
                    kind,
                    reason,
                    times,
                },
                at,
            );
        }
        self.revision += 1;
    }

    /// The records that were failed by their own fault on a shard are settled: it runs what the
    /// others run again.
    pub fn settled(&mut self, site: &Site) {
        let probation = self
            .active
            .as_mut()
            .and_then(|active| active.probation.as_mut());
        if let Some(probation) = probation
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

    /// Quarantines the version under trial, or else the one in probation.
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
        let stand_in = self.last_started.as_ref().filter(|_| !active.has_started);
        before.or(stand_in).cloned()
    }

    /// To a version that worked: the next one is tried against it.
    pub(super) fn go_back(&mut self, last_good: PluginDigest, at: At) {
        self.activate(last_good, None, at);
        if let Some(back) = &mut self.active {
            back.has_started = true;
        }
    }

    fn quarantine_for(&mut self, digest: PluginDigest, regression: Regression, at: At) {
        let (host, reason) = (self.host.clone(), regression.to_string());
        self.quarantine.add(Quarantined {
            digest: digest.clone(),
            host,
            reason,
            at_ms: at.wall_ms,
        });
        self.change(Change::RolledBack(digest, regression));
    }

    /// Takes in what another host quarantined, or this one before a restart.
    pub fn learn(&mut self, entry: &Quarantined, at: At) {
        let is_over = entry.is_expired(at.wall_ms, self.policy.quarantine_for);
        let is_heeded = self.policy.enabled || entry.is_deadly();
        if !is_heeded || is_over || self.quarantine.get(&entry.digest).is_some() {
            return;
        }
        self.quarantine.add(entry.clone());
        if self
            .candidate
            .as_ref()
            .is_some_and(|candidate| candidate.digest == entry.digest)
        {
            self.withdraw();
        }
        let active = self
            .active
            .as_ref()
            .filter(|active| active.digest == entry.digest);
        if let Some(probation) = active.and_then(|active| active.probation.as_ref()) {
            let (last_good, digest) = (probation.last_good.clone(), entry.digest.clone());
            self.go_back(last_good, at);
            self.change(Change::Withdrawn(digest));
        }
    }

    /// Lets a version out of quarantine.
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

    fn died(&mut self, reason: String) {
        self.deaths = self.deaths.saturating_add(1);
        if self.deaths >= LOOP_DEATHS {
            self.trouble = Some(reason);
        }
    }
}
