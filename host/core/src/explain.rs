//! Why a shard moves, or does not: what the rows tell, and what each live worker would do about it.
//! Pure, as the plan is.

mod cause;
mod evidence;
mod holder;
mod opinion;
mod place;

use std::collections::{BTreeMap, BTreeSet};

pub use cause::Cause;
pub use evidence::Evidence;
pub use holder::{Claim, Holder};
pub use opinion::{Intent, Opinion};
pub use place::Place;

use crate::lease::{Lease, Standing};
use crate::plan::{FleetView, ObservedLease, ReadingOrder, Reason, missing_rows};
use crate::stream::{InvalidName, Shard, ShardId};

/// Ancestors that are told of: a stream resharded every hour has hundreds in a week, and the
/// nearest ones matter.
const LINEAGE_MAX: usize = 32;

/// All that is known of one shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// Which.
    pub shard: ShardId,
    /// What Kinesis says of it, if it was asked.
    pub listed: Option<Listed>,
    /// Where it stands; `None` if it has no row.
    pub place: Option<Place>,
    /// Why it does not move, the weightiest first; empty if nothing is in its way as far as the
    /// tables tell.
    pub causes: Vec<Cause>,
    /// The shards that it waits for, nearest first.
    pub lineage: Vec<Ancestor>,
    /// What each live worker would do about it.
    pub opinions: Vec<Opinion>,
    /// Shards beside it: parents, children, and others on the same hash keys.
    pub relatives: Vec<Relative>,
}

/// What Kinesis says of a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listed {
    /// It takes records.
    Open,
    /// It was split or merged, and is read to its end.
    Closed,
    /// It is not in the list.
    No,
}

/// A shard that must end first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ancestor {
    /// How many generations up: 1 is a parent.
    pub depth: usize,
    /// Where it stands.
    pub place: Place,
}

/// A shard beside another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relative {
    /// How.
    pub relation: Relation,
    /// Which.
    pub shard: ShardId,
    /// Where it stands; `None` if it has no row.
    pub place: Option<Place>,
}

/// How a shard is related to another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Relation {
    /// It must end first.
    Parent,
    /// It follows.
    Child,
    /// Neither, but it covers some of the same hash keys.
    SameHashKeys,
}

/// The shard that people mean: its id, or only the number in it.
///
/// # Errors
///
/// If it is no shard id.
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
    let in_stream = rows.in_stream.get(shard).copied();
    let unreadable = evidence.unreadable(shard);
    if row.is_none() && in_stream.is_none() && unreadable.is_none() {
        return None;
    }
    let place = row.map(|row| evidence.place(row, &rows));
    let causes = match (&place, unreadable) {
        (Some(place), _) => place.causes.clone(),
        (None, Some(problem)) => vec![Cause::Unreadable {
            problem: problem.to_owned(),
        }],
        (None, None) => vec![evidence.missing(shard)],
    };
    let opinions = if row.is_some_and(|row| !row.is_finished())
        && !causes.iter().any(Cause::is_for_nobody_to_mend)
    {
        opinion::of_live_workers(shard, evidence)
    } else {
        Vec::new()
    };
    let listed = evidence.shards.map(|_| match in_stream {
        Some(shard) if shard.is_open() => Listed::Open,
        Some(_) => Listed::Closed,
        None => Listed::No,
    });
    let lineage = rows.lineage(&causes, evidence);
    let relatives = rows.relatives(shard, evidence);
    Some(Explanation {
        shard: shard.clone(),
        listed,
        place,
        causes,
        lineage,
        opinions,
        relatives,
    })
}

/// Rows and shards by id.
struct Rows<'a> {
    by_shard: BTreeMap<ShardId, &'a Lease>,
    in_stream: BTreeMap<&'a ShardId, &'a Shard>,
    order: ReadingOrder<'a>,
}

impl<'a> Rows<'a> {
    fn of(evidence: &Evidence<'a>) -> Self {
        let shards = evidence.shards.map(|list| list.shards).unwrap_or_default();
        Self {
            by_shard: evidence
                .leases
                .iter()
                .map(|lease| (lease.key.shard_id(), lease))
                .collect(),
            in_stream: shards.iter().map(|shard| (&shard.id, shard)).collect(),
            order: ReadingOrder::of(evidence.leases.iter(), evidence.is_bootstrapped),
        }
    }

    /// The shards that the causes name as to end first, and those that these wait for in turn.
    fn lineage(&self, causes: &[Cause], evidence: &Evidence<'_>) -> Vec<Ancestor> {
        let waits_for = |causes: &[Cause]| -> Vec<ShardId> {
            causes.iter().flat_map(Cause::waits_for).cloned().collect()
        };
        let (mut found, mut visited) = (Vec::new(), BTreeSet::new());
        let mut generation = waits_for(causes);
        let mut depth = 1;
        while !generation.is_empty() && found.len() < LINEAGE_MAX {
            let mut next = Vec::new();
            for id in generation {
                // Each shard once, so that rows with a cycle of parents end too.
                let Some(row) = self
                    .by_shard
                    .get(&id)
                    .filter(|_| visited.insert(id.clone()))
                else {
                    continue;
                };
                let place = evidence.place(row, self);
                next.extend(waits_for(&place.causes));
                found.push(Ancestor { depth, place });
            }
            generation = next;
            depth += 1;
        }
        found
    }

