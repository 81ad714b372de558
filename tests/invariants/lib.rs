//! What must hold of every history of a fleet, as pure functions over events: no I/O, no clock, no
//! product code.
//!
//! Used by the simulator, by the process tests and by the exhaustive model, which all write the
//! same [`history::Event`]s. Nothing of the product is shared with it on purpose: a wrong
//! comparison of sequence numbers must not judge itself.
//!
//! [`check`] folds a history. At each event the rules look at the `world` as it was before; then
//! the world takes the event in. So a safety rule holds in every prefix, and a rule never knows
//! more than what had happened. Rules never guess: where the events leave open whether a host did
//! wrong, the host is believed.

pub mod history;
pub mod limits;
pub mod policy;
pub mod rules;
pub mod violation;

mod by_name;
mod commands;
mod delivering;
mod gaps;
mod giving_up;
mod holding;
mod lanes;
mod liveness;
mod outputs;
mod pace;
mod progress;
mod releasing;
mod rest;
mod settling;
mod starting;
mod state;
mod versions;
mod world;
mod writing;

#[cfg(test)]
mod tests;

pub use limits::{Bounds, InitialPosition, Limits, Rate};
pub use violation::{Invariant, Violation};

use std::collections::BTreeMap;

use by_name::ByName;
use commands::Commands;
use delivering::Delivering;
use gaps::Gaps;
use history::{Event, PluginEvent};
use holding::Holding;
use liveness::Liveness;
use outputs::Outputs;
use pace::Pace;
use progress::Progress;
use releasing::Releasing;
use starting::Starting;
use versions::Versions;
use violation::Report;
use world::World;

/// Judges a history; empty if nothing is wrong. Events must be in the order in which they happened.
pub fn check(history: &[Event], limits: &Limits) -> Vec<Violation> {
    judge(history.iter(), limits)
}

/// Judges the plugins of a fleet, whose events are in one history: each by its own limits and by
/// what concerns it.
pub fn check_plugins(
    history: &[PluginEvent],
    limits: &BTreeMap<String, Limits>,
) -> Vec<(String, Violation)> {
    let mut found = Vec::new();
    for (plugin, limits) in limits {
        let concerns = |event: &&PluginEvent| event.plugin.as_ref().is_none_or(|of| of == plugin);
        let events = history.iter().filter(concerns).map(|event| &event.event);
        found.extend(
            judge(events, limits)
                .into_iter()
                .map(|violation| (plugin.clone(), violation)),
        );
    }
    found
}

fn judge<'a>(history: impl Iterator<Item = &'a Event>, limits: &Limits) -> Vec<Violation> {
    let mut report = Report::default();
    let mut world = World::new(limits);
    let (mut holding, mut versions, mut delivering) = (
        Holding::default(),
        Versions::default(),
        Delivering::default(),
    );
    let mut releasing = Releasing::default();
    let (mut starting, mut outputs, mut gaps) =
        (Starting::default(), Outputs::default(), Gaps::default());
    let (mut liveness, mut progress, mut pace) =
        (Liveness::new(limits), Progress::default(), Pace::default());
    let (mut by_name, mut commands) = (ByName::default(), Commands::default());
    for event in history {
        report.now = event.at;
        world.meet(event);
        writing::judge(&world, event, &mut report);
        settling::judge(&world, event, &mut report);
        giving_up::judge(&world, event, limits, &mut report);
        releasing.judge(&world, &holding, event, limits, &mut report);
        rest::judge(&world, event, &mut report);
        state::judge(&world, event, &mut report);
        delivering.judge(&world, event, limits, &mut report);
        holding.judge(&world, event, limits, &mut report);
        versions.judge(event, limits.policy.tries_versions, &mut report);
        starting.judge(&world, event, limits, &mut report);
        outputs.judge(&world, event, &mut report);
        gaps.judge(&world, event, &mut report);
        commands.judge(&world, event, limits, &mut report);
        pace.judge(&world, event, limits, &mut report);
        liveness.meet(&world, event.at, &mut report);
        let given_back_by_name = holding.given_back_by_name(event, limits);
        world.apply(event);
        if let Some(key) = given_back_by_name {
            world.given_back_by_name(key);
        }
        liveness.see(&world, event, &mut report);
        progress.see(&world, &holding, event, limits, &mut report);
        by_name.see(&world, &holding, event, limits, &mut report);
    }
    report.now = limits.end;
    liveness.finish(&world, &mut report);
    progress.finish(&world, &holding, limits, &mut report);
    pace.calm_ends(&world, limits.end, limits, &mut report);
    if limits.healed_at.is_some() {
        settling::judge_end(&world, limits, &mut report);
        rest::judge_end(&world, &mut report);
        gaps.judge_end(&world, &mut report);
    }
    report.found
}
