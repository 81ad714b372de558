//! Which plugin is next, where plugins are served one at a time and some take far longer than
//! others.
//!
//! With first come, first served, five plugins that take a minute each would delay a sixth that
//! takes a moment, again and again. So the plugin that has had the least time is next. A slow one
//! waits for the others, but only until they have had as much time, so none waits for ever. Nor
//! does it wait for names that are always new, and have had none: what it waits through counts for
//! it.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::plugin::PluginName;

/// Plugins whose time is remembered: ten times as many as a host has. Beyond that, those with the
/// least time are forgotten, which changes the order least.
const REMEMBERED_MAX: usize = 1_000;

/// How much of the time that others had while a plugin waited is taken off its own: one part in so
/// many. So a plugin waits through eight times the time that it had, at most, whatever the names of
/// the others. With much more of it, slow plugins that wait for each other would soon be first.
const WAITED_PARTS: u32 = 8;

/// The plugins that wait, and the time that each has had so far.
#[derive(Debug, Default)]
pub struct Turns {
    given: BTreeMap<PluginName, Duration>,
    /// What all have had.
    total: Duration,
    /// By arrival number.
    waiting: BTreeMap<u64, Waiting>,
    arrivals: u64,
}

#[derive(Debug)]
struct Waiting {
    name: PluginName,
    /// What all had had when it came.
    total_before: Duration,
}

impl Turns {
    /// Queues a plugin; returns the number of this arrival.
    pub fn arrive(&mut self, name: &PluginName) -> u64 {
        self.arrivals += 1;
        let waiting = Waiting {
            name: name.clone(),
            total_before: self.total,
        };
        self.waiting.insert(self.arrivals, waiting);
        self.arrivals
    }

    /// Takes the next arrival from the queue: the first of those whose plugins have had the least
    /// time, less what counts for them.
    pub fn call(&mut self) -> Option<u64> {
        let next = self
            .waiting
            .iter()
            .min_by_key(|(_, waiting)| self.time_that_counts(waiting));
        let arrival = *next?.0;
        self.waiting.remove(&arrival);
        Some(arrival)
    }

    /// The time that the plugin has had, less a part of the time that it has waited.
    fn time_that_counts(&self, waiting: &Waiting) -> Duration {
        let given = self.given.get(&waiting.name).copied().unwrap_or_default();
        let waited = self.total.saturating_sub(waiting.total_before);
        given.saturating_sub(waited / WAITED_PARTS)
    }

    /// Adds the time that a plugin's turn took.
    pub fn served(&mut self, name: &PluginName, time: Duration) {
        self.total += time;
        *self.given.entry(name.clone()).or_default() += time;
        if self.given.len() > REMEMBERED_MAX {
            let least = self.given.iter().min_by_key(|(_, given)| **given);
            if let Some(name) = least.map(|(name, _)| name.clone()) {
                self.given.remove(&name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plugin(name: &str) -> PluginName {
        PluginName::new(name).unwrap()
    }

    #[test]
    fn who_comes_first_is_served_first_among_those_who_had_as_much() {
        let mut turns = Turns::default();
        let arrivals = ["ccc", "aaa", "bbb"].map(|name| turns.arrive(&plugin(name)));
        assert_eq!(
            [turns.call(), turns.call(), turns.call()],
            arrivals.map(Some)
        );
        assert_eq!(turns.call(), None);
    }

    #[test]
    fn plugins_that_take_long_let_one_that_takes_a_moment_go_first() {
        let mut turns = Turns::default();
        let slow: Vec<_> = (0..5).map(|n| plugin(&format!("slow-{n}"))).collect();
        let quick = plugin("quick");
        for name in &slow {
            turns.served(name, Duration::from_mins(1));
        }
        turns.served(&quick, Duration::from_millis(100));
        for name in &slow {
            turns.arrive(name);
        }
        let last = turns.arrive(&quick);
        assert_eq!(turns.call(), Some(last));
    }

    #[test]
    fn nobody_waits_for_longer_than_until_the_others_had_as_much() {
        let mut turns = Turns::default();
        let (slow, quick) = (plugin("slow"), plugin("quick"));
        turns.served(&slow, Duration::from_secs(30));
        let waiting = turns.arrive(&slow);
        // Its file changes each time it was compiled.
        let mut served = Duration::ZERO;
        loop {
            turns.arrive(&quick);
            if turns.call() == Some(waiting) {
                break;
            }
            served += Duration::from_secs(1);
            turns.served(&quick, Duration::from_secs(1));
            assert!(served <= Duration::from_secs(30), "{served:?}");
        }
    }

    #[test]
    fn names_that_are_always_new_do_not_keep_a_known_plugin_waiting_for_ever() {
        for (takes, turns_max) in [(1, 16), (100, 1)] {
            let mut turns = Turns::default();
            let known = plugin("known");
            turns.served(&known, Duration::from_secs(2));
            let waits = turns.arrive(&known);
            let mut before = 0;
            loop {
                let new = plugin(&format!("new-{before}"));
                turns.arrive(&new);
                if turns.call() == Some(waits) {
                    break;
                }
                turns.served(&new, Duration::from_secs(takes));
                before += 1;
                assert!(before <= turns_max, "{before} turns of {takes} s");
            }
        }
    }

    #[test]
    fn slow_plugins_that_wait_for_each_other_still_let_a_quick_one_go_first() {
        let mut turns = Turns::default();
        let quick = plugin("quick");
        turns.served(&quick, Duration::from_millis(100));
        let mut names = BTreeMap::new();
        for n in 0..5 {
            let slow = plugin(&format!("slow-{n}"));
            turns.served(&slow, Duration::from_secs(30));
            names.insert(turns.arrive(&slow), slow);
        }
        for round in 0..50 {
            let of_quick = turns.arrive(&quick);
            assert_eq!(turns.call(), Some(of_quick), "round {round}");
            let slow = names.remove(&turns.call().unwrap()).unwrap();
            turns.served(&slow, Duration::from_secs(30));
            names.insert(turns.arrive(&slow), slow);
        }
    }

    #[test]
    fn what_is_remembered_is_bounded_and_the_slow_ones_stay_known() {
        let mut turns = Turns::default();
        let slow = plugin("slow");
        turns.served(&slow, Duration::from_mins(1));
        for n in 0..2 * REMEMBERED_MAX {
            turns.served(&plugin(&format!("other-{n}")), Duration::from_secs(1));
        }
        assert_eq!(turns.given.len(), REMEMBERED_MAX);
        assert!(turns.given.contains_key(&slow));
    }
}
