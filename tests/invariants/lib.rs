//! What must hold of every history of a fleet, as pure functions over events: no I/O, no clock, no product code.
//!
//! Used by the simulator, by the process tests and by the exhaustive model, which all write the same [`history::Event`]s.
//! Nothing of the product is shared with it on purpose: a wrong comparison of sequence numbers must not judge itself.
//!
//! [`check`] folds a history. At each event the rules look at the `world` as it was before; then the world takes the
//! event in. So a safety rule holds in every prefix, and a rule never knows more than what had happened. Rules never guess:
//! where the events leave open whether a host did wrong, the host is believed.

pub mod history;
pub mod limits;
pub mod policy;
pub mod rules;
pub mod violation;

mod delivering;
mod giving_up;
mod holding;
mod lanes;
mod liveness;
mod rest;
mod settling;
mod state;
mod versions;
mod world;
mod writing;

#[cfg(test)]
mod tests;

pub use limits::{Bounds, Limits, Rate};
pub use violation::{Invariant, Violation};

use delivering::Delivering;
use history::Event;
use holding::Holding;
use liveness::Liveness;
use versions::Versions;
use violation::Report;
use world::World;

/// Judges a history; empty if nothing is wrong. Events must be in the order in which they happened.
pub fn check(history: &[Event], limits: &Limits) -> Vec<Violation> {
    let mut report = Report::default();
    let mut world = World::new(limits);
    let (mut holding, mut versions, mut delivering) = (Holding::default(), Versions::default(), Delivering::default());
    let mut liveness = Liveness::new(limits);
    for event in history {
        report.now = event.at;
        writing::judge(&world, event, &mut report);
        settling::judge(&world, event, &mut report);
        giving_up::judge(&world, event, limits, &mut report);
        rest::judge(&world, event, &mut report);
        state::judge(&world, event, &mut report);
        delivering.judge(&world, event, limits, &mut report);
        holding.judge(&world, event, limits, &mut report);
        versions.judge(event, limits.policy.tries_versions, &mut report);
        world.apply(event);
        liveness.see(&world, event, &mut report);
    }
    report.now = limits.end;
    liveness.finish(&world, &mut report);
    if limits.healed_at.is_some() {
        settling::judge_end(&world, limits, &mut report);
        rest::judge_end(&world, &mut report);
    }
    report.found
}
