//! S14: one version of the plugin at a time, never a refused one, never back to an old one but
//! where versions are tried.

use std::collections::{BTreeMap, BTreeSet};

use crate::history::{Event, HostChange, What};
use crate::violation::{Invariant, Report};
use crate::world::TenureKey;

/// What was offered to whom, and what each tenure delivers to.
#[derive(Debug, Default)]
pub(crate) struct Versions {
    hosts: BTreeMap<String, Offers>,
    /// How many of the host's offers are behind each tenure.
    behind: BTreeMap<TenureKey, usize>,
}

/// What a host was offered since it started, in order.
#[derive(Debug, Default)]
struct Offers {
    /// The version it started with, if that was not announced; known from its first delivery.
    first: Option<String>,
    later: Vec<String>,
    refused: BTreeSet<String>,
}

impl Versions {
    pub(crate) fn judge(&mut self, event: &Event, tries_versions: bool, report: &mut Report) {
        match &event.what {
            What::Host {
                host,
                change: HostChange::Started,
            } => {
                let offers = self.hosts.entry(host.clone()).or_default();
                (offers.first, offers.later) = (None, Vec::new());
            }
            What::Offered {
                host,
                digest,
                is_good,
            } => {
                let offers = self.hosts.entry(host.clone()).or_default();
                if *is_good {
                    offers.refused.remove(digest);
                    offers.later.push(digest.clone());
                } else {
                    offers.refused.insert(digest.clone());
                }
            }
            What::DeliveryStarted(delivery) => {
                let offers = self.hosts.entry(delivery.host.clone()).or_default();
                let behind = self.behind.entry(TenureKey::of(delivery)).or_default();
                match offers.find(&delivery.digest, *behind) {
                    Ok(_) if tries_versions => {}
                    Ok(found) => *behind = found,
                    Err(why) => {
                        let what = format!(
                            "{} delivers {} to {}, {why}",
                            delivery.host, delivery.shard, delivery.digest
                        );
                        report.add(Invariant::S14, what);
                    }
                }
            }
            _ => {}
        }
    }
}

impl Offers {
    /// The earliest offer from `behind` on that `digest` may stem from; 0 is the version at start,
    /// n the n-th offer.
    fn find(&mut self, digest: &str, behind: usize) -> Result<usize, &'static str> {
        if self.refused.contains(digest) {
            return Err("which cannot start");
        }
        let is_announced = self.later.iter().any(|offer| offer == digest);
        if self.first.is_none() && !is_announced {
            self.first = Some(digest.to_owned());
        }
        let mut known = std::iter::once(self.first.as_deref())
            .chain(self.later.iter().map(|offer| Some(&**offer)));
        if let Some(found) = known
            .by_ref()
            .skip(behind)
            .position(|offer| offer == Some(digest))
        {
            return Ok(behind + found);
        }
        Err(if is_announced || self.first.as_deref() == Some(digest) {
            "which was replaced before"
        } else {
            "which was never offered"
        })
    }
}
