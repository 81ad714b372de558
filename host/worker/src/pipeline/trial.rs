//! One shard's part in the trial of a version: what the version fails on is no record's fault until
//! the one before it has failed on it too.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use shardmill_core::pipeline::{Blame, Failure, Verdict};
use shardmill_core::plugin::{PluginDigest, ProcessorError};
use shardmill_core::ports::ProcessorFactory;
use shardmill_core::rollout::{At, Blamed, Fault, START_AGAIN_AFTER, Sample, Site, StartFailure};
use shardmill_core::seeded_bug::SeededBug;
use shardmill_core::stream::{Position, Record};
use shardmill_core::time::Moment;

use super::consumer::{Consumer, ConsumerPorts};
use crate::rollout::RolloutView;

/// How often a shard that cannot go back to the version before may say nothing of a failure. 3:
/// what is missing for that may come back, and records must not wait for it for ever.
const STAYS_MAX: u32 = 3;

/// What a consumer knows of trials on its shard. Leaves the rollout when dropped.
pub(super) struct Trial {
    rollout: RolloutView,
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

/// What a failure counts against.
pub(super) enum HeldAgainst {
    /// All records that failed, as judged.
    Records,
    /// Those of them on which the version before failed too. They were in the batch, so that nobody
    /// knows whether this version could handle the others: these go again, and count once they are
    /// apart.
    Only(BTreeSet<Position>),
    /// No record: the version before gets them.
    Nothing,
}

struct Suspects {
    failed_by: PluginDigest,
    /// Who shows whose fault it was.
    judge: PluginDigest,
    positions: BTreeSet<Position>,
}

struct Refused {
    digest: PluginDigest,
    /// What the rollout's count of releases was.
    releases: u64,
    /// When it is tried again without one, if what it lacked may be there then.
    again_at: Option<Moment>,
}

impl Trial {
    pub(super) fn new(rollout: RolloutView, site: Site) -> Self {
        Self {
            rollout,
            site,
            suspects: None,
            excused: BTreeSet::new(),
            sits_out: false,
            refused: None,
            stays: 0,
            charged: None,
        }
    }

    pub(super) fn site(&self) -> &Site {
        &self.site
    }

    /// The version did not start here. Whether that is news.
    pub(super) fn refuse(
        &mut self,
        digest: &PluginDigest,
        failure: &StartFailure,
        now: Moment,
    ) -> bool {
        let may_pass = !matches!(failure, StartFailure::Failed(_));
        let again_at = may_pass.then(|| now + START_AGAIN_AFTER);
        let releases = self.rollout.tell(|rollout| rollout.releases());
        let refused = Refused {
            digest: digest.clone(),
            releases,
            again_at,
        };
        self.refused
            .replace(refused)
            .is_none_or(|before| before.digest != *digest)
    }

    /// Whether the version did not start here, and is not to be tried again yet.
    pub(super) fn has_refused(&self, digest: &PluginDigest, now: Moment) -> bool {
        self.refused.as_ref().is_some_and(|refused| {
            refused.digest == *digest
                && refused.again_at.is_none_or(|at| now < at)
                && refused.releases == self.rollout.tell(|rollout| rollout.releases())
        })
    }

    /// Another version has taken over: what was refused before may be tried again if it is offered
    /// again.
    pub(super) fn forget_refusal(&mut self) {
        self.refused = None;
    }

    /// Whether this is the first time that attempts are counted for this version, which is the
    /// active one.
    pub(super) fn charge(&mut self, digest: &PluginDigest) -> bool {
        let is_new = self.charged.as_ref() != Some(digest);
        self.charged = Some(digest.clone());
        is_new
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        self.rollout.tell(|rollout| rollout.leave(&self.site));
    }
}

impl ConsumerPorts {
    /// Returns once another version is on offer, or it may be this shard's turn to run another.
    /// Cancel-safe.
    pub(super) async fn version_news(&mut self) {
        tokio::select! {
            Ok(()) = self.versions.changed() => {}
            () = self.rollout.changed() => {}
        }
    }
}

impl Consumer {
    pub(super) fn at(&self) -> At {
        At {
            now: self.ports.clock.now(),
            wall_ms: self.ports.clock.wall_ms(),
        }
    }

