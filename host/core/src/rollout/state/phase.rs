//! How far the trial of a version has come. The table, row by row, is [`Phase::after`]:
//!
//! | phase | event | then |
//! |---|---|---|
//! | waiting | its turn in the fleet comes | probing, by no shard yet |
//! | probing, by this shard or none, once it is time | the shard asks what to run | probing, by this shard |
//! | canary, on no shard | a shard with records asks what to run | canary, on this shard |
//! | canary, on this shard | the shard asks what to run | the same |
//! | any | the probe starts | canary, on no shard |
//! | any | the probe does not start, and may be made again | probing, by no shard, later |
//! | any | it fails on a shard | verifying, on this shard |
//! | verifying, on this shard | the version before fails too | canary, on no shard |
//! | probing, by this shard | the shard gives it up | probing, by no shard |
//! | canary or verifying, on this shard | the shard gives it up | canary, on no shard |
//!
//! In every other case nothing changes. A trial ends in other ways: the version is promoted,
//! rejected or withdrawn.

use crate::rollout::fault::Fault;
use crate::rollout::site::Site;
use crate::time::Moment;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Phase {
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

/// What happens to a version on trial.
#[derive(Debug, Clone)]
pub(super) enum Event<'a> {
    TurnCame {
        now: Moment,
    },
    Asked {
        by: &'a Site,
        may_try: bool,
        now: Moment,
    },
    ProbeStarted,
    ProbeIsMadeAgain {
        not_before: Moment,
        trouble: String,
    },
    Failed {
        on: &'a Site,
        fault: Fault,
    },
    BeforeFailedToo {
        on: &'a Site,
    },
    GivenUp {
        by: &'a Site,
    },
}

impl Phase {
    /// Any shard may make the probe.
    pub(super) fn probing(not_before: Moment, trouble: Option<String>) -> Self {
        Self::Probing {
            by: None,
            not_before,
            trouble,
        }
    }

    /// The phase that follows; `None` where the event changes nothing and gives the shard no part.
    pub(super) fn after(&self, event: Event<'_>) -> Option<Self> {
        let on_no_shard = Self::Canary { site: None };
        match (self, event) {
            (Self::Waiting, Event::TurnCame { now }) => Some(Self::probing(now, None)),
            (_, Event::Asked { by, may_try, now }) => self.asked(by, may_try, now),
            (_, Event::ProbeStarted) => Some(on_no_shard),
            (
                _,
                Event::ProbeIsMadeAgain {
                    not_before,
                    trouble,
                },
            ) => Some(Self::probing(not_before, Some(trouble))),
            (_, Event::Failed { on, fault }) => Some(Self::Verifying {
                site: on.clone(),
                fault,
            }),
            (Self::Verifying { site, .. }, Event::BeforeFailedToo { on }) if site == on => {
                Some(on_no_shard)
            }
            (_, Event::GivenUp { by }) => self.given_up(by),
            (_, Event::TurnCame { .. } | Event::BeforeFailedToo { .. }) => None,
        }
    }

    fn asked(&self, by: &Site, may_try: bool, now: Moment) -> Option<Self> {
        match self {
            Self::Probing {
                by: prober,
                not_before,
                trouble,
            } if prober.as_ref().unwrap_or(by) == by && now >= *not_before => Some(Self::Probing {
                by: Some(by.clone()),
                not_before: *not_before,
                trouble: trouble.clone(),
            }),
            Self::Canary { site: None } if may_try => Some(Self::Canary {
                site: Some(by.clone()),
            }),
            Self::Canary { site: Some(site) } if site == by => Some(self.clone()),
            _ => None,
        }
    }

    fn given_up(&self, by: &Site) -> Option<Self> {
        match self {
            Self::Probing {
                by: Some(site),
                not_before,
                trouble,
            } if site == by => Some(Self::probing(*not_before, trouble.clone())),
            Self::Canary { site: Some(site) } | Self::Verifying { site, .. } if site == by => {
                Some(Self::Canary { site: None })
            }
            _ => None,
        }
    }
}
