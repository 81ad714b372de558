//! What hosts say in their log of the records they give up: for one that is skipped there is no other word.

use std::cell::RefCell;
use std::fmt;
use std::sync::{Arc, Weak};

use shardmill_invariants::history::{GivenUp, Place, What};
use shardmill_invariants::policy::{Cause, GiveUp};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata};

use crate::world::World;

/// The module that gives records up.
const SPEAKER: &str = "shardmill_worker::pipeline::give_up";

thread_local! {
    /// The run on this thread.
    static WORLD: RefCell<Weak<World>> = const { RefCell::new(Weak::new()) };
}

/// Each field as text, by the order in which the log names them.
#[derive(Default)]
struct Words(Vec<(&'static str, String)>);

/// From here on what the hosts on this thread say belongs to `world`.
pub fn listen(world: &Arc<World>) {
    WORLD.with_borrow_mut(|listening| *listening = Arc::downgrade(world));
}

/// Whether an event must be heard even if nobody writes the log down.
pub(crate) fn is_of_interest(metadata: &Metadata<'_>) -> bool {
    *metadata.level() == Level::WARN && metadata.target() == SPEAKER
}

/// Puts a record that was given up into the history.
pub(crate) fn hear(event: &Event<'_>) {
    let Some(world) = WORLD.with_borrow(Weak::upgrade) else { return };
    let mut words = Words::default();
    event.record(&mut words);
    let says = |name: &str| words.0.iter().find(|(field, _)| *field == name).map(|(_, text)| text.trim_matches('"'));
    if says("message") != Some("record given up") {
        return;
    }
    let given_up = (|| {
        let (sequence, sub) = says("position")?.split_once('/').unwrap_or((says("position")?, "0"));
        Some(GivenUp {
            shard: says("shard")?.to_owned(),
            epoch: says("epoch")?.parse().ok()?,
            at: Place { sub: sub.parse().ok()?, ..Place::plain(sequence) },
            how: match says("decision")? {
                "dead-letter" => GiveUp::DeadLetter,
                "skip" => GiveUp::Skip,
                _ => return None,
            },
            cause: match says("cause")? {
                "rejected" => Cause::Rejected,
                "out of attempts" => Cause::Attempts,
                "too old" => Cause::Age,
                _ => return None,
            },
        })
    })();
    let given_up = given_up.expect("the log says which record was given up, and why");
    world.count(match given_up.how {
        GiveUp::DeadLetter => "reached: record given up as a dead letter",
        GiveUp::Skip | GiveUp::Halt => "reached: record skipped",
    });
    world.note(What::GivenUp(given_up));
}

impl Visit for Words {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.push((field.name(), format!("{value:?}")));
    }
}
