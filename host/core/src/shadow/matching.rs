//! Finds for each output of one version the same output of the other, on one shard.
//!
//! A version may emit a thing some calls later than the other, so output waits for its like. The
//! order is not compared: within a call it says little, and between calls it follows from when a
//! version emits.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;

use crate::stream::Emitted;

/// How many calls after the one version the other may emit the same.
pub const CALLS_APART_MAX: u64 = 20;
/// Outputs of a shard that wait for their like. Before there are more, the oldest count as
/// different.
const WAITING_MAX: usize = 10_000;
/// Bytes of a shard's outputs that wait, as they are kept in memory.
const WAITING_BYTES_MAX: usize = 4 << 20;

/// One of the two versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The version at work, whose output is stored.
    AtWork,
    /// The version in its shadow.
    Shadow,
}

/// Output that only one version emitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The version that emitted it.
    pub side: Side,
    /// The sink, the key and the data.
    pub output: Arc<Emitted>,
    /// How often it did so more than the other.
    pub times: u64,
}

/// What came of comparing one more call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Compared {
    /// Outputs that both versions have emitted by now, and had not before.
    pub same: u64,
    /// Outputs for which no like came in time.
    pub differences: Vec<Difference>,
}

/// The outputs of a shard that wait for their like.
#[derive(Debug, Default)]
pub struct Matching {
    waiting: HashMap<Arc<Emitted>, Surplus>,
    /// In the order in which they began to wait; some do not wait any more.
    order: VecDeque<(u64, Arc<Emitted>)>,
    /// Of those in `order`.
    bytes: usize,
    calls: u64,
}

/// By how much one version is ahead with an output.
#[derive(Debug, Clone, Copy)]
struct Surplus {
    side: Side,
    times: u64,
    /// The call at which it began.
    since: u64,
}

impl Matching {
    /// Takes in what both versions emitted in one more call.
    pub fn call(&mut self, at_work: &[Emitted], shadow: &[Emitted]) -> Compared {
        self.calls += 1;
        let mut compared = Compared::default();
        if at_work == shadow {
            compared.same = at_work.len() as u64;
        } else {
            for (side, outputs) in [(Side::AtWork, at_work), (Side::Shadow, shadow)] {
                for output in outputs {
                    compared.same += u64::from(self.is_matched(side, output));
                }
            }
        }
        while self.is_overdue() {
            compared.differences.extend(self.give_up_oldest());
        }
        compared
    }

    /// Outputs that wait for their like.
    pub fn waiting(&self) -> u64 {
        self.waiting.values().map(|surplus| surplus.times).sum()
    }

    /// Bytes that are kept.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Gives up the oldest until no more than these bytes are kept: they count as different.
    pub fn reduce(&mut self, bytes_max: usize) -> Vec<Difference> {
        let mut differences = Vec::new();
        while self.bytes > bytes_max && !self.order.is_empty() {
            differences.extend(self.give_up_oldest());
        }
        differences
    }

    /// No more calls follow. Whether what waits would have come nobody knows.
    pub fn end(mut self) -> Vec<Difference> {
        self.reduce(0)
    }

    /// Whether the other version has emitted the same before; else it waits for that.
    fn is_matched(&mut self, side: Side, output: &Emitted) -> bool {
        if let Some(surplus) = self.waiting.get_mut(output) {
            if surplus.side == side {
                surplus.times += 1;
                return false;
            }
            surplus.times -= 1;
            if surplus.times == 0 {
                self.waiting.remove(output);
            }
            return true;
        }
        // With bytes of its own: it may be a small part of a large frame, which would be kept with it.
        let output = Arc::new(Emitted {
            data: Bytes::copy_from_slice(&output.data),
            ..output.clone()
        });
        let surplus = Surplus {
            side,
            times: 1,
            since: self.calls,
        };
        self.bytes += bytes_of(&output);
        self.order.push_back((self.calls, Arc::clone(&output)));
        self.waiting.insert(output, surplus);
        false
    }

    fn is_overdue(&self) -> bool {
        let is_late = |(since, _): &(u64, Arc<Emitted>)| since + CALLS_APART_MAX <= self.calls;
        let is_full = self.order.len() > WAITING_MAX || self.bytes > WAITING_BYTES_MAX;
        is_full || self.order.front().is_some_and(is_late)
    }

