//! Why a shard moves, or does not: what the rows show, and what each live worker would do about it.
//! Pure, as the plan is.

mod cause;
mod evidence;
mod holder;
mod lease_status;
mod opinion;
mod relatives;

pub use cause::Cause;
pub use evidence::Evidence;
pub use holder::{Claim, Holder};
pub use lease_status::LeaseStatus;
pub use opinion::{Intent, Opinion};
pub use relatives::{Ancestor, Relation, Relative};

use std::time::Duration;

use relatives::Rows;

use crate::lease::{Availability, Lease};
use crate::plan::{FleetView, ObservedLease, Reason, missing_rows};
use crate::stream::{InvalidName, ShardId};

/// Everything known about one shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// The shard that was asked about.
    pub shard: ShardId,
    /// What Kinesis reports about it; `None` if Kinesis was not asked.
    pub listed: Option<Listed>,
    /// The state of its lease; `None` if it has no row.
    pub status: Option<LeaseStatus>,
    /// Why it does not move, the most important cause first; empty if the tables show none.
    pub causes: Vec<Cause>,
    /// The shards that it waits for, nearest first.
    pub lineage: Vec<Ancestor>,
    /// What each live worker would do about it, in order of worker id.
    pub opinions: Vec<Opinion>,
    /// Its parents, its children, and others on the same hash keys.
    pub relatives: Vec<Relative>,
}

/// What Kinesis reports about a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listed {
    /// It takes records.
    Open,
    /// It was split or merged, and is read to its end.
    Closed,
    /// The list does not contain it.
    No,
}

/// The shard that `text` names: its id, or only the number in it.
///
/// # Errors
///
/// If `text` is neither.
pub fn shard_named(text: &str) -> Result<ShardId, InvalidName> {
    if !text.is_empty() && text.len() <= 12 && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return ShardId::new(format!("shardId-{text:0>12}"));
    }
    ShardId::new(text)
}

/// Explains `shard`; `None` if neither the table nor the shard list knows it.
pub fn explain(shard: &ShardId, evidence: &Evidence<'_>) -> Option<Explanation> {
    let rows = Rows::of(evidence);
    let row = rows.by_shard.get(shard).copied();
    let is_listed = rows.in_stream.contains_key(shard);
    if row.is_none() && !is_listed && evidence.unreadable(shard).is_none() {
        return None;
    }
    let status = row.map(|row| evidence.status(row, &rows));
    let causes = match &status {
        Some(status) => status.causes.clone(),
        None => vec![evidence.why_no_row(shard)],
    };
    Some(Explanation {
        shard: shard.clone(),
        listed: evidence.listed(shard),
        lineage: rows.lineage(&causes, evidence),
        opinions: opinions(shard, row, &causes, evidence),
        relatives: rows.relatives(shard, evidence),
        status,
        causes,
    })
}

/// Empty for a shard that no worker could do anything about.
fn opinions(
    shard: &ShardId,
    row: Option<&Lease>,
    causes: &[Cause],
    evidence: &Evidence<'_>,
) -> Vec<Opinion> {
    let is_unfinished = row.is_some_and(|row| !row.is_finished());
    if is_unfinished && !causes.iter().any(Cause::is_beyond_workers) {
        opinion::of_live_workers(shard, evidence)
    } else {
        Vec::new()
    }
}

