//! One shard's part in the trial of a version: a failure counts against a record only after the
//! previous version has failed on it too.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{At, Blamed, Fault, Rollout, START_AGAIN_AFTER, Sample, Site, StartFailure};
use crate::pipeline::{Blame, Failure, Retries, Verdict};
use crate::plugin::PluginDigest;
use crate::seeded_bug::SeededBug;
use crate::stream::{Position, Record};
use crate::time::Moment;

/// How many failures a shard that cannot go back to the previous version ignores. 3: the cause may
/// pass, but records must not wait for that for ever.
const STAYS_MAX: u32 = 3;

/// What a shard knows of trials.
#[derive(Debug)]
pub struct ShardTrial {
    site: Site,
    /// What a version failed on, until the one before it has tried.
    suspects: Option<Suspects>,
    /// Records that the version before failed on too: they are held against no version until they
    /// are settled.
    excused: BTreeSet<Position>,
    /// The shard takes no part in trials any more.
    sits_out: bool,
    /// A version that did not start here; not made again until another has taken over, it is
    /// released, or its time has come.
    refused: Option<Refused>,
    /// Times in a row that the shard could not go back to the version before.
    stays: u32,
    /// The version that failed attempts were counted for.
    charged: Option<PluginDigest>,
}

/// A delivery, as a trial sees it.
#[derive(Debug)]
pub struct Attempt<'a> {
    /// The version that got the records.
    pub digest: &'a PluginDigest,
    /// The records of the delivery, in shard order.
    pub records: &'a [Record],
    /// What became of them.
    pub verdict: &'a Verdict,
    /// How long the call took.
    pub took: Duration,
    /// What the instance holds of memory now, if that is known.
    pub memory_bytes: Option<u64>,
    /// Whether the call cost the instance.
    pub is_deadly: bool,
    /// Whether another call of the version was held against it while this one was under way: then
    /// this one says nothing more of it.
    pub is_overtaken: bool,
}

/// What a trial makes of a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// What the failure counts against.
    pub held_against: HeldAgainst,
    /// Whether the instance must end: whatever it made of these records must reach neither its
    /// state nor what it would emit at the end.
    pub ends_instance: bool,
}

/// What a failure counts against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeldAgainst {
    /// All records that failed, as judged.
    Records,
    /// Only those on which the previous version failed too. Because they were in the batch, it is
    /// unknown whether this version could handle the others: these are delivered again, and count
    /// once they are delivered separately.
    Only(BTreeSet<Position>),
    /// No record: the version before gets them.
    Nothing,
}

#[derive(Debug)]
struct Suspects {
    failed_by: PluginDigest,
    /// The version that shows whose fault it was.
    judge: PluginDigest,
    positions: BTreeSet<Position>,
}

#[derive(Debug)]
struct Refused {
    digest: PluginDigest,
    /// What the rollout's count of releases was.
    releases: u64,
    /// When it is tried again without a release, if what it lacked may be there then.
    again_at: Option<Moment>,
}

impl ShardTrial {
    /// The shard at `site` has seen no trial yet.
    pub fn new(site: Site) -> Self {
        Self {
            site,
            suspects: None,
            excused: BTreeSet::new(),
            sits_out: false,
            refused: None,
            stays: 0,
            charged: None,
        }
    }

    /// The plugin and the shard that this is about.
    pub fn site(&self) -> &Site {
        &self.site
    }

    /// Takes in that the version did not start here. Whether that is news.
    pub fn refuse(
        &mut self,
        rollout: &Rollout,
        digest: &PluginDigest,
        failure: &StartFailure,
        now: Moment,
    ) -> bool {
        let may_pass = !matches!(failure, StartFailure::Failed(_));
        let refused = Refused {
            digest: digest.clone(),
            releases: rollout.releases(),
            again_at: may_pass.then(|| now + START_AGAIN_AFTER),
        };
        let before = self.refused.replace(refused);
        before.is_none_or(|before| before.digest != *digest)
    }

