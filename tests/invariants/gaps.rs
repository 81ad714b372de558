//! S21: records that left the stream before they could be read are no loss, if somebody says so.

use std::collections::BTreeMap;

use crate::history::{Checkpoint, Event, Micros, Place, Topology, What, Write, WriteKind};
use crate::violation::{Invariant, Report};
use crate::world::World;

/// What left the stream unread, and what was said of it.
#[derive(Debug, Default)]
pub(crate) struct Gaps {
    /// By stream and shard: the records, which somebody may have in memory still, and when each
    /// left.
    unread: BTreeMap<(usize, String), BTreeMap<Place, Micros>>,
    /// When a gap was last told, by shard.
    told: BTreeMap<String, Micros>,
}

impl Gaps {
    pub(crate) fn judge(&mut self, world: &World, event: &Event, report: &mut Report) {
        match &event.what {
            What::Topology(Topology::Trimmed { shard, through }) => {
                self.trimmed(world, shard, through.as_ref(), event.at);
            }
            What::GapTold { host, shard, after } => {
                self.told.insert(shard.clone(), event.at);
                let is_gone = world
                    .stream
                    .shard(shard)
                    .is_some_and(|truth| truth.trimmed_through.as_ref() >= Some(after));
                if !is_gone {
                    report.add(
                        Invariant::S21,
                        format!("{host} says that {after:?} of {shard} is gone, but it is there"),
                    );
                }
            }
            What::Written(write) => self.forget_before_beginning(world, write),
            _ => {}
        }
    }

    /// Whoever begins a shard anew, because an operator said so, has read nothing that a gap could
    /// follow.
    fn forget_before_beginning(&mut self, world: &World, write: &Write) {
        let begins = write
            .after
            .as_ref()
            .is_some_and(|row| row.checkpoint == Checkpoint::Initial);
        // The same of one that begins at another place: see below.
        let is_sought = write.kind == WriteKind::Obey && write.before != write.after && {
            let wanted = world.wanted.get(&write.key);
            wanted.is_some_and(|wanted| wanted.seek.is_some())
        };
        if write.kind == WriteKind::Admin && begins || is_sought {
            self.unread
                .remove(&(world.stream.generation, write.key.clone()));
        }
    }

    /// Nobody can know of a gap before the first record that was read: there is nothing that it
    /// follows.
    fn trimmed(&mut self, world: &World, id: &str, through: Option<&Place>, at: Micros) {
        let Some(shard) = world.stream.shard(id) else {
            return;
        };
        let Some(from) = world.table.row(id).map(|row| &row.checkpoint) else {
            return;
        };
        // Where an operator sent it, it goes on at the oldest record that is left.
        if !matches!(from, Checkpoint::At(_)) || shard.is_at_sought_place {
            return;
        }
        let to = through.cloned().map_or(Checkpoint::End, Checkpoint::At);
        let is_unread = |place: &&Place| !shard.settled.contains_key(*place);
        let unread = shard
            .due(from, &to)
            .filter(is_unread)
            .map(|place| (place.clone(), at));
        self.unread
            .entry((world.stream.generation, id.to_owned()))
            .or_default()
            .extend(unread);
    }

    /// What nobody settled after all must have been told, once it was found missing.
    pub(crate) fn judge_end(&self, world: &World, report: &mut Report) {
        for ((generation, id), unread) in &self.unread {
            let Some(shard) = world.stream.shards.get(&(*generation, id.clone())) else {
                continue;
            };
            let was_told = |trimmed_at: &Micros| {
                self.told
                    .get(id)
                    .is_some_and(|told_at| told_at >= trimmed_at)
            };
            let has_gone_on = world.table.row(id).is_none_or(|row| {
                unread
                    .keys()
                    .next_back()
                    .is_some_and(|last| row.checkpoint > Checkpoint::At(last.clone()))
            });
            let is_lost = |(place, trimmed_at): &(&Place, &Micros)| {
                !shard.settled.contains_key(*place) && !was_told(trimmed_at)
            };
            let mut lost = unread.iter().filter(is_lost);
            if let (Some((first, _)), true) = (lost.next(), has_gone_on) {
                let what = format!(
                    "{} record(s) of {id} were trimmed unread, the first {first:?}",
                    1 + lost.count()
                );
                report.add(Invariant::S21, what);
            }
        }
    }
}