    /// Whether this shard can tell anything of a version: it has something to deliver, and no
    /// records that failed by their own fault.
    pub(super) fn may_try(&mut self) -> bool {
        if !self.trial.excused.is_empty() {
            let retries = &self.retries;
            self.trial
                .excused
                .retain(|position| retries.has_failed(position));
            if self.trial.excused.is_empty() {
                self.ports
                    .rollout
                    .tell(|rollout| rollout.settled(&self.trial.site));
            }
        }
        // Records that wait for their next try are tried at once by another version.
        let has_records = !self.retries.is_clear()
            || self.buffer.has_again()
            || self.buffer.is_batch_due(&self.options.batches);
        // What one version failed on is for the version before it to try, not for a third.
        let is_out =
            self.trial.sits_out || !self.trial.excused.is_empty() || self.trial.suspects.is_some();
        !is_out && (has_records || self.retries.halted().is_some())
    }

    /// What the shard found out tells nothing: another one goes on with the trial.
    pub(super) fn leave_trial(&mut self) {
        self.trial.sits_out = true;
        self.trial.suspects = None;
        self.ports
            .rollout
            .tell(|rollout| rollout.abandon(&self.trial.site));
    }

    /// Tells how a delivery to the live version went, and what its failure is held against. If that
    /// is to be verified, the instance is gone.
    pub(super) fn report_to_rollout(
        &mut self,
        records: &[Record],
        verdict: &Verdict,
        took: Duration,
    ) -> HeldAgainst {
        let (digest, at) = (self.instance.digest().clone(), self.at());
        let failure = verdict.failure.as_ref();
        if failure.is_some_and(|failure| failure.of == Blame::Host) {
            let rollout = &self.ports.rollout;
            rollout.tell(|rollout| rollout.hindered(&digest, at));
            return HeldAgainst::Records;
        }
        let blamed = blamed(records, verdict);
        self.verify(records, &blamed, &digest, at);
        if let Some(failure) = failure {
            return self.report_failure(failure, blamed, digest, at);
        }
        let sample = Sample {
            records: records.len() as u64,
            took,
            memory_bytes: self.instance.memory_bytes(),
        };
        let rollout = &self.ports.rollout;
        rollout.tell(|rollout| rollout.handled(&digest, sample, at));
        HeldAgainst::Records
    }

    fn report_failure(
        &mut self,
        failure: &Failure,
        mut blamed: BTreeSet<Position>,
        digest: PluginDigest,
        at: At,
    ) -> HeldAgainst {
        let rollout = &self.ports.rollout;
        let fault = Fault {
            kind: failure.kind,
            reason: failure.reason.clone(),
            is_deadly: !self.instance.is_alive(),
        };
        let excused = &self.trial.excused;
        let is_excused = match failure.of {
            // Of which record it is nobody knows: it may be one of these.
            Blame::Batch | Blame::Surroundings => !blamed.is_disjoint(excused),
            Blame::Records | Blame::Host => blamed.is_subset(excused),
        };
        if is_excused || self.trial.suspects.is_some() || self.trial.sits_out {
            rollout.tell(|rollout| rollout.failed_again(&digest, fault));
            let is_mixed = is_excused && !blamed.is_subset(excused);
            return if is_mixed {
                HeldAgainst::Only(excused.clone())
            } else {
                HeldAgainst::Records
            };
        }
        match rollout.tell(|rollout| rollout.failed(&self.trial.site, &digest, fault)) {
            Blamed::Records => return HeldAgainst::Records,
            // It stands in for one that does not start here: there is none that could do better.
            Blamed::Nothing { instead } if self.trial.has_refused(&instead, at.now) => {
                return HeldAgainst::Records;
            }
            Blamed::Nothing { .. } => {}
            Blamed::Version { judge } => {
                blamed.retain(|position| !excused.contains(position));
                self.trial.suspects = Some(Suspects {
                    failed_by: digest,
                    judge,
                    positions: blamed,
                });
            }
        }
        // Whatever it made of these records must reach neither its state nor what it would emit at
        // the end.
        self.instance.kill();
        if SeededBug::TrialChargesRecords.is_on() {
            HeldAgainst::Records
        } else {
            HeldAgainst::Nothing
        }
    }