    /// Whether the version did not start here, and is not to be tried again yet.
    pub fn has_refused(&self, rollout: &Rollout, digest: &PluginDigest, now: Moment) -> bool {
        self.refused.as_ref().is_some_and(|refused| {
            refused.digest == *digest
                && refused.again_at.is_none_or(|at| now < at)
                && refused.releases == rollout.releases()
        })
    }

    /// Another version has taken over: what was refused before may be tried again if it is offered
    /// again.
    pub fn forget_refusal(&mut self) {
        self.refused = None;
    }

    /// Whether this is the first time that attempts are counted for this version, which is the
    /// active one.
    pub fn charge(&mut self, digest: &PluginDigest) -> bool {
        let is_new = self.charged.as_ref() != Some(digest);
        self.charged = Some(digest.clone());
        is_new
    }

    /// Whether this shard can show anything of a version: it has something to deliver (`retries`,
    /// of each strand, show what failed, `has_records` whether there is more), and no records that
    /// failed by their own fault.
    pub fn may_try<'a>(
        &mut self,
        rollout: &mut Rollout,
        mut retries: impl Iterator<Item = &'a Retries> + Clone,
        has_records: bool,
    ) -> bool {
        self.forget_excused(rollout, &retries);
        // Records that wait for their next try are tried at once by another version.
        let is_failing = |one: &Retries| !one.is_clear() || one.halted().is_some();
        let has_records = has_records || retries.any(is_failing);
        // What one version failed on is for the version before it to try, not for a third.
        let is_out = self.sits_out || !self.excused.is_empty() || self.suspects.is_some();
        has_records && !is_out
    }

    fn forget_excused<'a>(
        &mut self,
        rollout: &mut Rollout,
        retries: &(impl Iterator<Item = &'a Retries> + Clone),
    ) {
        if self.excused.is_empty() {
            return;
        }
        let has_failed = |at: &Position| retries.clone().any(|one| one.has_failed(at));
        self.excused.retain(has_failed);
        if self.excused.is_empty() {
            rollout.settled(&self.site);
        }
    }

    /// What the shard found out shows nothing: another one goes on with the trial.
    pub fn leave(&mut self, rollout: &mut Rollout) {
        self.sits_out = true;
        self.suspects = None;
        rollout.abandon(&self.site);
    }

    /// Takes in how a delivery went. If it failed and that is to be verified, the instance ends.
    pub fn report(&mut self, rollout: &mut Rollout, attempt: &Attempt<'_>, at: At) -> Report {
        let failure = attempt.verdict.failure.as_ref();
        if attempt.is_overtaken {
            return Report::of_overtaken(attempt.verdict);
        }
        if failure.is_some_and(|failure| failure.of == Blame::Host) {
            rollout.hindered(attempt.digest, at);
            return Report::of(HeldAgainst::Records);
        }
        let blamed = attempt.blamed();
        self.verify(rollout, attempt, &blamed, at);
        if let Some(failure) = failure {
            return self.report_failure(rollout, attempt, failure, blamed, at);
        }
        let sample = Sample {
            records: attempt.records.len() as u64,
            took: attempt.took,
            memory_bytes: attempt.memory_bytes,
        };
        rollout.handled(attempt.digest, sample, at);
        Report::of(HeldAgainst::Records)
    }

    fn report_failure(
        &mut self,
        rollout: &mut Rollout,
        attempt: &Attempt<'_>,
        failure: &Failure,
        mut blamed: BTreeSet<Position>,
        at: At,
    ) -> Report {
        let fault = Fault {
            kind: failure.kind,
            reason: failure.reason.clone(),
            is_deadly: attempt.is_deadly,
        };
        let is_excused = self.excuses(failure, &blamed);
        if is_excused || self.suspects.is_some() || self.sits_out {
            rollout.failed_again(attempt.digest, fault);
            return Report::of(self.held_against(&blamed, is_excused));
        }
        match rollout.failed(&self.site, attempt.digest, fault) {
            Blamed::Records => return Report::of(HeldAgainst::Records),
            // It replaces a version that does not start here: no other could do better.
            Blamed::Nothing { instead } if self.has_refused(rollout, &instead, at.now) => {
                return Report::of(HeldAgainst::Records);
            }
            Blamed::Nothing { .. } => {}
            Blamed::Version { judge } => {
                blamed.retain(|position| !self.excused.contains(position));
                self.suspects = Some(Suspects {
                    failed_by: attempt.digest.clone(),
                    judge,
                    positions: blamed,
                });
            }
        }
        Report::of_suspected()
    }

    /// What of a failure that shows nothing of the version counts against the records.
    fn held_against(&self, blamed: &BTreeSet<Position>, is_excused: bool) -> HeldAgainst {
        let is_mixed = is_excused && !blamed.is_subset(&self.excused);
        if is_mixed {
            HeldAgainst::Only(self.excused.clone())
        } else {
            HeldAgainst::Records
        }
    }

    /// Whether records on which the version before failed too may explain the failure.
    fn excuses(&self, failure: &Failure, blamed: &BTreeSet<Position>) -> bool {
        match failure.of {
            // It is unknown which record caused it: it may be one of these.
            Blame::Batch | Blame::Surroundings => !blamed.is_disjoint(&self.excused),
            Blame::Records | Blame::Host => blamed.is_subset(&self.excused),
        }
    }

    /// If this delivery was to the version before the one that failed, it shows whose fault that
    /// was.
    fn verify(
        &mut self,
        rollout: &mut Rollout,
        attempt: &Attempt<'_>,
        blamed: &BTreeSet<Position>,
        at: At,
    ) {
        let Some(mut suspects) = self.suspects.take() else {
            return;
        };
        if suspects.judge != *attempt.digest {
            return self.stay(rollout, suspects.failed_by == *attempt.digest);
        }
        self.stays = 0;
        if !suspects.positions.is_disjoint(blamed) {
            let failed_again = suspects.positions.intersection(blamed).cloned();
            self.excused.extend(failed_again);
            return rollout.verified(&self.site, false, at);
        }
        for record in attempt.records {
            suspects.positions.remove(&record.position);
        }
        if suspects.positions.is_empty() {
            rollout.verified(&self.site, true, at);
        } else {
            self.suspects = Some(suspects);
        }
    }

    /// The shard could not go back to the version before, or there is another by now: what it saw
    /// shows nothing.
    fn stay(&mut self, rollout: &mut Rollout, is_same_version: bool) {
        self.stays += u32::from(is_same_version);
        if self.stays < STAYS_MAX {
            rollout.abandon(&self.site);
        } else {
            // Only this version can serve the shard, say because it wrote the state. So the failure
            // policy holds.
            self.leave(rollout);
        }
    }
}

