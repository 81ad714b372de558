//! What each shard of a plugin runs on a host, as a state machine without a clock.
//!
//! The version on trial goes from phase to phase as the table in `state/phase.rs` says. While the
//! active version is in probation, each shard has its own state:
//!
//! | the shard runs | event | then |
//! |---|---|---|
//! | the active version | it fails | the last good version, which gets the same records |
//! | the last good version, to verify | it handles them | the active version; after [`PROBATION_STRIKES`](super::policy::PROBATION_STRIKES) of these, the active version is rolled back |
//! | the last good version, to verify | it fails too | the last good version, until the records are settled |
//! | the last good version | the records are settled | the active version |
//! | the last good version | the shard gives up, or leaves | the active version |

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::fault::Fault;
use super::judge::{Passed, Regression};
use super::policy::RolloutPolicy;
use super::quarantine::Quarantine;
use super::site::Site;
use super::track::Track;
use super::version_row::VersionRow;
use crate::lease::WorkerId;
use crate::plugin::PluginDigest;
use crate::time::Moment;

mod phase;
mod restart;
mod rows;
mod trial;

use phase::{Event, Phase};
use restart::Found;

pub use restart::Restart;
pub(crate) use trial::START_AGAIN_AFTER;

/// The present, on two clocks: one for decisions, one for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct At {
    /// The time on this host's monotonic clock.
    pub now: Moment,
    /// The wall time, in milliseconds since the Unix epoch.
    pub wall_ms: u64,
}

/// What a shard must do about versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role {
    /// Run this version.
    Run(PluginDigest),
    /// Go on with what runs, but first see whether this version starts, and report it to
    /// [`Rollout::probed`].
    Probe(PluginDigest),
}

/// Why an instance of a version could not be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StartFailure {
    /// The version failed.
    Failed(String),
    /// It took longer than it may, perhaps because of the machine: it is tried again a few times.
    TooSlow(String),
    /// The version is not to blame: something is missing on the host, or is said to be. It is tried
    /// again, as often as it takes.
    NotMade(String),
}

/// What a failed call is held against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Blamed {
    /// The records, as the failure policy says: the shard runs the right version, and there is
    /// nothing to find out.
    Records,
    /// No record yet: the version before gets the same records.
    Version {
        /// The version before, which shows whose fault it was.
        judge: PluginDigest,
    },
    /// Nothing: by the time the call ended, the shard was to run another version.
    Nothing {
        /// The version that the other shards run.
        instead: PluginDigest,
    },
}

/// A change in the rollout that is logged for operators.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// A new version will be tried.
    Offered(PluginDigest),
    /// A shard tries a version.
    Canary(PluginDigest, Site),
    /// A version failed there; the one before it gets the same records.
    Suspected(PluginDigest, Site, String),
    /// The one before it failed on them too.
    Cleared(PluginDigest, Site),
    /// All shards take a version.
    Promoted(PluginDigest, Passed),
    /// A version has passed its probation; the version before it is no longer kept.
    Proven(PluginDigest),
    /// A version is quarantined, and no shard runs it any more.
    RolledBack(PluginDigest, Regression),
    /// A version is no longer tried, because another was offered or another host found it bad.
    Withdrawn(PluginDigest),
    /// A version was released from quarantine.
    Released(PluginDigest),
    /// A version in the shadow was promoted or dropped, and this came of it.
    ShadowEnded(PluginDigest, String),
}

impl Change {
    /// Its code in metrics.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Offered(_) => "offered",
            Self::Canary(..) => "canary",
            Self::Suspected(..) => "suspected",
            Self::Cleared(..) => "cleared",
            Self::Promoted(..) => "promoted",
            Self::Proven(_) => "proven",
            Self::RolledBack(..) => "rolled-back",
            Self::Withdrawn(_) => "withdrawn",
            Self::Released(_) => "released",
            Self::ShadowEnded(..) => "shadow-ended",
        }
    }
}

/// The versions of one plugin on one host.
#[derive(Debug, Clone)]
pub struct Rollout {
    host: WorkerId,
    policy: RolloutPolicy,
    sites: BTreeSet<Site>,
    /// The workers restart, and no shard has asked what to run since.
    restart: Option<Restart>,
    offered: Option<PluginDigest>,
    active: Option<Active>,
    candidate: Option<Candidate>,
    /// The last version that started anywhere: a shard whose first instance cannot be made falls
    /// back on it.
    last_started: Option<PluginDigest>,
    quarantine: Quarantine,
    /// The version in the folder, if it could not be loaded.
    refused: Option<VersionRow>,
    changes: Vec<Change>,
    /// How often a version was let out of quarantine.
    releases: u64,
    /// Rises with every change that may give a shard another role.
    revision: u64,
}

