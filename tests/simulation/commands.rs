//! An operator who changes the fleet while it runs, as the command line does it: reads a row, writes
//! what is wanted on the condition of what was read, and tells the hosts that are concerned. Only
//! over the ports.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use shardmill_core::control::{
    Asked, Control, DRAINS_MAX, Direction, Directives, Pause, Place, RecordRange, Seek, SeekState,
    Skip,
};
use shardmill_core::lease::{Lease, WorkerId};
use shardmill_core::ports::{Directing, Raced};
use shardmill_invariants::history::{self, Checkpoint};

use crate::driver::Driver;
use crate::memory::MemoryTables;
use crate::memory::commands::{number_at, place_at, why_of_pause};
use crate::poison::DEAD_LETTER_SINK;
use crate::storm::Event;
use crate::system::EPOCH;
use crate::tables::Tables;
use crate::world::World;

/// Most records that are skipped at a time.
const SKIPPED_MAX: usize = 4;

/// Who gives commands.
pub(crate) struct Operator {
    dice: fastrand::Rng,
    /// Names pauses, nudges and what is about to be written.
    numbers: u64,
    /// What was decided and is not written yet.
    decided: BTreeMap<u64, (usize, Change)>,
}

/// What is about to be written.
enum Change {
    /// What is wanted of a shard, whose row was read.
    OfShard(Box<Lease>, Box<Directives>),
    /// What is wanted of all, and who is told.
    OfAll(Box<Control>, Box<Control>),
    /// A pause is over, if it is this one.
    Resume(String, Pause),
    /// The same of all shards.
    ResumeAll(Pause),
    /// A host may hold leases again.
    Undrain(WorkerId),
}

impl Operator {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            dice: fastrand::Rng::with_seed(seed ^ 0x0_9e7a_7045),
            numbers: 0,
            decided: BTreeMap::new(),
        }
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn decide(&mut self, plugin: usize, change: Change) -> Event {
        let number = self.number();
        self.decided.insert(number, (plugin, change));
        Event::Write(number)
    }

    /// In a third of the cases it ends by itself, in 0.5 to 60 s.
    fn pause(&mut self, world: &World) -> Pause {
        let number = self.number();
        let wall_ms = millis(EPOCH + world.elapsed());
        let is_limited = self.dice.u32(0..3) == 0;
        let lasts = self.dice.u64(500..60_000);
        Pause {
            asked: asked(&why_of_pause(number), wall_ms),
            until_ms: is_limited.then_some(wall_ms + lasts),
        }
    }

    /// The place of a record that is there: any, or the beginning.
    fn place(&mut self, places: &[history::Place]) -> Option<Place> {
        if self.dice.u32(0..3) == 0 || places.is_empty() {
            return Some(Place::Horizon);
        }
        place_at(&places[self.dice.usize(..places.len())])
    }

    /// Some records that are there: mostly such as are not settled.
    fn skip(&mut self, places: &[history::Place], from: &Checkpoint, wall_ms: u64) -> Option<Skip> {
        let next = places.partition_point(|place| from.covers(place));
        let first = if next < places.len() && self.dice.u32(0..4) > 0 {
            next + self.dice.usize(..(places.len() - next).min(8))
        } else {
            self.dice.usize(..places.len().max(1))
        };
        let last = first + self.dice.usize(..SKIPPED_MAX);
        let last = last.min(places.len().saturating_sub(1));
        let [first, last] = [places.get(first)?, places.get(last)?].map(number_at);
        Some(Skip {
            records: RecordRange::new(first?, last?)?,
            dead_letters: self.dice.bool().then(|| DEAD_LETTER_SINK.to_owned()),
            asked: asked("skip", wall_ms),
        })
    }
}

