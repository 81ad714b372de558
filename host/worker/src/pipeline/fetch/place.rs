//! Where a reader is in its shard, and what of a reply is new.

use shardmill_core::ports::{ReadError, ShardIterator};
use shardmill_core::seeded_bug::SeededBug;
use shardmill_core::stream::{Position, ReadFrom, SequenceNumber};

use super::{Arrival, Start};
use crate::pipeline::opening::Opener;

/// Where the reader is in its shard.
pub(super) struct Place {
    from: ReadFrom,
    /// Where to poll on.
    pub(super) iterator: Option<ShardIterator>,
    /// Where to subscribe on.
    pub(super) continuation: Option<SequenceNumber>,
    /// Bytes of a pushed event that the host had no room for.
    pub(super) refused_bytes: usize,
    /// The last record taken from a reply.
    last: Option<SequenceNumber>,
    settled: Option<Position>,
    /// Opens what is taken in.
    pub(super) opener: Opener,
    /// The last call failed in a way that a stream created anew would explain.
    pub(super) is_stream_in_doubt: bool,
}

impl Place {
    pub(super) fn new(start: Start, opener: Opener) -> Self {
        let Start { from, settled } = start;
        Self {
            from,
            iterator: None,
            continuation: None,
            refused_bytes: 0,
            last: None,
            settled,
            opener,
            is_stream_in_doubt: false,
        }
    }

    /// The iterator is too old, because nobody read for five minutes or the clock of the service says so.
    pub(super) fn expired(&mut self) {
        self.iterator = None;
        if SeededBug::ExpiredIteratorGoesToLatest.is_on() {
            self.from = ReadFrom::Latest;
            self.last = None;
        }
        if SeededBug::ExpiredIteratorGoesToTrimHorizon.is_on() {
            self.from = ReadFrom::TrimHorizon;
            self.last = None;
        }
    }

    pub(super) fn read_from(&self) -> ReadFrom {
        match &self.last {
            Some(last) => ReadFrom::AfterSequenceNumber(last.clone()),
            None => self.from.clone(),
        }
    }

    /// At the continuation and not after it: AWS allows both and says of neither that it is not a record's number. What
    /// repeats is dropped.
    pub(super) fn subscribe_from(&self) -> ReadFrom {
        if SeededBug::RenewsAtLatest.is_on() && self.continuation.is_some() {
            return ReadFrom::Latest;
        }
        self.continuation.clone().map_or_else(|| self.read_from(), ReadFrom::AtSequenceNumber)
    }

    /// Once a LATEST iterator was made, "latest" is that moment: asking for LATEST again after a failure would skip what
    /// arrived in between. Some seconds early, since this host's clock may be ahead; nothing was delivered before.
    pub(super) fn pin_latest(&mut self, asked_at_ms: u64) {
        const CLOCK_ERROR_MS: u64 = 5_000;
        if self.from == ReadFrom::Latest {
            self.from = ReadFrom::AtTimestamp(asked_at_ms.saturating_sub(CLOCK_ERROR_MS));
        }
    }

    /// Drops what was fetched or settled before; refuses a reply whose records are out of order, which is then read
    /// again from the last good record. Also gives how many were dropped.
    pub(super) fn accept(&mut self, mut arrival: Arrival) -> Result<(Arrival, u64), ReadError> {
        if !arrival.records.is_sorted_by(|a, b| a.position <= b.position) {
            let message = "a reply's records are out of order".to_owned();
            return Err(ReadError::Unavailable { message });
        }
        let received = arrival.records.len();
        arrival.records.dedup_by(|later, earlier| later.position == earlier.position);
        let (last, settled) = (self.last.take(), &self.settled);
        if SeededBug::DeliversSettledAgain.is_on() {
            self.last = arrival.records.last().map(|record| record.position.sequence.clone()).or(last);
            return Ok((arrival, 0));
        }
        arrival.records.retain(|record| {
            last.as_ref().is_none_or(|last| record.position.sequence > *last)
                && settled
                    .as_ref()
                    .is_none_or(|settled| record.position > *settled || Opener::may_reach_beyond(settled, record))
        });
        if SeededBug::SkipsFirstRecord.is_on()
            && last.is_none()
            && self.settled.is_some()
            && !arrival.records.is_empty()
        {
            arrival.records.remove(0);
        }
        self.last = arrival.records.last().map(|record| record.position.sequence.clone()).or(last);
        let repeats = (received - arrival.records.len()) as u64;
        Ok((arrival, repeats))
    }
}