/// The version of all shards but the canary.
#[derive(Debug, Clone)]
struct Active {
    digest: PluginDigest,
    since_ms: u64,
    has_started: bool,
    /// How often it failed to start with other settings than before; `None` once it has.
    failed_restarts: Option<u32>,
    track: Track,
    probation: Option<Probation>,
    /// Instances in a row that died, or could not be made.
    deaths: u32,
    /// The last death, once there were some in a row.
    trouble: Option<String>,
}

/// A promoted version that may still be rolled back.
#[derive(Debug, Clone)]
struct Probation {
    until: Moment,
    last_good: PluginDigest,
    strikes: u32,
    /// Shards where the last good version gets what this one failed on; `None` once it failed on
    /// that too, until the records are settled.
    verifying: BTreeMap<Site, Option<Fault>>,
}

/// A version under trial.
#[derive(Debug, Clone)]
struct Candidate {
    digest: PluginDigest,
    phase: Phase,
    since_ms: u64,
    offered_at: Moment,
    /// Since then the canary could do its work.
    tried_since: Moment,
    /// Instances that were not made in time.
    slow_starts: u32,
    track: Track,
}

impl Rollout {
    /// A rollout of which no version runs yet.
    pub fn new(host: WorkerId, policy: RolloutPolicy) -> Self {
        Self {
            host,
            policy,
            sites: BTreeSet::new(),
            restart: None,
            offered: None,
            active: None,
            candidate: None,
            last_started: None,
            quarantine: Quarantine::default(),
            refused: None,
            changes: Vec::new(),
            releases: 0,
            revision: 0,
        }
    }

    /// Applies another policy from now on; a trial under way goes on.
    pub fn set_policy(&mut self, policy: RolloutPolicy) {
        self.policy = policy;
    }

    /// The policy that applies now.
    pub fn policy(&self) -> &RolloutPolicy {
        &self.policy
    }

    /// A number that rises whenever a shard's role may have changed.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// A number that rises whenever a version is released from quarantine: what refused it before
    /// may try it again.
    pub fn releases(&self) -> u64 {
        self.releases
    }

    /// Returns the changes since the last call, oldest first.
    pub fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    /// The versions that a shard may have to run or probe; others can be dropped.
    pub fn needed(&self) -> impl Iterator<Item = &PluginDigest> {
        let active = self.active.iter();
        let last_good = active
            .clone()
            .filter_map(|active| Some(&active.probation.as_ref()?.last_good));
        let candidate = self.candidate.iter().map(|candidate| &candidate.digest);
        active
            .map(|active| &active.digest)
            .chain(last_good)
            .chain(candidate)
            .chain(&self.last_started)
    }

    /// The last version that started anywhere on this host.
    pub fn last_started(&self) -> Option<&PluginDigest> {
        self.last_started.as_ref()
    }

    /// What the shard at `site` runs now, where `offered` is the newest version. It may be made the
    /// canary if it `may_try`: it has something to deliver, and nothing of it waits for another
    /// try.
    pub fn role(&mut self, site: &Site, offered: &PluginDigest, may_try: bool, at: At) -> Role {
        let found = self.join(site);
        self.tick(at);
        self.offer(offered, found, at);
        self.note_restart(found);
        if let Some(role) = self.trial_role(site, may_try, at) {
            return role;
        }
        let own = match &self.active {
            Some(active) => active.version_on(site, self.is_judge(site)),
            None => offered,
        };
        Role::Run(own.clone())
    }

    /// Whether the version before the one on trial gets what that one failed on here.
    fn is_judge(&self, site: &Site) -> bool {
        matches!(
            self.candidate.as_ref().map(|candidate| &candidate.phase),
            Some(Phase::Verifying { site: claimed, .. }) if claimed == site
        )
    }

    fn trial_role(&mut self, site: &Site, may_try: bool, at: At) -> Option<Role> {
        let candidate = self.candidate.as_mut()?;
        let next = candidate.phase.after(Event::Asked {
            by: site,
            may_try,
            now: at.now,
        })?;
        let is_news = candidate.phase != next;
        let digest = candidate.digest.clone();
        candidate.phase = next;
        if matches!(candidate.phase, Phase::Probing { .. }) {
            return Some(Role::Probe(digest));
        }
        if is_news {
            self.change(Change::Canary(digest.clone(), site.clone()));
        }
        Some(Role::Run(digest))
    }