fn asked(why: &str, at_ms: u64) -> Asked {
    Asked {
        by: "ops".to_owned(),
        why: why.to_owned(),
        at_ms,
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn memory(world: &World) -> Option<&MemoryTables> {
    match &world.tables {
        Tables::Memory(memory) => Some(memory),
        Tables::Emulated(_) => None,
    }
}

impl Driver {
    /// An operator decides on something, and writes it a moment later.
    pub(crate) fn command(&mut self) {
        let plugin = match self.worlds.len() {
            1 => 0,
            several => self.operator.dice.usize(..several),
        };
        let world = Arc::clone(&self.worlds[plugin]);
        let Some(tables) = memory(&world) else { return };
        let change = match self.operator.dice.u32(0..14) {
            0..10 => self.decide_of_shard(&world, tables),
            10..12 => {
                let seen = tables.control();
                let pause = self.operator.pause(&world);
                Some(self.pause_all(plugin, seen, pause))
            }
            _ => self.decide_of_host(plugin, tables),
        };
        let Some(change) = change else { return };
        if let Change::OfShard(seen, next) = &change
            && let Some(pause) = next.pause.clone()
            && seen.directives.pause != next.pause
        {
            let resume = Change::Resume(seen.key.as_str().to_owned(), pause);
            self.plan_later(plugin, resume);
        }
        let event = self.operator.decide(plugin, change);
        // In a third of the cases somebody thinks about what was read.
        let after = match self.operator.dice.u32(0..3) {
            0 => self.operator.dice.u64(200..4_000),
            _ => 0,
        };
        self.plan(Duration::from_millis(after), event);
    }

    fn decide_of_shard(&mut self, world: &World, tables: &MemoryTables) -> Option<Change> {
        let rows = tables.leases();
        let unfinished = |row: &&String| rows[*row].checkpoint != Checkpoint::End;
        let shards: Vec<&String> = rows.keys().filter(unfinished).collect();
        let operator = &mut self.operator;
        let shard = *shards.get(operator.dice.usize(..shards.len().max(1)))?;
        let seen = tables.lease(shard)?;
        let places = world.stream.shards().get(shard)?.places.clone();
        let wall_ms = millis(EPOCH + world.elapsed());
        let next = match operator.dice.u32(0..10) {
            0..3 => {
                let pause = operator.pause(world);
                world.count("fault: shard paused by command");
                seen.directives.changed(|next| next.pause = Some(pause))
            }
            3..7 => {
                let to = operator.place(&places)?;
                let state = if operator.dice.bool() {
                    SeekState::Keep
                } else {
                    SeekState::Drop
                };
                world.count("fault: shard sent elsewhere by command");
                let asked = asked("seek", wall_ms);
                let way = Direction::to(&to, &seen.checkpoint, seen.settled_arrival_ms);
                let seek = Seek {
                    to,
                    only_forward: way == Some(Direction::Forward),
                    state,
                    asked,
                };
                seen.directives.changed(|next| next.seek = Some(seek))
            }
            _ => {
                let skip = operator.skip(&places, &rows[shard].checkpoint, wall_ms)?;
                world.count("fault: records skipped by command");
                seen.directives.changed(|next| next.skip = Some(skip))
            }
        };
        Some(Change::OfShard(Box::new(seen), Box::new(next)))
    }

    fn pause_all(&mut self, plugin: usize, seen: Control, pause: Pause) -> Change {
        self.run.count("fault: all shards paused by command");
        let next = seen.changed(|next| next.pause = Some(pause.clone()));
        self.plan_later(plugin, Change::ResumeAll(pause));
        Change::OfAll(Box::new(seen), Box::new(next))
    }

    fn decide_of_host(&mut self, plugin: usize, tables: &MemoryTables) -> Option<Change> {
        let workers = tables.workers();
        let worker = workers
            .get(self.operator.dice.usize(..workers.len().max(1)))?
            .clone();
        let seen = tables.control();
        if seen.drains.len() >= DRAINS_MAX {
            return None;
        }
        self.run.count("fault: host drained by command");
        let next = seen.changed(|next| drop(next.drains.insert(worker.clone(), asked("drain", 0))));
        self.plan_later(plugin, Change::Undrain(worker));
        Some(Change::OfAll(Box::new(seen), Box::new(next)))
    }

    /// It is taken back after a while.
    fn plan_later(&mut self, plugin: usize, change: Change) {
        let is_drain = matches!(change, Change::Undrain(_));
        let event = self.operator.decide(plugin, change);
        let most = if is_drain { 120_000 } else { 50_000 };
        let after = Duration::from_millis(self.operator.dice.u64(500..most));
        self.plan(after, event);
    }

    /// Writes what was decided, unless what was read has changed since, and tells whom it concerns.
    pub(crate) fn write_command(&mut self, number: u64) {
        let Some((plugin, change)) = self.operator.decided.remove(&number) else {
            return;
        };
        let world = Arc::clone(&self.worlds[plugin]);
        let Some(tables) = memory(&world) else { return };
        let told = match change {
            Change::OfShard(seen, next) => direct(&world, tables, &seen, &next),
            Change::Resume(shard, pause) => {
                let seen = tables
                    .lease(&shard)
                    .filter(|row| row.directives.pause.as_ref() == Some(&pause));
                seen.map_or_else(Vec::new, |seen| {
                    let next = seen.directives.changed(|next| next.pause = None);
                    direct(&world, tables, &seen, &next)
                })
            }
            Change::OfAll(seen, next) => control(&world, tables, &seen, &next),
            Change::ResumeAll(pause) => {
                let seen = tables.control();
                if seen.pause.as_ref() != Some(&pause) {
                    return;
                }
                let next = seen.changed(|next| next.pause = None);
                control(&world, tables, &seen, &next)
            }
            Change::Undrain(worker) => {
                let seen = tables.control();
                let next = seen.changed(|next| drop(next.drains.remove(&worker)));
                control(&world, tables, &seen, &next)
            }
        };
        if told.is_empty() {
            return;
        }
        // Somebody who gives a command may lose the network right after it.
        let number = self.operator.number();
        if self.operator.dice.u32(0..4) > 0 {
            tables.nudge(&world, &told, number);
        }
        if self.operator.dice.u32(0..4) > 0 {
            tables.announce(&world);
        }
    }

    /// When all is healed, every pause ends, and no host is drained any more.
    pub(crate) fn take_commands_back(&mut self) {
        if self.schedule.storms.commands.is_none() {
            return;
        }
        self.operator.decided.clear();
        for world in self.worlds.clone() {
            let Some(tables) = memory(&world) else {
                continue;
            };
            for shard in tables.leases().keys() {
                if let Some(seen) = tables.lease(shard)
                    && seen.directives.pause.is_some()
                {
                    let next = seen.directives.changed(|next| next.pause = None);
                    direct(&world, tables, &seen, &next);
                }
            }
            let seen = tables.control();
            let next = seen.changed(|next| {
                next.pause = None;
                next.drains.clear();
            });
            control(&world, tables, &seen, &next);
            let number = self.operator.number();
            tables.nudge(&world, &tables.workers(), number);
            tables.announce(&world);
        }
    }
}

/// Whom it concerns, if it was written.
fn direct(world: &World, tables: &MemoryTables, seen: &Lease, next: &Directives) -> Vec<WorkerId> {
    match tables.direct(world, seen, next) {
        Directing::Applied(row) => row.owner.into_iter().collect(),
        Directing::Changed(_) => {
            world.count("reached: command refused, another came before");
            Vec::new()
        }
    }
}

fn control(world: &World, tables: &MemoryTables, seen: &Control, next: &Control) -> Vec<WorkerId> {
    match tables.write_control(world, seen, next) {
        Raced::Applied => tables.workers(),
        Raced::Lost => {
            world.count("reached: command refused, another came before");
            Vec::new()
        }
    }
}