    fn relatives(&self, shard: &ShardId, evidence: &Evidence<'_>) -> Vec<Relative> {
        let row = self.by_shard.get(shard);
        let listed = self.in_stream.get(shard);
        let parents = row
            .map(|row| &row.parents)
            .or(listed.map(|shard| &shard.parents));
        let parents: BTreeSet<ShardId> = parents.into_iter().flatten().cloned().collect();
        let mut children: BTreeSet<ShardId> = row
            .into_iter()
            .flat_map(|row| row.children.iter().cloned())
            .collect();
        children.extend(
            self.in_stream
                .values()
                .filter(|child| child.parents.contains(shard))
                .map(|c| c.id.clone()),
        );
        children.extend(
            self.by_shard
                .values()
                .filter(|c| c.parents.contains(shard))
                .map(|c| c.key.shard_id()),
        );
        let range = row
            .and_then(|row| row.hash_range)
            .or(listed.map(|shard| shard.hash_range));
        let beside = self.by_shard.iter().filter(|(id, lease)| {
            let is_kin = *id == shard || parents.contains(id) || children.contains(id);
            !is_kin
                && !lease.is_finished()
                && range
                    .zip(lease.hash_range)
                    .is_some_and(|(a, b)| a.overlaps(b))
        });
        let mut relatives: Vec<(Relation, ShardId)> = beside
            .map(|(id, _)| (Relation::SameHashKeys, id.clone()))
            .collect();
        relatives.extend(parents.into_iter().map(|id| (Relation::Parent, id)));
        relatives.extend(children.into_iter().map(|id| (Relation::Child, id)));
        relatives.sort();
        let place = |id: &ShardId| self.by_shard.get(id).map(|row| evidence.place(row, self));
        relatives
            .into_iter()
            .map(|(relation, shard)| Relative {
                relation,
                place: place(&shard),
                shard,
            })
            .collect()
    }
}

impl Evidence<'_> {
    /// Why a shard that Kinesis lists has no row.
    fn missing(&self, shard: &ShardId) -> Cause {
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
        let found = missing_rows(&view, list, &self.limits)
            .into_iter()
            .find(|(missing, _)| missing.id == *shard);
        match found.map(|(_, start)| start) {
            Some(Ok((checkpoint, reason))) => Cause::RowToCome {
                checkpoint,
                reason,
                leader: self.live_leader().cloned(),
            },
            Some(Err(why)) => Cause::NoRow { why: Some(why) },
            None => Cause::NoRow { why: None },
        }
    }

    /// Where the shard of `row` stands, and what is in its way.
    fn place(&self, row: &Lease, rows: &Rows<'_>) -> Place {
        let holder = self.holder(row);
        let observed = self
            .outlook(self.asker, &self.alive())
            .lease(row, false, false);
        Place {
            causes: self.causes(&observed, holder.as_ref(), rows),
            claim: self.claim(row, observed.is_claim_fresh),
            has_advanced: self.has_advanced(row),
            held_for: row
                .held_since_ms
                .map(|since| std::time::Duration::from_millis(self.wall_ms.saturating_sub(since))),
            standing: observed.standing,
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
            return causes;
        }
        if let (Some(holder), Standing::Held) = (holder, observed.standing) {
            causes.extend(Cause::of_holder(holder));
            causes.extend(row.stuck.clone().map(|text| Cause::Stuck { text }));
            causes.extend(match observed.asked_for(self.asker) {
                Some(reason) => Some(Cause::Planned(reason)),
                None => row.claimant.clone().map(|by| Cause::ClaimVoid { by }),
            });
            return causes;
        }
        if let Some(reason) = rows.order.waits_for(row) {
            causes.push(Cause::Planned(reason));
            return causes;
        }
        causes.push(match (holder, observed.kept_for(self.asker)) {
            (Some(holder), _) => Cause::OwnerDead {
                owner: holder.worker.clone(),
                silent: holder.silent,
            },
            (None, Some(reason)) => Cause::Planned(reason),
            (None, None) => Cause::Free,
        });
        if !self.is_anybody_alive() {
            causes.push(Cause::NobodyAlive);
        }
        causes.extend(row.stuck.clone().map(|text| Cause::GivenUp { text }));
        causes
    }

    /// What it means that the stream's list does not show a shard that has a row, if it does not.
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
}

#[cfg(test)]
mod tests;
