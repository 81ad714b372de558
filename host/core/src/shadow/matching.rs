//! Finds for each output of one version its match from the other, on one shard.
//!
//! A version may emit a thing some calls later than the other, so output waits for its match. The
//! order is not compared: within a call it says little, and between calls it follows from when a
//! version emits.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};

use bytes::Bytes;

use crate::stream::Emitted;

/// How many calls after the one version the other may emit the same.
pub const CALLS_APART_MAX: u64 = 20;
/// Outputs of a shard that wait for their match. Before there are more, the oldest count as
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
    /// Outputs whose match did not come in time.
    pub differences: Vec<Difference>,
}

/// The outputs of a shard that wait for their match.
#[derive(Debug, Default)]
pub struct Matching {
    waiting: HashMap<Arc<Emitted>, Surplus>,
    /// Each time that an output began to wait, the oldest first; some wait no longer.
    order: VecDeque<(u64, Weak<Emitted>)>,
    /// How often outputs wait.
    count: usize,
    /// Of the outputs that wait, each counted once.
    bytes: usize,
    calls: u64,
}

/// By how much one version is ahead with an output.
#[derive(Debug)]
struct Surplus {
    side: Side,
    /// The calls at which it began to wait, the oldest first; never empty.
    since: VecDeque<u64>,
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
            self.give_up_oldest(&mut compared.differences);
        }
        compared
    }

    /// Outputs that wait for their match.
    pub fn waiting(&self) -> u64 {
        self.count as u64
    }

    /// Bytes that are kept.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// No more calls follow. Whether the match of what waits would have come nobody knows.
    pub fn end(mut self) -> Vec<Difference> {
        let mut left = Vec::new();
        while !self.order.is_empty() {
            self.give_up_oldest(&mut left);
        }
        left
    }

    /// Whether the other version has emitted the same before; else it waits for that.
    fn is_matched(&mut self, side: Side, output: &Emitted) -> bool {
        if let Some(surplus) = self.waiting.get_mut(output) {
            if surplus.side == side {
                surplus.since.push_back(self.calls);
                self.count += 1;
                self.note_waiting(output);
                return false;
            }
            surplus.since.pop_front();
            self.count -= 1;
            if surplus.since.is_empty() {
                self.forget(output);
            }
            return true;
        }
        // With bytes of its own: it may be a small part of a large frame, which would be kept with
        // it.
        let own = Arc::new(Emitted {
            data: Bytes::copy_from_slice(&output.data),
            ..output.clone()
        });
        self.bytes += own.cost_bytes();
        self.count += 1;
        let since = VecDeque::from([self.calls]);
        self.waiting.insert(own, Surplus { side, since });
        self.note_waiting(output);
        false
    }

    fn note_waiting(&mut self, output: &Emitted) {
        if let Some((kept, _)) = self.waiting.get_key_value(output) {
            self.order.push_back((self.calls, Arc::downgrade(kept)));
        }
    }

    fn forget(&mut self, output: &Emitted) {
        if let Some((kept, _)) = self.waiting.remove_entry(output) {
            self.bytes -= kept.cost_bytes();
        }
    }

    fn is_overdue(&self) -> bool {
        let Some((since, output)) = self.order.front() else {
            return false;
        };
        let is_over = output.strong_count() == 0;
        let is_full = self.count > WAITING_MAX || self.bytes > WAITING_BYTES_MAX;
        is_over || is_full || since + CALLS_APART_MAX <= self.calls
    }

    /// Adds the oldest to `differences`, if it still waits.
    fn give_up_oldest(&mut self, differences: &mut Vec<Difference>) {
        let Some((since, output)) = self.order.pop_front() else {
            return;
        };
        let Some(output) = output.upgrade() else {
            return;
        };
        let Some(surplus) = self.waiting.get_mut(&output) else {
            return;
        };
        // A match takes the oldest: what began to wait at that call may have been matched.
        if surplus.since.front() != Some(&since) {
            return;
        }
        surplus.since.pop_front();
        self.count -= 1;
        let side = surplus.side;
        if surplus.since.is_empty() {
            self.forget(&output);
        }
        match differences.last_mut() {
            Some(last) if last.side == side && last.output == output => last.times += 1,
            _ => differences.push(Difference {
                side,
                output,
                times: 1,
            }),
        }
    }
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
    fn output_whose_match_does_not_come_in_time_is_a_difference_once() {
        let mut matching = Matching::default();
        matching.call(&outputs(&["a", "a", "a", "b"]), &outputs(&["a", "B"]));
        let mut differences = Vec::new();
        for _ in 0..2 * CALLS_APART_MAX {
            differences.extend(matching.call(&[], &[]).differences);
        }
        let expected = [
            (Side::AtWork, "a".to_owned(), 2),
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
    fn output_that_repeats_may_come_later_from_one_of_the_two_for_ever() {
        let mut matching = Matching::default();
        matching.call(&outputs(&["a"]), &[]);
        for _ in 0..10 * CALLS_APART_MAX {
            let compared = matching.call(&outputs(&["a"]), &outputs(&["a", "x"]));
            assert_eq!((compared.same, compared.differences.len()), (1, 0));
            let compared = matching.call(&outputs(&["x"]), &[]);
            assert_eq!((compared.same, compared.differences.len()), (1, 0));
        }
        assert_eq!(matching.waiting(), 1);
    }

    #[test]
    fn what_is_matched_takes_no_room() {
        let large = "x".repeat(1 << 20);
        let pair = [output(&format!("1{large}")), output(&format!("2{large}"))];
        let turned = [pair[1].clone(), pair[0].clone()];
        let mut matching = Matching::default();
        matching.call(&outputs(&["waits"]), &[]);
        let before = matching.bytes();
        for _ in 0..CALLS_APART_MAX - 1 {
            let compared = matching.call(&pair, &turned);
            assert_eq!((compared.same, compared.differences.len()), (2, 0));
        }
        assert_eq!((matching.waiting(), matching.bytes()), (1, before));
    }

    #[test]
    fn neither_many_outputs_nor_large_ones_wait_beyond_the_bound() {
        let many: Vec<Emitted> = (0..30_000).map(|n| output(&n.to_string())).collect();
        let mut matching = Matching::default();
        let differences = matching.call(&many, &[]).differences;
        assert_eq!(differences.len(), 30_000 - WAITING_MAX);
        assert_eq!(matching.end().len(), WAITING_MAX);
        let large = "x".repeat(1 << 20);
        let large: Vec<Emitted> = (0..20).map(|n| output(&format!("{n}{large}"))).collect();
        let mut matching = Matching::default();
        let differences = matching.call(&large, &[]).differences;
        assert!(matching.bytes() <= WAITING_BYTES_MAX);
        assert_eq!(differences.len() + matching.end().len(), 20);
        assert!(differences.len() >= 16, "{}", differences.len());
    }
}