    /// `offered` is the newest version; `found` is what a shard that asks found on this host.
    fn offer(&mut self, offered: &PluginDigest, found: Found, at: At) {
        self.offered = Some(offered.clone());
        let Some(active) = &self.active else {
            return self.activate(offered.clone(), None, at);
        };
        if self.is_candidate(offered) {
            return;
        }
        if active.digest == *offered {
            return self.withdraw();
        }
        let has_started = active.has_started;
        let last_good = self.last_good();
        if !self.policy.enabled && self.blocked(Some(offered)).is_none() {
            return self.activate(offered.clone(), None, at);
        }
        if last_good.as_ref() == Some(offered) {
            // Back to what worked, or what the operator chose: at once.
            return self.go_back(offered.clone(), at);
        }
        if self.quarantine.get(offered).is_some() {
            return self.withdraw();
        }
        if !has_started {
            // A version that never started cannot be compared with: its replacement is, if there is
            // one.
            let Some(last_good) = last_good else {
                return self.activate(offered.clone(), None, at);
            };
            self.go_back(last_good, at);
        }
        match found.untried() {
            Some(why) => self.promote_untried(offered, why, at),
            None => self.begin_trial(offered, at),
        }
    }

    /// There is nothing to try it on, or against.
    fn promote_untried(&mut self, offered: &PluginDigest, why: Passed, at: At) {
        let before = self.active.as_ref().map(|active| active.proven().clone());
        self.activate(offered.clone(), before, at);
        self.change(Change::Promoted(offered.clone(), why));
    }

    fn begin_trial(&mut self, offered: &PluginDigest, at: At) {
        self.withdraw();
        let starts_at_once = self.policy.share >= 1.0;
        let phase = if starts_at_once {
            Phase::probing(at.now, None)
        } else {
            Phase::Waiting
        };
        self.candidate = Some(Candidate {
            digest: offered.clone(),
            phase,
            since_ms: at.wall_ms,
            offered_at: at.now,
            tried_since: at.now,
            slow_starts: 0,
            track: Track::default(),
        });
        self.change(Change::Offered(offered.clone()));
    }

    fn activate(&mut self, digest: PluginDigest, last_good: Option<PluginDigest>, at: At) {
        self.withdraw();
        let probation = match last_good {
            Some(last_good) if self.policy.enabled => Some(Probation {
                until: at.now + self.policy.probation,
                last_good,
                strikes: 0,
                verifying: BTreeMap::new(),
            }),
            Some(_) | None => None,
        };
        self.active = Some(Active {
            digest,
            since_ms: at.wall_ms,
            has_started: false,
            failed_restarts: None,
            track: Track::default(),
            probation,
            deaths: 0,
            trouble: None,
        });
        self.revision += 1;
    }

    fn withdraw(&mut self) {
        if let Some(candidate) = self.candidate.take() {
            self.change(Change::Withdrawn(candidate.digest));
        }
    }

    fn change(&mut self, change: Change) {
        self.changes.push(change);
        self.revision += 1;
    }

    /// The shard is no longer served here.
    pub fn leave(&mut self, site: &Site) {
        self.sites.remove(site);
        self.abandon(site);
    }

    /// The shard gives up what it was to find out; another one, or this one later, tries again.
    pub(crate) fn abandon(&mut self, site: &Site) {
        let is_given_up = self
            .candidate
            .as_mut()
            .is_some_and(|candidate| candidate.goes_on(Event::GivenUp { by: site }));
        let probation = self.probation_mut();
        let was_verifying =
            probation.is_some_and(|probation| probation.verifying.remove(site).is_some());
        self.revision += u64::from(is_given_up || was_verifying);
    }

    fn is_candidate(&self, digest: &PluginDigest) -> bool {
        let candidate = self.candidate.as_ref();
        candidate.is_some_and(|candidate| candidate.digest == *digest)
    }

    /// The version on trial, if it is this one.
    fn candidate_of(&mut self, digest: &PluginDigest) -> Option<&mut Candidate> {
        let candidate = self.candidate.as_mut();
        candidate.filter(|candidate| candidate.digest == *digest)
    }

    /// The active version, if it is this one.
    fn active_of(&mut self, digest: &PluginDigest) -> Option<&mut Active> {
        let active = self.active.as_mut();
        active.filter(|active| active.digest == *digest)
    }

    fn probation_mut(&mut self) -> Option<&mut Probation> {
        self.active.as_mut()?.probation.as_mut()
    }
}

impl Candidate {
    /// Whether the event changed the phase.
    fn goes_on(&mut self, event: Event<'_>) -> bool {
        let next = self.phase.after(event);
        let has_changed = next.is_some();
        if let Some(next) = next {
            self.phase = next;
        }
        has_changed
    }
}

impl Active {
    /// The version that a shard runs which is not the canary. A version in probation does not judge
    /// another yet: its last good version does.
    fn version_on(&self, site: &Site, is_judge: bool) -> &PluginDigest {
        match &self.probation {
            Some(probation) if is_judge || probation.verifying.contains_key(site) => {
                &probation.last_good
            }
            Some(_) | None => &self.digest,
        }
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.shard, self.plugin)
    }
}

#[cfg(test)]
mod tests;
