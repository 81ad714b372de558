//! What each shard of a plugin runs on a host, as a state machine without a clock.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::judge::{Passed, Regression};
use super::policy::RolloutPolicy;
use super::quarantine::Quarantine;
use super::track::Track;
use super::version_row::VersionRow;
use crate::lease::WorkerId;
use crate::plugin::{PluginDigest, PluginName};
use crate::stream::ShardId;
use crate::time::Moment;

mod rows;
mod trial;

pub use trial::START_AGAIN_AFTER;

/// A shard that a plugin serves on this host.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Site {
    /// What the plugin is called on the shard's stream.
    pub plugin: PluginName,
    /// The shard.
    pub shard: ShardId,
}

/// Now, on both clocks: the one for what is decided, the other for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct At {
    /// This host's monotonic clock.
    pub now: Moment,
    /// Milliseconds since the Unix epoch.
    pub wall_ms: u64,
}

/// What a shard is to do about versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role {
    /// Run this one.
    Run(PluginDigest),
    /// Go on with what runs, but first see whether this one starts, and tell by
    /// [`Rollout::probed`].
    Probe(PluginDigest),
}

/// Why an instance of a version could not be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StartFailure {
    /// The version failed.
    Failed(String),
    /// It took longer than it may, which may be the machine's doing: it is tried again, some times.
    TooSlow(String),
    /// For a reason that is not the version's: something is missing on the host, or is said to be.
    /// It is tried again, as often as it takes.
    NotMade(String),
}

/// What is to be done about a failed call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Blamed {
    /// What the failure policy says: the version is the one that the shard is to run, and nothing
    /// is to be found out.
    Records,
    /// It is held against no record; this version, the one before, is to get the same records.
    Version {
        /// Which shows whose fault it was.
        judge: PluginDigest,
    },
    /// It is held against no record: the shard was to run this version by the time the call ended.
    Nothing {
        /// Which is at work on the other shards.
        instead: PluginDigest,
    },
}

/// A failed call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// A short, stable word, as for metrics.
    pub kind: &'static str,
    /// For people.
    pub reason: String,
    /// Whether it cost the instance.
    pub is_deadly: bool,
}

/// Something that an operator should read.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// A version is to be tried.
    Offered(PluginDigest),
    /// A shard tries a version.
    Canary(PluginDigest, Site),
    /// A version failed there; the one before it gets the same records.
    Suspected(PluginDigest, Site, String),
    /// The one before it failed on them too.
    Cleared(PluginDigest, Site),
    /// All shards take a version.
    Promoted(PluginDigest, Passed),
    /// The version before it is not kept any more.
    Proven(PluginDigest),
    /// A version is quarantined, and no shard runs it any more.
    RolledBack(PluginDigest, Regression),
    /// A version is not tried any more, since another was offered, or another host found it bad.
    Withdrawn(PluginDigest),
    /// A version is quarantined no more.
    Released(PluginDigest),
}

/// The versions of one plugin on one host.
#[derive(Debug, Clone)]
pub struct Rollout {
    host: WorkerId,
    policy: RolloutPolicy,
    sites: BTreeSet<Site>,
    offered: Option<PluginDigest>,
    active: Option<Active>,
    candidate: Option<Candidate>,
    /// The last version that started anywhere: what a shard falls back on whose first instance
    /// cannot be made.
    last_started: Option<PluginDigest>,
    quarantine: Quarantine,
    /// What lies in the folder and was not even loaded.
    refused: Option<VersionRow>,
    changes: Vec<Change>,
    /// How often a version was let out of quarantine.
    releases: u64,
    /// Raised with whatever may change a shard's role.
    revision: u64,
}

