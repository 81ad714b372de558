//! How far one holding of a shard has come: what was handed out, what of it is settled, and what of
//! that is not in the row yet.

use std::time::Duration;

use super::arrivals::Arrivals;
use super::checkpoint_policy::Unwritten;
use super::held_back::HeldBack;
use super::{CheckpointPolicy, CheckpointReason, Ledger, committed};
use crate::ports::Commit;
use crate::seeded_bug::SeededBug;
use crate::stream::{Position, Record};
use crate::time::Moment;

/// See the module's description. It begins at the checkpoint that the holding found in the row.
#[derive(Debug, Default)]
pub struct Headway {
    ledger: Ledger,
    /// The last record that may be checkpointed once outputs are flushed.
    settled: Option<Position>,
    unwritten: Unwritten,
    arrivals: Arrivals,
    held_back: HeldBack,
}

impl Headway {
    /// Nothing was handed out yet. `keeps_state`: whether what the plugin handles is settled only
    /// with its state.
    pub fn new(keeps_state: bool) -> Self {
        let ledger = if keeps_state {
            Ledger::with_state()
        } else {
            Ledger::default()
        };
        Self {
            ledger,
            ..Self::default()
        }
    }

    /// What came of the records handed out.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Everything up to and including this may be checkpointed once outputs are flushed; `None` if
    /// nothing was settled in this holding.
    pub fn settled(&self) -> Option<&Position> {
        self.settled.as_ref()
    }

    /// When the last settled record arrived, in milliseconds since the Unix epoch, if that is
    /// known.
    pub fn settled_arrival_ms(&self) -> Option<u64> {
        self.arrivals.up_to(self.settled.as_ref()?)
    }

    /// When the oldest record arrived that was handed out and is not settled, in milliseconds since
    /// the Unix epoch. Older than the truth, never younger; `None` if all is settled.
    pub fn oldest_unsettled_ms(&self) -> Option<u64> {
        self.arrivals.oldest_after(self.settled.as_ref())
    }

    /// How many records the plugin holds back.
    pub fn held_back(&mut self) -> u64 {
        if !self.ledger.holds_back() {
            self.held_back.clear();
        }
        self.held_back.records()
    }

    /// Hands out the record at `position` apart from its batch, as [`Ledger::hand_out`] does. False
    /// if it was given up before: then it is settled, which is for [`Headway::settle`] to find.
    pub fn hand_out(&mut self, position: &Position, now: Moment) -> bool {
        let is_to_be_delivered = self.ledger.hand_out(position);
        if !is_to_be_delivered {
            // With state, what was given up before is settled by the next save only, which must be
            // due then.
            self.unwritten.add(0, 0, now);
        }
        is_to_be_delivered
    }

    /// Hands out the records of a run that go into strands: each is open until its strand has
    /// settled it, so the checkpoint passes none that is slow. They come after all records that
    /// were handed out so far, and none of them was given up.
    pub fn hand_out_run(&mut self, run: &[Record]) {
        self.arrivals.delivering(run, self.settled.as_ref());
        if SeededBug::CheckpointPassesSlowStrand.is_on() {
            return;
        }
        for record in run {
            self.ledger.hand_out(&record.position);
        }
    }

    /// A batch is about to be delivered.
    pub fn delivering(&mut self, batch: &[Record]) {
        self.arrivals.delivering(batch, self.settled.as_ref());
    }

    /// Passes records up to `position`, which arrived at `arrival_ms` and are not for the plugin,
    /// as
    /// [`Ledger::pass`] does.
    pub fn pass(&mut self, position: &Position, arrival_ms: u64, now: Moment) {
        self.ledger.pass(position);
        self.arrivals
            .passed(position, arrival_ms, self.settled.as_ref());
        // With state, they are settled by the next save only, which must be due then.
        self.unwritten.add(0, 0, now);
    }

