//! The stream: its shards, its records, and who settled them.

use std::collections::{BTreeMap, BTreeSet};

use crate::history::{Checkpoint, Delivery, Micros, Place, ShardInfo, Start, Topology, Write};

/// The streams that existed under the one name, one after another.
#[derive(Debug)]
pub(crate) struct Stream {
    /// Counts the streams; shards of an earlier one are not those of a later one, even under the
    /// same id.
    pub(crate) generation: usize,
    pub(crate) shards: BTreeMap<(usize, String), Shard>,
    identity: Option<u64>,
    /// Where the application begins to read; `None` before that was chosen.
    pub(crate) start: Option<Start>,
}

/// A shard.
#[derive(Debug, Default)]
pub(crate) struct Shard {
    pub(crate) range: Option<(u128, u128)>,
    pub(crate) parents: BTreeSet<String>,
    pub(crate) children: BTreeSet<String>,
    /// When each record was produced.
    pub(crate) records: BTreeMap<Place, Micros>,
    /// When each record arrived, as Kinesis says.
    pub(crate) arrivals: BTreeMap<Place, Micros>,
    /// The partition key of each record.
    pub(crate) keys: BTreeMap<Place, String>,
    /// Who settled each record, first and last; no last one if an operator asked for it to be
    /// repeated.
    pub(crate) settled: BTreeMap<Place, Settled>,
    /// Through where a holder had settled everything when it gave the lease back, and its epoch.
    pub(crate) given_back: Option<(u64, Place)>,
    /// Not listed any more.
    pub(crate) is_gone: bool,
    /// Through where records are gone from the stream.
    pub(crate) trimmed_through: Option<Place>,
    /// An operator decided where reading goes on.
    pub(crate) is_interfered: bool,
    /// Nobody need deliver what is at or below: trimmed, skipped by an operator, or before the
    /// start.
    waived_through: Option<Place>,
    /// The same of what an operator left out by sending the shard forward, until it is sent back.
    left_out_through: Option<Place>,
    /// What is in the plugin's state beside what was handled since: unknown after it was kept as it
    /// was at another place; from this place on, after it was removed.
    pub(crate) state: StateBase,
    /// Whether it is where an operator sent it, and nothing is checkpointed since.
    pub(crate) is_at_sought_place: bool,
    /// When a record was last settled, perhaps again.
    pub(crate) last_settled_at: Micros,
}

/// From where a plugin's state counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StateBase {
    /// It has everything after this.
    From(Checkpoint),
    /// Nobody can know: it was kept at another place.
    Unknown,
}

impl Default for StateBase {
    fn default() -> Self {
        Self::From(Checkpoint::Initial)
    }
}

/// Who settled a record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settled {
    pub(crate) first_at: Micros,
    pub(crate) epoch: Option<u64>,
}

impl Stream {
    pub(crate) fn new(start: Option<Start>) -> Self {
        Self {
            generation: 0,
            shards: BTreeMap::new(),
            identity: None,
            start,
        }
    }

    pub(crate) fn shard(&self, id: &str) -> Option<&Shard> {
        self.shards.get(&(self.generation, id.to_owned()))
    }

    /// The shards of the stream as it is now.
    pub(crate) fn current(&self) -> impl Iterator<Item = (&str, &Shard)> {
        let is_current = |generation: usize| generation == self.generation;
        self.shards
            .iter()
            .filter(move |(key, _)| is_current(key.0))
            .map(|(key, shard)| (key.1.as_str(), shard))
    }

    /// Nobody need deliver what arrived before the start.
    pub(super) fn start_chosen(&mut self, start: Start) {
        self.start = Some(start);
        let Start::At(moment) = start else { return };
        let generation = self.generation;
        for (_, shard) in self
            .shards
            .iter_mut()
            .filter(|(key, _)| key.0 == generation)
        {
            let is_before = |(_, arrived_at): &(&Place, &Micros)| **arrived_at < moment;
            let last = shard
                .arrivals
                .iter()
                .rev()
                .find(is_before)
                .map(|(place, _)| place.clone());
            shard.waive(last);
        }
    }