impl Evidence<'_> {
    fn listed(&self, shard: &ShardId) -> Option<Listed> {
        let mut shards = self.shards?.shards.iter();
        Some(match shards.find(|listed| listed.id == *shard) {
            Some(listed) if listed.is_open() => Listed::Open,
            Some(_) => Listed::Closed,
            None => Listed::No,
        })
    }

    /// Why a shard that Kinesis lists, or whose row is damaged, has no usable row.
    fn why_no_row(&self, shard: &ShardId) -> Cause {
        if let Some(problem) = self.unreadable(shard) {
            return Cause::Unreadable {
                problem: problem.to_owned(),
            };
        }
        let Some(list) = &self.shards else {
            return Cause::NoRow { why: None };
        };
        let leases = self.view_of(self.asker);
        let view = FleetView {
            me: self.asker,
            leases: &leases,
            workers: &[],
            shards: Some(*list),
            is_bootstrapped: self.is_bootstrapped,
        };
        let mut missing = missing_rows(&view, list, &self.limits).into_iter();
        match missing.find(|(missing, _)| missing.id == *shard) {
            Some((_, Ok((checkpoint, reason)))) => Cause::RowToCome {
                checkpoint,
                reason,
                leader: self.live_leader().cloned(),
            },
            Some((_, Err(why))) => Cause::NoRow { why: Some(why) },
            None => Cause::NoRow { why: None },
        }
    }

    /// The state of the lease in `row`, with what blocks it.
    fn status(&self, row: &Lease, rows: &Rows<'_>) -> LeaseStatus {
        let holder = self.holder(row);
        let observed = self
            .outlook(self.asker, &self.alive())
            .lease(row, false, false);
        LeaseStatus {
            causes: self.causes(&observed, holder.as_ref(), rows),
            claim: self.claim(row, observed.is_claim_fresh),
            has_advanced: self.has_advanced(row),
            held_for: row
                .held_since_ms
                .map(|since| Duration::from_millis(self.wall_ms.saturating_sub(since))),
            availability: observed.availability,
            holder,
            lease: row.clone(),
        }
    }

    fn causes(
        &self,
        observed: &ObservedLease,
        holder: Option<&Holder>,
        rows: &Rows<'_>,
    ) -> Vec<Cause> {
        let row = &observed.lease;
        let mut causes: Vec<Cause> = self.unlisted(row, rows).into_iter().collect();
        if row.is_finished() {
            causes.push(Cause::Finished);
        } else if let (Some(holder), Availability::Held) = (holder, observed.availability) {
            causes.extend(self.causes_while_held(observed, holder));
        } else if let Some(reason) = rows.order.waits_for(row) {
            causes.push(Cause::Planned(reason));
        } else {
            causes.extend(self.causes_while_untaken(observed, holder));
        }
        causes
    }

    /// What it means that a shard with a row is missing from the stream's list, if it is missing.
    fn unlisted(&self, row: &Lease, rows: &Rows<'_>) -> Option<Cause> {
        let (list, shard) = (self.shards.as_ref()?, row.key.shard_id());
        if list.gone.confirmed.contains(&shard) {
            return Some(Cause::Planned(Reason::ShardGone {
                checkpoint: row.checkpoint.clone(),
            }));
        }
        if list.gone.doubtful.contains(&shard) {
            return Some(Cause::Planned(Reason::GoneAfterNextListing));
        }
        (!rows.in_stream.contains_key(&shard)).then_some(Cause::NotListed)
    }

    fn causes_while_held(&self, observed: &ObservedLease, holder: &Holder) -> Vec<Cause> {
        let row = &observed.lease;
        let mut causes: Vec<Cause> = Cause::of_holder(holder).into_iter().collect();
        if let Some(text) = row.stuck.clone() {
            causes.push(Cause::Stuck { text });
        }
        if let Some(reason) = observed.asked_for(self.asker) {
            causes.push(Cause::Planned(reason));
        } else if let Some(by) = row.claimant.clone() {
            causes.push(Cause::ClaimVoid { by });
        }
        causes
    }

    /// Why a lease that may be taken has not been taken yet.
    fn causes_while_untaken(
        &self,
        observed: &ObservedLease,
        holder: Option<&Holder>,
    ) -> Vec<Cause> {
        let mut causes = vec![match (holder, observed.kept_for(self.asker)) {
            (Some(holder), _) => Cause::OwnerDead {
                owner: holder.worker.clone(),
                silent: holder.silent,
            },
            (None, Some(reason)) => Cause::Planned(reason),
            (None, None) => Cause::Free,
        }];
        if !self.is_anybody_alive() {
            causes.push(Cause::NobodyAlive);
        }
        if let Some(text) = observed.lease.stuck.clone() {
            causes.push(Cause::GivenUp { text });
        }
        causes
    }
}

#[cfg(test)]
mod tests;
