//! Which plugin is next, where plugins are served one at a time and some take far longer than
//! others.
//!
//! With first come, first served, five plugins that take a minute each would delay a sixth that
//! takes a moment, again and again. So the plugin that has had the least time is next. A slow one
//! waits for the others, but only until they have had as much time, so none waits for ever.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::plugin::PluginName;

/// Plugins whose time is remembered: ten times as many as a host has. Beyond that, those with the
/// least time are forgotten, which changes the order least.
const REMEMBERED_MAX: usize = 1_000;

/// The plugins that wait, and the time that each has had so far.
#[derive(Debug, Default)]
pub struct Turns {
    given: BTreeMap<PluginName, Duration>,
    /// By arrival number.
    waiting: BTreeMap<u64, PluginName>,
    arrivals: u64,
}

impl Turns {
    /// Queues a plugin; returns the number of this arrival.
    pub fn arrive(&mut self, name: &PluginName) -> u64 {
        self.arrivals += 1;
        self.waiting.insert(self.arrivals, name.clone());
        self.arrivals
    }

    /// Takes the next arrival from the queue: the first of those whose plugins have had the least
    /// time.
    pub fn call(&mut self) -> Option<u64> {
        let given = |name: &PluginName| self.given.get(name).copied().unwrap_or_default();
        let next = self.waiting.iter().min_by_key(|(_, name)| given(name));
        let arrival = *next?.0;
        self.waiting.remove(&arrival);
        Some(arrival)
    }

    /// Adds the time that a plugin's turn took.
    pub fn served(&mut self, name: &PluginName, time: Duration) {
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