impl Attempt<'_> {
    /// The records that a failure may be of.
    fn blamed(&self) -> BTreeSet<Position> {
        let failure = self.verdict.failure.as_ref();
        match failure.map(|failure| failure.of) {
            None | Some(Blame::Host) => BTreeSet::new(),
            Some(Blame::Batch | Blame::Surroundings) => {
                let all = self.records.iter();
                all.map(|record| record.position.clone()).collect()
            }
            Some(Blame::Records) => {
                let rulings = self.verdict.rulings.iter();
                rulings
                    .map(|ruling| self.records[ruling.index].position.clone())
                    .collect()
            }
        }
    }
}

impl Report {
    /// What the version failed on goes to the version before, as what it failed on first does.
    fn of_overtaken(verdict: &Verdict) -> Self {
        if verdict.is_clean() {
            return Self::of(HeldAgainst::Records);
        }
        Self {
            held_against: HeldAgainst::Nothing,
            ends_instance: true,
        }
    }

    /// The version may be at fault, and not what it failed on.
    fn of_suspected() -> Self {
        Self {
            held_against: if SeededBug::TrialChargesRecords.is_on() {
                HeldAgainst::Records
            } else {
                HeldAgainst::Nothing
            },
            ends_instance: true,
        }
    }

    fn of(held_against: HeldAgainst) -> Self {
        Self {
            held_against,
            ends_instance: false,
        }
    }
}

#[cfg(test)]
mod tests;