    /// If this delivery was to the version before the one that failed, it shows whose fault that
    /// was.
    fn verify(
        &mut self,
        records: &[Record],
        blamed: &BTreeSet<Position>,
        digest: &PluginDigest,
        at: At,
    ) {
        let Some(mut suspects) = self.trial.suspects.take() else {
            return;
        };
        if suspects.judge != *digest {
            // The shard could not go back to the version before, or there is another by now: what
            // it saw tells nothing.
            self.trial.stays += u32::from(suspects.failed_by == *digest);
            if self.trial.stays < STAYS_MAX {
                self.ports
                    .rollout
                    .tell(|rollout| rollout.abandon(&self.trial.site));
            } else {
                // Only this version can serve the shard, say because it wrote the state. So the
                // failure policy holds.
                self.leave_trial();
            }
            return;
        }
        self.trial.stays = 0;
        if !suspects.positions.is_disjoint(blamed) {
            self.trial
                .excused
                .extend(suspects.positions.intersection(blamed).cloned());
            self.ports
                .rollout
                .tell(|rollout| rollout.verified(&self.trial.site, false, at));
            return;
        }
        suspects
            .positions
            .retain(|position| records.iter().all(|record| record.position != *position));
        if suspects.positions.is_empty() {
            self.ports
                .rollout
                .tell(|rollout| rollout.verified(&self.trial.site, true, at));
        } else {
            self.trial.suspects = Some(suspects);
        }
    }

    /// Makes a throw-away instance of a version, which loads the shard's state, and tells how that
    /// went.
    pub(super) async fn probe(&mut self, version: &Arc<dyn ProcessorFactory>) {
        let mut probe = self.instance.with_version(Arc::clone(version));
        let result = match (probe.fits(), self.state_to_load().await) {
            (Err(error), _) => {
                Err(self.probe_refused(version, &error, StartFailure::NotMade(error.to_string())))
            }
            (Ok(()), Err(error)) => Err(StartFailure::NotMade(error.to_string())),
            (Ok(()), Ok(state)) => match probe.ensure(state).await {
                // Or there is no memory for one more: the canary has to do, which takes its
                // predecessor's.
                Ok(()) | Err(ProcessorError::HostMemory { .. }) => Ok(()),
                Err(error) => Err(self.probe_refused(version, &error, start_failure(&error))),
            },
        };
        probe.kill();
        let at = self.at();
        self.ports
            .rollout
            .tell(|rollout| rollout.probed(version.digest(), result, at));
    }

    fn probe_refused(
        &mut self,
        version: &Arc<dyn ProcessorFactory>,
        error: &ProcessorError,
        failure: StartFailure,
    ) -> StartFailure {
        if self
            .trial
            .refuse(version.digest(), &failure, self.ports.clock.now())
        {
            self.tell_refused(version, error);
        }
        failure
    }
}

/// What it says of a version that an instance of it could not be made.
pub(super) fn start_failure(error: &ProcessorError) -> StartFailure {
    let reason = error.to_string();
    match error {
        error if error.lack().is_some() => StartFailure::NotMade(reason),
        ProcessorError::DeadlineExceeded { .. } => StartFailure::TooSlow(reason),
        error if error.is_hosts() => StartFailure::NotMade(reason),
        _ => StartFailure::Failed(reason),
    }
}

/// The records that a failure may be of.
fn blamed(records: &[Record], verdict: &Verdict) -> BTreeSet<Position> {
    match verdict.failure.as_ref().map(|failure| failure.of) {
        None | Some(Blame::Host) => BTreeSet::new(),
        Some(Blame::Batch | Blame::Surroundings) => records
            .iter()
            .map(|record| record.position.clone())
            .collect(),
        Some(Blame::Records) => verdict
            .rulings
            .iter()
            .map(|ruling| records[ruling.index].position.clone())
            .collect(),
    }
}
