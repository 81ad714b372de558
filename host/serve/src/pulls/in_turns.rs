//! Which host takes up a deployed version with other settings before all others.

use shardmill_core::artifact::{Wanted, WantedBy};
use shardmill_core::lease::WorkerId;
use shardmill_core::ports::Clock;
use shardmill_core::rollout::Turn;

use super::orders::OrderBook;
use crate::clock::BootClock;

/// Whose turn it is, as far as this host has to wait for it.
#[derive(Debug, Default)]
pub(super) struct InTurns {
    turn: Option<Turn>,
    /// The version that comes with other settings than this host has.
    changes_settings: Option<String>,
}

impl InTurns {
    /// Whether one host has to try the version before all others, if it comes with other settings.
    pub(super) fn apply(wanted: &Wanted, orders: &OrderBook) -> bool {
        let in_turns = wanted.by == WantedBy::Deploy { is_in_turns: true };
        in_turns && orders.unproven().is_some()
    }

    /// Looks at the hosts: from the first look on, when nobody knows yet whether the settings are
    /// others. If the same version is deployed once more, the turns begin anew.
    pub(super) fn look(&mut self, wanted: &Wanted, orders: &OrderBook) {
        if !Self::apply(wanted, orders) {
            self.turn = None;
            return;
        }
        let (text, now) = (wanted.reference.as_text(), BootClock.now());
        let known = self.turn.take().filter(|turn| turn.is_about(&text));
        let turn = self.turn.insert(known.unwrap_or(Turn::new(text, now)));
        orders.look_at_turn(turn, now);
    }

    /// What was pulled has other settings.
    pub(super) fn settings_change(&mut self, wanted: &Wanted) {
        self.changes_settings = Some(wanted.reference.as_text());
    }

    /// Whether `me` waits until another host has tried the settings.
    pub(super) fn waits(&self, wanted: &Wanted, orders: &OrderBook, me: &WorkerId) -> bool {
        let text = wanted.reference.as_text();
        let Some(turn) = self.turn.as_ref().filter(|turn| turn.is_about(&text)) else {
            return false;
        };
        let is_needed = Self::apply(wanted, orders) && self.changes_settings == Some(text);
        let has_waited = turn.lasts(BootClock.now()) >= orders.patience();
        is_needed && !has_waited && !turn.is_of(me)
    }
}