    /// Takes in what came of a delivery, as [`Ledger::report`] does: the indexes of the records
    /// that `failed`, which rise, and how far the plugin commits the others.
    pub fn report(&mut self, batch: &[Record], failed: &[usize], commit: Option<Commit>) {
        self.ledger.report(batch, failed, commit);
        let Some(last) = batch.last() else {
            return;
        };
        let committed = committed(commit, batch.len());
        let failed_beyond = failed.iter().filter(|index| **index >= committed).count();
        let held_back = batch.len() - committed - failed_beyond;
        self.held_back.add(last.position.clone(), held_back as u64);
    }

    /// The plugin was called because time has passed. With state, a save is due then, even if no
    /// record was handed out.
    pub fn ticked(&mut self, now: Moment) {
        self.ledger.ticked();
        if self.ledger.may_save() {
            self.unwritten.add(0, 0, now);
        }
    }

    /// The plugin commits all that it holds back, which is for [`Headway::settle`] to find. With
    /// state, it is settled by the next save, which is due then.
    pub fn commit_held_back(&mut self, now: Moment) {
        self.ledger.commit_held_back();
        self.held_back.clear();
        if self.ledger.may_save() {
            self.unwritten.add(0, 0, now);
        }
    }

    /// Settles a record that is given up.
    pub fn give_up(&mut self, record: &Record, now: Moment) {
        self.ledger.give_up(&record.position);
        self.handled(1, record.data.len() as u64, now);
    }

    /// Counts `records` of `bytes` that were handled, for the next checkpoint.
    pub fn handled(&mut self, records: u64, bytes: u64, now: Moment) {
        self.unwritten.add(records, bytes, now);
    }

    /// Takes over from the ledger how far everything is settled. The position, if that is further
    /// than before.
    pub fn settle(&mut self, now: Moment) -> Option<&Position> {
        let settled = self.ledger.settled()?;
        if Some(settled) <= self.settled.as_ref() {
            return None;
        }
        self.held_back.settled(settled);
        self.unwritten.add(0, 0, now);
        self.settled = Some(settled.clone());
        self.settled.as_ref()
    }

    /// The plugin's state was saved: everything handed out is settled by it.
    pub fn saved(&mut self) {
        self.ledger.saved();
    }

    /// Reading starts again after what is settled.
    pub fn rewind(&mut self) {
        self.ledger.rewind();
    }

    /// Whether, and why, to write a checkpoint now.
    pub fn checkpoint_due(
        &self,
        policy: &CheckpointPolicy,
        now: Moment,
    ) -> Option<CheckpointReason> {
        self.unwritten.due(policy, now)
    }

    /// How long until age alone makes a checkpoint due; `None` if there is nothing to write.
    pub fn checkpoint_due_in(&self, policy: &CheckpointPolicy, now: Moment) -> Option<Duration> {
        self.unwritten.due_in(policy, now)
    }

    /// Everything settled is in the row.
    pub fn written(&mut self) {
        self.unwritten.clear();
    }

    /// What could not be written now is due again after the policy's age.
    pub fn postpone(&mut self, now: Moment) {
        self.unwritten.postpone(now);
    }

