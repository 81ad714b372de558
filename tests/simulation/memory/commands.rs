//! What operators do to the tables in memory, and what these then say, in the judge's words.

use shardmill_core::control::{Control, Directives, Pause, Place, Seek, SeekState, Skip};
use shardmill_core::lease::{Lease, WorkerId};
use shardmill_core::ports::{Directing, Raced};
use shardmill_core::stream::{LeaseKey, SequenceNumber};
use shardmill_invariants::history::{self, FleetWanted, Wanted, What, WriteKind};

use super::tables::{Asked, MemoryTables, checkpoint_of};
use crate::bugs;
use crate::past;
use crate::world::World;

impl MemoryTables {
    /// A lease row as it is.
    pub fn lease(&self, shard: &str) -> Option<Lease> {
        let key = LeaseKey::new(shard).ok()?;
        self.read_leases(|rows| rows.get(&key).cloned())
    }

    /// What is wanted of all shards and hosts.
    pub fn control(&self) -> Control {
        self.read_coordinator(|rows| rows.fleet.control.clone())
    }

    /// All registered workers.
    pub fn workers(&self) -> Vec<WorkerId> {
        let workers = |rows: &shardmill_fakes::coordinator_rows::CoordinatorRows| {
            let workers = rows.fleet.workers.iter();
            workers.map(|row| row.worker.clone()).collect()
        };
        self.read_coordinator(workers)
    }

    /// Somebody changes what is wanted of a shard.
    pub fn direct(&self, world: &World, seen: &Lease, next: &Directives) -> Directing {
        let asked = Asked {
            by: None,
            kind: WriteKind::Direct,
            sent_at: world.now(),
        };
        self.write_lease(world, &seen.key, asked, |rows| {
            rows.direct(&bugs::asked_of_direct(world.bug, rows, seen), next)
        })
    }

    /// Somebody changes what is wanted of all shards and hosts.
    pub fn write_control(&self, world: &World, seen: &Control, next: &Control) -> Raced {
        self.write_coordinator(world, |rows| rows.write_control(seen, next))
    }

    /// Somebody has these workers look.
    pub fn nudge(&self, world: &World, workers: &[WorkerId], number: u64) {
        self.write_coordinator(world, |rows| {
            for worker in workers {
                rows.nudges.insert(worker.clone(), number);
            }
        });
    }

    /// Somebody raises the bulletin.
    pub fn announce(&self, world: &World) {
        self.write_coordinator(world, |rows| rows.fleet.bulletin += 1);
    }
}

/// Says what is wanted of a shard, if a write changed it.
pub(super) fn note_wanted(
    world: &World,
    key: &LeaseKey,
    before: Option<&Lease>,
    after: Option<&Lease>,
) {
    let [before, after] =
        [before, after].map(|row| row.map(|row| row.directives.clone()).unwrap_or_default());
    if before != after {
        world.note(What::Wanted {
            shard: key.as_str().to_owned(),
            wanted: wanted_of(&after),
        });
    }
}

/// Says what is wanted of all, if a write changed it.
pub(super) fn note_fleet_wanted(world: &World, before: &Control, after: &Control) {
    if before != after {
        world.note(What::FleetWanted(FleetWanted {
            version: after.version,
            pause: after.pause.as_ref().map(pause_of),
            drained: after.drains.keys().map(ToString::to_string).collect(),
        }));
    }
}

fn wanted_of(directives: &Directives) -> Wanted {
    let Directives {
        version,
        pause,
        seek,
        skip,
        // No schedule has any yet.
        state: _,
    } = directives;
    Wanted {
        version: *version,
        pause: pause.as_ref().map(pause_of),
        seek: seek.as_ref().map(seek_of),
        skip: skip.as_ref().map(skip_of),
    }
}

/// The reason of a pause of this number, which its holder shows.
pub(crate) fn why_of_pause(number: u64) -> String {
    format!("pause {number}")
}

/// The number of the pause whose reason ends a text.
pub(crate) fn number_of_pause(text: &str) -> Option<u64> {
    text.rsplit_once("pause ")?.1.parse().ok()
}

fn pause_of(pause: &Pause) -> history::Pause {
    history::Pause {
        number: number_of_pause(&pause.asked.why).unwrap_or_default(),
        until: pause.until_ms.map(past::micros_of),
    }
}

fn seek_of(seek: &Seek) -> history::Seek {
    history::Seek {
        to: checkpoint_of(&seek.to.checkpoint()),
        only_forward: seek.only_forward,
        keeps_state: seek.state == SeekState::Keep,
    }
}

fn skip_of(skip: &Skip) -> history::Skip {
    let place = |number: &SequenceNumber| history::Place::plain(number.as_str());
    history::Skip {
        first: place(skip.records.first()),
        last: place(skip.records.last()),
        is_stored: skip.dead_letters.is_some(),
    }
}

/// The last place before a record: everything up to it, and nothing of the record.
pub(super) fn before(number: &SequenceNumber) -> history::Place {
    let mut digits: Vec<u8> = number.as_str().bytes().collect();
    for digit in digits.iter_mut().rev() {
        if *digit > b'0' {
            *digit -= 1;
            break;
        }
        *digit = b'9';
    }
    let text = String::from_utf8(digits).expect("digits");
    history::Place {
        sub: u64::MAX,
        ..history::Place::plain(&text)
    }
}

/// Where a record is, for a command.
pub(crate) fn place_at(place: &history::Place) -> Option<Place> {
    number_at(place).map(Place::Sequence)
}

/// The sequence number of a place.
pub(crate) fn number_at(place: &history::Place) -> Option<SequenceNumber> {
    SequenceNumber::parse(&format!("{:?}", place.sequence)).ok()
}