    /// The oldest, if it still waits.
    fn give_up_oldest(&mut self) -> Option<Difference> {
        let (since, output) = self.order.pop_front()?;
        self.bytes -= bytes_of(&output);
        let surplus = self.waiting.get(&output)?;
        if surplus.since != since {
            // It was matched, and came again later.
            return None;
        }
        let difference = Difference {
            side: surplus.side,
            times: surplus.times,
            output: Arc::clone(&output),
        };
        self.waiting.remove(&output);
        debug_assert!(difference.times > 0, "what is matched does not wait");
        Some(difference)
    }
}

fn bytes_of(output: &Emitted) -> usize {
    size_of::<Emitted>() + output.destination.len() + output.key.len() + output.data.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(data: &str) -> Emitted {
        Emitted {
            destination: "out".to_owned(),
            key: "key".to_owned(),
            data: data.to_owned().into(),
        }
    }

    fn outputs(data: &[&str]) -> Vec<Emitted> {
        data.iter().map(|data| output(data)).collect()
    }

    fn found(differences: &[Difference]) -> Vec<(Side, String, u64)> {
        let shown = |one: &Difference| {
            let data = String::from_utf8_lossy(&one.output.data).into_owned();
            (one.side, data, one.times)
        };
        differences.iter().map(shown).collect()
    }

    #[test]
    fn outputs_match_in_whatever_order_and_call_they_come() {
        let mut matching = Matching::default();
        let compared = matching.call(&outputs(&["a", "b"]), &outputs(&["b", "a"]));
        assert_eq!((compared.same, compared.differences.len()), (2, 0));
        assert_eq!(matching.call(&outputs(&["c"]), &[]).same, 0);
        for _ in 0..CALLS_APART_MAX - 2 {
            assert_eq!(matching.call(&[], &[]), Compared::default());
        }
        let compared = matching.call(&[], &outputs(&["c"]));
        assert_eq!((compared.same, compared.differences.len()), (1, 0));
        assert_eq!(matching.end(), []);
    }

    #[test]
    fn output_for_which_no_like_comes_in_time_is_a_difference_once() {
        let mut matching = Matching::default();
        matching.call(&outputs(&["a", "a", "b"]), &outputs(&["a", "B"]));
        let mut differences = Vec::new();
        for _ in 0..2 * CALLS_APART_MAX {
            differences.extend(matching.call(&[], &[]).differences);
        }
        let expected = [
            (Side::AtWork, "a".to_owned(), 1),
            (Side::AtWork, "b".to_owned(), 1),
            (Side::Shadow, "B".to_owned(), 1),
        ];
        assert_eq!(found(&differences), expected);
        assert_eq!(matching.end(), []);
    }

    #[test]
    fn output_that_was_matched_and_comes_again_has_its_full_time() {
        let mut matching = Matching::default();
        matching.call(&outputs(&["a"]), &[]);
        matching.call(&[], &outputs(&["a"]));
        for _ in 0..CALLS_APART_MAX / 2 {
            matching.call(&[], &[]);
        }
        matching.call(&outputs(&["a"]), &[]);
        assert_eq!(matching.waiting(), 1);
        // The first one's time is over, which was matched.
        for _ in 0..CALLS_APART_MAX / 2 + 2 {
            assert_eq!(matching.call(&[], &[]).differences, []);
        }
        assert_eq!(found(&matching.end()), [(Side::AtWork, "a".to_owned(), 1)]);
    }

    #[test]
    fn neither_many_outputs_nor_large_ones_wait_beyond_the_bound() {
        let many: Vec<Emitted> = (0..30_000).map(|n| output(&n.to_string())).collect();
        let mut matching = Matching::default();
        let differences = matching.call(&many, &[]).differences;
        assert_eq!(differences.len(), 30_000 - WAITING_MAX);
        assert_eq!(matching.end().len(), WAITING_MAX);
        let mut matching = Matching::default();
        matching.call(&outputs(&["a", "b", "c"]), &[]);
        assert_eq!(matching.waiting(), 3);
        assert_eq!(matching.reduce(matching.bytes() - 1).len(), 1);
        assert_eq!(matching.reduce(0).len(), 2);
        assert_eq!((matching.waiting(), matching.bytes()), (0, 0));
        let large = "x".repeat(1 << 20);
        let large: Vec<Emitted> = (0..20).map(|n| output(&format!("{n}{large}"))).collect();
        let mut matching = Matching::default();
        let differences = matching.call(&large, &[]).differences;
        assert_eq!(differences.len() + matching.end().len(), 20);
        assert!(differences.len() >= 16, "{}", differences.len());
    }
}