    /// Replaces what is settled. Only seeded bugs do that.
    pub fn misjudge(&mut self, settled: Option<Position>) {
        self.settled = settled;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::SequenceNumber;

    fn at(seconds: u64) -> Moment {
        Moment::from_origin(Duration::from_secs(seconds))
    }

    fn position(number: u64) -> Position {
        Position::plain(SequenceNumber::parse(&number.to_string()).unwrap())
    }

    fn batch(numbers: std::ops::Range<u64>) -> Vec<Record> {
        let record = |number| Record {
            data: "x".into(),
            partition_key: "k".to_owned(),
            explicit_hash_key: None,
            position: position(number),
            arrival_ms: 1_000 + number,
        };
        numbers.map(record).collect()
    }

    #[test]
    fn what_is_handled_is_settled_once_and_due_for_a_checkpoint_by_age() {
        let policy = CheckpointPolicy {
            age: Duration::from_secs(3),
            ..CheckpointPolicy::default()
        };
        let mut headway = Headway::new(false);
        let records = batch(1..4);
        headway.delivering(&records);
        assert_eq!(headway.oldest_unsettled_ms(), Some(1_001));
        headway.report(&records, &[], None);
        assert_eq!(headway.settle(at(1)), Some(&position(3)));
        assert_eq!(headway.settle(at(2)), None, "nothing more since");
        assert_eq!(headway.settled_arrival_ms(), Some(1_003));
        assert_eq!(headway.oldest_unsettled_ms(), None);
        assert_eq!(
            headway.checkpoint_due_in(&policy, at(2)),
            Some(Duration::from_secs(2))
        );
        headway.written();
        assert_eq!(headway.checkpoint_due_in(&policy, at(9)), None);
    }

    #[test]
    fn records_that_are_held_back_are_counted_without_those_that_failed_behind_the_commit() {
        let mut headway = Headway::new(false);
        let records = batch(1..11);
        headway.delivering(&records);
        // Two are committed; of the eight others one failed.
        headway.report(&records, &[5], Some(Commit::Through(1)));
        assert_eq!(headway.settle(at(0)), Some(&position(2)));
        assert_eq!(headway.held_back(), 7);
        headway.rewind();
        assert_eq!(headway.held_back(), 0, "the instance is gone");
    }

    #[test]
    fn records_that_are_not_for_the_plugin_are_settled_unless_an_earlier_one_is_open() {
        let policy = CheckpointPolicy::default();
        let mut headway = Headway::new(false);
        headway.pass(&position(3), 1_003, at(1));
        assert_eq!(headway.settle(at(1)), Some(&position(3)));
        assert_eq!(headway.settled_arrival_ms(), Some(1_003));
        assert_eq!(headway.oldest_unsettled_ms(), None);
        assert_eq!(headway.checkpoint_due_in(&policy, at(1)), Some(policy.age));
        let records = batch(4..6);
        headway.delivering(&records);
        headway.report(&records, &[1], None);
        headway.pass(&position(9), 1_009, at(2));
        assert_eq!(headway.settle(at(2)), Some(&position(4)), "5 failed");
        assert_eq!(
            headway.oldest_unsettled_ms(),
            Some(1_004),
            "the first of its batch: older than the truth, never younger"
        );
        headway.pass(&position(7), 1_007, at(2));
        headway.report(&records[1..], &[], None);
        assert_eq!(headway.settle(at(3)), Some(&position(9)));
        assert_eq!(headway.settled_arrival_ms(), Some(1_009));
        headway.rewind();
        assert_eq!(headway.ledger().handed_out(), Some(&position(9)));
    }

    #[test]
    fn with_state_records_that_are_not_for_the_plugin_are_settled_by_the_next_save() {
        let policy = CheckpointPolicy::default();
        let mut headway = Headway::new(true);
        headway.pass(&position(3), 0, at(1));
        assert_eq!(headway.settle(at(1)), None);
        assert_eq!(headway.checkpoint_due_in(&policy, at(1)), Some(policy.age));
        assert!(headway.ledger().may_save());
        headway.saved();
        assert_eq!(headway.settle(at(2)), Some(&position(3)));
    }

    #[test]
    fn with_state_a_record_that_was_given_up_before_makes_a_save_due() {
        let policy = CheckpointPolicy::default();
        let mut headway = Headway::new(true);
        let records = batch(1..3);
        headway.report(&records, &[0, 1], None);
        headway.give_up(&records[0], at(0));
        headway.written();
        headway.rewind();
        assert!(!headway.hand_out(&position(1), at(5)));
        assert_eq!(headway.checkpoint_due_in(&policy, at(5)), Some(policy.age));
        assert!(headway.hand_out(&position(2), at(5)));
    }
}
