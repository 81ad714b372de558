//! What hosts say in their log of the records they give up, and of those that retention took: there
//! is no other word of it.

use std::cell::RefCell;
use std::fmt;
use std::sync::{Arc, Weak};

use shardmill_invariants::history::{GivenUp, Place, What};
use shardmill_invariants::policy::{Cause, GiveUp};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata};

use crate::world::World;

/// The modules that give records up, find a gap in front of what they read, and remove the rows of
/// shards that are gone.
const SPEAKERS: [&str; 3] = [
    "shardmill_worker::pipeline::give_up",
    "shardmill_worker::pipeline::fetch",
    "shardmill_worker::worker::rows",
];

/// A log line does not say which host's it is.
const SOMEBODY: &str = "a host";

thread_local! {
    /// The plugins of the run on this thread.
    static WORLDS: RefCell<Vec<Weak<World>>> = const { RefCell::new(Vec::new()) };
}

/// Each field as text, by the order in which the log names them.
#[derive(Default)]
struct Words(Vec<(&'static str, String)>);

/// From here on what the hosts on this thread say of a plugin belongs to its world.
pub fn listen(worlds: &[Arc<World>]) {
    WORLDS.set(worlds.iter().map(Arc::downgrade).collect());
}

fn world_of(plugin: &str) -> Option<Arc<World>> {
    WORLDS.with_borrow(|listening| {
        let mut worlds = listening.iter().filter_map(Weak::upgrade);
        worlds.find(|world| world.plan.name() == plugin)
    })
}

/// Whether an event must be heard even if nobody writes the log down.
pub(crate) fn is_of_interest(metadata: &Metadata<'_>) -> bool {
    *metadata.level() <= Level::DEBUG && SPEAKERS.contains(&metadata.target())
}

/// Puts a record that was given up, or a gap, into the history.
pub(crate) fn hear(event: &Event<'_>) {
    let mut words = Words::default();
    event.record(&mut words);
    let Some(world) = words.says("plugin").and_then(world_of) else {
        return;
    };
    match words.says("message") {
        Some("record given up") => {
            let given_up = words
                .given_up()
                .expect("the log says which record was given up, and why");
            world.count(match given_up.how {
                _ if given_up.cause == Cause::Skipped => "reached: record skipped by command",
                GiveUp::DeadLetter => "reached: record given up as a dead letter",
                GiveUp::Skip | GiveUp::Halt => "reached: record skipped",
            });
            world.note(What::GivenUp(given_up));
        }
        Some("records may be lost to retention") => {
            let (shard, after) = words.gap().expect("the log says which record is gone");
            world.count("reached: gap told");
            world.note(What::GapTold {
                host: SOMEBODY.to_owned(),
                shard,
                after,
            });
        }
        Some("records were trimmed before they were read") => {
            let shard = words
                .says("lease")
                .expect("the log says of which shard")
                .to_owned();
            world.count("reached: loss of a shard told");
            let last = world
                .stream
                .shards()
                .get(&shard)
                .and_then(|truth| truth.places.last().cloned());
            if let Some(after) = last {
                world.note(What::GapTold {
                    host: SOMEBODY.to_owned(),
                    shard,
                    after,
                });
            }
        }
        _ => {}
    }
}

impl Words {
    fn says(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(field, _)| *field == name)
            .map(|(_, text)| text.trim_matches('"'))
    }

    fn given_up(&self) -> Option<GivenUp> {
        let (sequence, sub) = self
            .says("position")?
            .split_once('/')
            .unwrap_or((self.says("position")?, "0"));
        Some(GivenUp {
            shard: self.says("shard")?.to_owned(),
            epoch: self.says("epoch")?.parse().ok()?,
            at: Place {
                sub: sub.parse().ok()?,
                ..Place::plain(sequence)
            },
            how: match self.says("decision")? {
                "dead-letter" => GiveUp::DeadLetter,
                "skip" => GiveUp::Skip,
                _ => return None,
            },
            cause: match self.says("cause")? {
                "rejected" => Cause::Rejected,
                "out of attempts" => Cause::Attempts,
                "too old" => Cause::Age,
                "skipped by command" => Cause::Skipped,
                _ => return None,
            },
        })
    }

    /// The shard, and the record that is gone.
    fn gap(&self) -> Option<(String, Place)> {
        let (after, _) = self.says("gap")?.split_once(' ')?;
        Some((self.says("shard")?.to_owned(), Place::plain(after)))
    }
}

impl Visit for Words {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.push((field.name(), format!("{value:?}")));
    }
}
