//! What a live instance was given since its state was last known.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use crate::stream::{Batch, Record};

/// Batches that are kept at most of one instance. An instance that keeps state saves it at each
/// checkpoint, after a few batches; of one that keeps none, what is older hardly matters.
const RUN_UP_BATCHES_MAX: usize = 64;

/// The state that a live instance started from or saved, and the newest batches that it was given
/// since. Bounded by number, 64, and by bytes, which the caller names each time.
#[derive(Debug, Default)]
pub struct RunUp {
    state: Option<Bytes>,
    is_state_missing: bool,
    batches: VecDeque<Given>,
    missing: u64,
    bytes: usize,
}

/// A batch that an instance was given.
#[derive(Debug)]
struct Given {
    batch: Batch,
    bytes: usize,
}

impl RunUp {
    /// The instance is where `state` says, and was given nothing since. A state of more than
    /// `bytes_max` is not kept.
    pub fn begin(&mut self, state: Option<Bytes>, bytes_max: usize) {
        let had_state = state.is_some();
        let kept = state.filter(|state| state.len() <= bytes_max);
        *self = Self {
            bytes: kept.as_ref().map_or(0, Bytes::len),
            is_state_missing: had_state && kept.is_none(),
            state: kept,
            ..Self::default()
        };
    }

    /// The instance was given another batch. Older ones go until all of it is within `bytes_max`,
    /// and at last the state.
    pub fn push(&mut self, batch: Batch, bytes_max: usize) {
        let bytes = bytes_of(&batch);
        self.batches.push_back(Given { batch, bytes });
        self.bytes += bytes;
        while self.bytes > bytes_max || self.batches.len() > RUN_UP_BATCHES_MAX {
            let Some(oldest) = self.batches.pop_front() else {
                break;
            };
            self.bytes -= oldest.bytes;
            self.missing += 1;
        }
        if self.bytes > bytes_max && self.state.take().is_some() {
            self.bytes = 0;
            self.is_state_missing = true;
        }
    }

    /// Bytes that it holds.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The state that it began with, if there was one and it is kept.
    pub fn state(&self) -> Option<&Bytes> {
        self.state.as_ref()
    }

    /// Whether it began with a state that was too large to keep.
    pub fn is_state_missing(&self) -> bool {
        self.is_state_missing
    }

    /// The batches that are kept, the oldest first.
    pub fn batches(&self) -> Vec<Batch> {
        self.batches
            .iter()
            .map(|given| given.batch.clone())
            .collect()
    }

    /// Batches before those that were not kept.
    pub fn missing(&self) -> u64 {
        self.missing
    }
}

/// What a batch costs to keep.
pub fn bytes_of(batch: &Batch) -> usize {
    batch.records.iter().map(Record::cost_bytes).sum()
}

/// The batch with records of its own: others may be small parts of large replies, all of which
/// would be kept with them.
pub fn detached(batch: &Batch) -> Batch {
    let mut records = batch.records.to_vec();
    records.iter_mut().for_each(Record::detach);
    Batch {
        records: Arc::new(records),
        ..*batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::{Position, SequenceNumber};

    fn batch(number: u32, bytes: usize) -> Batch {
        let record = Record {
            data: Bytes::from(vec![0; bytes]),
            partition_key: String::new(),
            explicit_hash_key: None,
            position: Position::plain(SequenceNumber::parse(&number.to_string()).unwrap()),
            arrival_ms: 0,
        };
        Batch {
            records: Arc::new(vec![record]),
            attempt: number,
            millis_behind_latest: 0,
            trace: None,
        }
    }

    fn kept(run_up: &RunUp) -> Vec<u32> {
        run_up.batches().iter().map(|batch| batch.attempt).collect()
    }

    #[test]
    fn the_newest_batches_are_kept_and_what_is_missing_is_counted() {
        let mut run_up = RunUp::default();
        for number in 0..3 {
            run_up.push(batch(number, 1_000), 2_500);
        }
        assert_eq!((kept(&run_up), run_up.missing()), (vec![1, 2], 1));
        assert!(run_up.bytes() <= 2_500);
        run_up.push(batch(3, 10 << 20), 2_500);
        assert_eq!((kept(&run_up), run_up.missing()), (vec![], 4));
        assert_eq!(run_up.bytes(), 0, "one too large for the room takes none");
        for number in 0..100 {
            run_up.push(batch(number, 0), usize::MAX);
        }
        assert_eq!(kept(&run_up).len(), RUN_UP_BATCHES_MAX);
        assert_eq!(run_up.missing(), 4 + 100 - RUN_UP_BATCHES_MAX as u64);
    }

    #[test]
    fn a_saved_state_stands_for_all_batches_before_it() {
        let mut run_up = RunUp::default();
        run_up.push(batch(1, 1_000), 0);
        run_up.begin(Some(Bytes::from_static(b"state")), 10_000);
        assert_eq!((run_up.missing(), run_up.bytes()), (0, 5));
        run_up.push(batch(2, 1_000), 10_000);
        assert_eq!(run_up.state().unwrap(), &Bytes::from_static(b"state"));
        assert_eq!(kept(&run_up), [2]);
    }

    #[test]
    fn less_room_than_before_takes_the_batches_and_then_the_state() {
        let mut run_up = RunUp::default();
        run_up.begin(Some(Bytes::from_static(b"state")), 10_000);
        run_up.push(batch(1, 1_000), 5);
        assert_eq!((kept(&run_up), run_up.bytes()), (vec![], 5));
        assert!(!run_up.is_state_missing());
        run_up.push(batch(2, 1_000), 4);
        assert_eq!((run_up.state(), run_up.bytes()), (None, 0));
        assert!(run_up.is_state_missing());
    }

    #[test]
    fn a_state_without_room_is_not_kept_and_is_known_to_be_missing() {
        let mut run_up = RunUp::default();
        run_up.begin(Some(Bytes::from(vec![0; 100])), 99);
        assert_eq!((run_up.state(), run_up.bytes()), (None, 0));
        assert!(run_up.is_state_missing());
        run_up.begin(None, 99);
        assert!(!run_up.is_state_missing());
    }

    #[test]
    fn a_detached_batch_keeps_nothing_of_the_reply_that_it_was_cut_from() {
        let reply = Bytes::from(vec![7; 100_000]);
        let mut cut = batch(1, 0);
        let record = Arc::get_mut(&mut cut.records).unwrap();
        record[0].data = reply.slice(10..20);
        let own = detached(&cut);
        assert_eq!(own.records, cut.records);
        assert_ne!(own.records[0].data.as_ptr(), cut.records[0].data.as_ptr());
    }
}