    /// All shards that `shard` came of, by splits and merges.
    pub(super) fn ancestors(&self, shard: &str) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        let mut unvisited = vec![shard.to_owned()];
        while let Some(id) = unvisited.pop() {
            let parents = self
                .shard(&id)
                .map(|shard| &shard.parents)
                .into_iter()
                .flatten();
            for parent in parents {
                if found.insert(parent.clone()) {
                    unvisited.push(parent.clone());
                }
            }
        }
        found
    }

    /// Whether `delivery` holds records of today's stream and not of the one `generation` stands
    /// for.
    pub(crate) fn is_of_current(&self, delivery: &Delivery, generation: usize) -> bool {
        let has = |generation: usize, place: &Place| {
            let shard = self.shards.get(&(generation, delivery.shard.clone()));
            shard.is_some_and(|shard| shard.records.contains_key(place))
        };
        delivery
            .places
            .iter()
            .any(|place| has(self.generation, place) && !has(generation, place))
    }

    pub(super) fn produced(
        &mut self,
        shard: &str,
        place: &Place,
        key: &str,
        arrived_at: Micros,
        at: Micros,
    ) {
        let start = self.start;
        let shard = self.entry(shard);
        shard.records.insert(place.clone(), at);
        shard.arrivals.insert(place.clone(), arrived_at);
        shard.keys.insert(place.clone(), key.to_owned());
        if let Some(Start::At(moment)) = start
            && arrived_at < moment
        {
            shard.waive(Some(place.clone()));
        }
    }

    pub(super) fn changed(&mut self, change: &Topology) {
        match change {
            Topology::Created { identity, shards } => {
                if self.identity.is_some_and(|before| before != *identity) {
                    self.generation += 1;
                }
                self.identity = Some(*identity);
                for info in shards {
                    self.opened(info, &[]);
                }
            }
            Topology::Split { parent, children } => {
                for child in children {
                    self.opened(child, std::slice::from_ref(parent));
                }
            }
            Topology::Merged { parents, child } => self.opened(child, parents),
            Topology::Trimmed { shard, through } => {
                let shard = self.entry(shard);
                let last = shard.records.keys().next_back().cloned();
                let through_or_all = through.clone().or(last);
                shard.trimmed_through = shard.trimmed_through.take().max(through_or_all.clone());
                shard.waive(through_or_all);
                shard.is_gone |= through.is_none();
            }
            Topology::Deleted => {
                let generation = self.generation;
                let mine = self
                    .shards
                    .iter_mut()
                    .filter(|(key, _)| key.0 == generation);
                mine.for_each(|(_, shard)| shard.is_gone = true);
            }
        }
    }

    /// An operator, or whoever deletes and creates rows, decides where reading goes on: repeats and
    /// gaps are wanted.
    pub(super) fn interfered(&mut self, write: &Write) {
        let Some(shard) = self.shards.get_mut(&(self.generation, write.key.clone())) else {
            return;
        };
        shard.given_back = None;
        shard.is_interfered |= write.by.is_none();
        shard
            .settled
            .values_mut()
            .for_each(|settled| settled.epoch = None);
        let before = write
            .before
            .as_ref()
            .map_or(&Checkpoint::Initial, |row| &row.checkpoint);
        let Some(after) = &write.after else { return };
        if after.checkpoint > *before {
            let last = shard.records.keys().next_back().cloned();
            shard.waive(if let Checkpoint::At(place) = &after.checkpoint {
                Some(place.clone())
            } else {
                last
            });
        }
    }

    fn opened(&mut self, info: &ShardInfo, parents: &[String]) {
        let shard = self.entry(&info.id);
        shard.range = Some(info.range);
        shard.parents.extend(parents.iter().cloned());
        for parent in parents {
            self.entry(parent).children.insert(info.id.clone());
        }
    }

    fn entry(&mut self, id: &str) -> &mut Shard {
        self.shards
            .entry((self.generation, id.to_owned()))
            .or_default()
    }
}

impl Shard {
    /// Records that must be delivered, above `from` and up to `through`.
    pub(crate) fn due<'a>(
        &'a self,
        from: &Checkpoint,
        through: &Checkpoint,
    ) -> impl Iterator<Item = &'a Place> + use<'a> {
        use std::ops::Bound::{Excluded, Included, Unbounded};
        let waived = (&self.waived_through).max(&self.left_out_through);
        let lower = match (from, waived) {
            (Checkpoint::At(from), Some(waived)) => Excluded(from.max(waived)),
            (Checkpoint::At(place), None) | (Checkpoint::Initial, Some(place)) => Excluded(place),
            (Checkpoint::Initial, None) | (Checkpoint::End, _) => Unbounded,
        };
        let is_empty = match (&lower, through) {
            (Excluded(lower), Checkpoint::At(through)) => *lower >= through,
            (_, through) => *from == Checkpoint::End || *through == Checkpoint::Initial,
        };
        let upper = if let Checkpoint::At(through) = through {
            Included(through)
        } else {
            Unbounded
        };
        let records = (!is_empty).then(|| self.records.range::<Place, _>((lower, upper)));
        records.into_iter().flatten().map(|(place, _)| place)
    }

    /// Whether all that is left to settle was settled, and when the last of it was.
    pub(crate) fn all_settled_at(&self) -> Option<Micros> {
        let mut due = self.due(&Checkpoint::Initial, &Checkpoint::End);
        due.all(|place| self.settled.contains_key(place))
            .then_some(self.last_settled_at)
    }

    pub(super) fn settled<'a>(
        &mut self,
        places: impl Iterator<Item = &'a Place>,
        epoch: u64,
        at: Micros,
    ) {
        for place in places {
            let settled = self.settled.entry(place.clone()).or_insert(Settled {
                first_at: at,
                epoch: None,
            });
            settled.epoch = Some(epoch);
            self.last_settled_at = at;
        }
    }

    /// An operator sent it to `to`, from `from`: what lies behind is to be settled again, and what
    /// lies between is left out.
    pub(super) fn sought(&mut self, from: &Checkpoint, to: &Checkpoint) {
        self.given_back = None;
        self.is_at_sought_place = true;
        self.settled.retain(|place, _| to.covers(place));
        self.settled
            .values_mut()
            .for_each(|settled| settled.epoch = None);
        let place = if let Checkpoint::At(place) = to {
            Some(place.clone())
        } else {
            None
        };
        self.left_out_through = if to > from {
            self.left_out_through.take().max(place)
        } else {
            self.left_out_through.take().min(place)
        };
    }

    fn waive(&mut self, through: Option<Place>) {
        self.waived_through = self.waived_through.take().max(through);
    }
}
