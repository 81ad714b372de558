//! What a dry run does, one step after another, and in which host.

use std::time::Duration;

/// A step. The next one begins once it is done.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Lets so many more records arrive, and waits until they are settled.
    Deliver(usize),
    /// Swaps the version.
    Swap,
    /// Lets time pass for the plugin.
    LetPass(Duration),
    /// Ends all shards.
    EndShards,
}

/// What a dry run does besides delivering its records.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Besides {
    /// Records after which it swaps the version.
    pub(super) swap_after: Option<usize>,
    /// Records after which another host takes over.
    pub(super) hand_over_after: Option<usize>,
    /// How much time passes once all records are settled.
    pub(super) passes: Option<Duration>,
    /// Whether all shards end at last.
    pub(super) ends_shards: bool,
}

/// The steps of each host, one host after the other.
pub(super) fn steps_of(besides: Besides) -> Vec<Vec<Step>> {
    let mut hosts = vec![Vec::new()];
    let mut delivered = 0;
    for (after, is_hand_over) in stops_of(besides) {
        add(&mut hosts, Step::Deliver(after - delivered));
        delivered = after;
        if is_hand_over {
            hosts.push(Vec::new());
        } else {
            add(&mut hosts, Step::Swap);
        }
    }
    add(&mut hosts, Step::Deliver(usize::MAX));
    if let Some(time) = besides.passes {
        add(&mut hosts, Step::LetPass(time));
    }
    if besides.ends_shards {
        add(&mut hosts, Step::EndShards);
    }
    hosts
}

/// After how many records in all it stops to do something else, and whether that is to hand over.
fn stops_of(besides: Besides) -> Vec<(usize, bool)> {
    let mut stops = Vec::new();
    stops.extend(besides.swap_after.map(|after| (after, false)));
    stops.extend(besides.hand_over_after.map(|after| (after, true)));
    stops.sort_unstable();
    stops
}

fn add(hosts: &mut [Vec<Step>], step: Step) {
    if let Some(steps) = hosts.last_mut() {
        steps.push(step);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_delivers_up_to_each_stop_and_does_the_rest_in_the_last_host() {
        let hour = Duration::from_hours(1);
        let all = Besides {
            swap_after: Some(500),
            hand_over_after: Some(200),
            passes: Some(hour),
            ends_shards: true,
        };
        let first = vec![Step::Deliver(200)];
        let second = vec![
            Step::Deliver(300),
            Step::Swap,
            Step::Deliver(usize::MAX),
            Step::LetPass(hour),
            Step::EndShards,
        ];
        assert_eq!(steps_of(all), [first, second]);
        let none = Besides::default();
        assert_eq!(steps_of(none), [[Step::Deliver(usize::MAX)]]);
    }

    #[test]
    fn a_swap_and_a_hand_over_at_once_are_a_swap_first() {
        let both = Besides {
            swap_after: Some(7),
            hand_over_after: Some(7),
            ..Besides::default()
        };
        let first = vec![Step::Deliver(7), Step::Swap, Step::Deliver(0)];
        assert_eq!(steps_of(both), [first, vec![Step::Deliver(usize::MAX)]]);
    }
}