/// The version of all shards but the canary.
#[derive(Debug, Clone)]
struct Active {
    digest: PluginDigest,
    since_ms: u64,
    has_started: bool,
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

#[derive(Debug, Clone, PartialEq, Eq)]
enum Phase {
    /// For its turn in the fleet.
    Waiting,
    /// In a throw-away instance, which one shard makes.
    Probing {
        by: Option<Site>,
        not_before: Moment,
        trouble: Option<String>,
    },
    /// On a shard, or on none as long as none has records.
    Canary { site: Option<Site> },
    /// The active version gets what it failed on.
    Verifying { site: Site, fault: Fault },
}

impl Rollout {
    /// Nothing runs yet.
    pub fn new(host: WorkerId, policy: RolloutPolicy) -> Self {
        Self {
            host,
            policy,
            sites: BTreeSet::new(),
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

    /// Goes by another policy from now on; what is under way goes on.
    pub fn set_policy(&mut self, policy: RolloutPolicy) {
        self.policy = policy;
    }

    /// The policy.
    pub fn policy(&self) -> &RolloutPolicy {
        &self.policy
    }

    /// Rises whenever a shard's role may have changed.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Rises whenever a version is let out of quarantine: what refused it before may try it again.
    pub fn releases(&self) -> u64 {
        self.releases
    }

    /// What happened since the last call.
    pub fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    /// The versions that shards may be told to run or probe; others can be dropped.
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
        let is_first = self.sites.is_empty();
        if !self.sites.contains(site) {
            self.sites.insert(site.clone());
        }
        self.tick(at);
        self.offer(offered, is_first, at);
        if let Some(role) = self.trial_role(site, may_try, at) {
            return role;
        }
        let active = self.active.as_ref();
        let probation = active.and_then(|active| active.probation.as_ref());
        // A version in probation is no judge of another yet.
        let is_judge = |phase: &Phase| matches!(phase, Phase::Verifying { site: claimed, .. } if claimed == site);
        let judges = self
            .candidate
            .as_ref()
            .is_some_and(|candidate| is_judge(&candidate.phase));
        let own =
            match probation.filter(|probation| judges || probation.verifying.contains_key(site)) {
                Some(probation) => Some(&probation.last_good),
                None => active.map(|active| &active.digest),
            };
        Role::Run(own.unwrap_or(offered).clone())
    }

    fn trial_role(&mut self, site: &Site, may_try: bool, at: At) -> Option<Role> {
        let candidate = self.candidate.as_mut()?;
        let digest = candidate.digest.clone();
        match &mut candidate.phase {
            Phase::Probing { by, not_before, .. }
                if by.as_ref().unwrap_or(site) == site && at.now >= *not_before =>
            {
                *by = Some(site.clone());
                Some(Role::Probe(digest))
            }
            Phase::Canary {
                site: Some(claimed),
            } if claimed == site => Some(Role::Run(digest)),
            Phase::Canary {
                site: claimed @ None,
            } if may_try => {
                *claimed = Some(site.clone());
                self.change(Change::Canary(digest.clone(), site.clone()));
                Some(Role::Run(digest))
            }
            _ => None,
        }
    }

    /// Takes in the newest version.
    fn offer(&mut self, offered: &PluginDigest, is_first: bool, at: At) {
        self.offered = Some(offered.clone());
        let Some(active) = &self.active else {
            return self.activate(offered.clone(), None, at);
        };
        if self
            .candidate
            .as_ref()
            .is_some_and(|candidate| candidate.digest == *offered)
        {
            return;
        }
        if active.digest == *offered {
            return self.withdraw();
        }
        let last_good = self.last_good();
        if !self.policy.enabled && self.blocked(Some(offered)).is_none() {
            return self.activate(offered.clone(), None, at);
        }
        if last_good.as_ref() == Some(offered) {
            // Back to what worked, or as told: at once.
            return self.go_back(offered.clone(), at);
        }
        if self.quarantine.get(offered).is_some() {
            return self.withdraw();
        }
        if !active.has_started {
            // A version that nothing is known of judges no other: what stands in for it does, if
            // there is one.
            let Some(last_good) = last_good else {
                return self.activate(offered.clone(), None, at);
            };
            self.go_back(last_good, at);
        }
        if is_first {
            let before = self.active.as_ref().map(|active| active.proven().clone());
            self.activate(offered.clone(), before, at);
            return self.change(Change::Promoted(offered.clone(), Passed::NoShard));
        }
        self.withdraw();
        let is_all = self.policy.share >= 1.0;
        let phase = if is_all {
            probing(at.now, None)
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
        let until = at.now + self.policy.probation;
        let probation = last_good
            .filter(|_| self.policy.enabled)
            .map(|last_good| Probation {
                until,
                last_good,
                strikes: 0,
                verifying: BTreeMap::new(),
            });
        self.active = Some(Active {
            digest,
            since_ms: at.wall_ms,
            has_started: false,
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

    /// The shard is not served here any more.
    pub fn leave(&mut self, site: &Site) {
        self.sites.remove(site);
        self.abandon(site);
    }

    /// What the shard found out so far tells nothing; another one, or this one later, tries again.
    pub fn abandon(&mut self, site: &Site) {
        let mut is_news = false;
        if let Some(candidate) = &mut self.candidate {
            let next = match &candidate.phase {
                Phase::Probing {
                    by: Some(by),
                    not_before,
                    trouble,
                } if by == site => Some(probing(*not_before, trouble.clone())),
                Phase::Canary {
                    site: Some(claimed),
                } if claimed == site => Some(Phase::Canary { site: None }),
                Phase::Verifying { site: claimed, .. } if claimed == site => {
                    Some(Phase::Canary { site: None })
                }
                _ => None,
            };
            is_news = next.is_some();
            candidate.phase = next.unwrap_or_else(|| candidate.phase.clone());
        }
        let probation = self
            .active
            .as_mut()
            .and_then(|active| active.probation.as_mut());
        is_news |= probation.is_some_and(|probation| probation.verifying.remove(site).is_some());
        self.revision += u64::from(is_news);
    }
}

/// Whichever shard asks first makes the probe.
fn probing(not_before: Moment, trouble: Option<String>) -> Phase {
    Phase::Probing {
        by: None,
        not_before,
        trouble,
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.shard, self.plugin)
    }
}

#[cfg(test)]
mod tests;
