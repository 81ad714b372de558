//! `PutRecords` in batches, for commands that feed a stream.
//!
//! Order: records are sent in the order given, one batch at a time, and what Kinesis refused of a
//! batch is sent again before anything newer. So a record is never overtaken by one of a later
//! batch. Within one batch Kinesis itself gives no order once it refuses a part of it: a later
//! record of the same key may be stored before the refused one. Stored at least once: a batch
//! without an answer is sent again whole.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aws_sdk_kinesis::Client;
use shardmill_core::backoff::Backoff;
use shardmill_core::backoff::is_worth_a_line;
use shardmill_core::ports::ReadError;
use shardmill_core::stream::{SequenceNumber, ShardId, StreamName};

use crate::sdk_error::{GIVE_CREDENTIALS, is_of_an_endpoint_that_is_none};

use super::putter::{PutEntry, PutOutcome, PutTarget, Putter};
use super::wire::Wire;

/// Records of one request (AWS limit).
const BATCH_RECORDS_MAX: usize = 500;
/// Data and keys of one request. AWS takes 10 MiB since 2025, emulators 5; a single larger record
/// goes alone.
const BATCH_BYTES_MAX: usize = 5 * 1024 * 1024;
/// Attempts in a row that stored nothing, before the caller gets an error: about three minutes.
const FRUITLESS_ATTEMPTS_MAX: u32 = 20;
/// The same where nothing has answered yet and nothing can: some seconds, for an emulator that is
/// about to start.
const UNANSWERED_ATTEMPTS_MAX: u32 = 4;
/// A shard's budget is counted by the second, so a first wait near a tenth of that and a cap of
/// some seconds fit.
const BACKOFF: Backoff = match Backoff::new(Duration::from_millis(100), Duration::from_secs(10)) {
    Some(backoff) => backoff,
    None => Backoff::standard(),
};

/// What one call of [`StreamWriter::put_all`] stored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PutReport {
    /// Records that Kinesis acknowledged.
    pub records: u64,
    /// Their data and keys, in bytes.
    pub bytes: u64,
    /// Records that were sent again, counted once for each time.
    pub retries: u64,
    /// The last sequence number given out in each shard.
    pub last_sequence: BTreeMap<ShardId, SequenceNumber>,
}

/// Why not everything was stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct PutError {
    /// What was stored before.
    pub stored: PutReport,
    /// Attempts in a row that stored nothing.
    pub attempts: u32,
    /// What the last of them ran into.
    pub cause: ReadError,
}

impl fmt::Display for PutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.stored.records > 0 {
            write!(f, "stored {} records, then ", self.stored.records)?;
        }
        if self.attempts > 1 {
            write!(
                f,
                "gave up after {} attempts that stored nothing: ",
                self.attempts
            )?;
        }
        write!(f, "{}", self.cause)
    }
}

/// Stores any number of records in one stream.
#[derive(Debug, Clone)]
pub struct StreamWriter {
    putter: Putter,
    backoff: Backoff,
    /// Whether Kinesis has answered a request of this writer or a clone. If so, it exists, and an
    /// outage will end.
    was_answered: Arc<AtomicBool>,
}

impl StreamWriter {
    /// Writes to `stream` through `client`.
    pub fn new(client: Client, stream: StreamName) -> Self {
        Self::to(client, PutTarget::Name(stream))
    }

    /// Writes to `target` through `client`.
    pub fn to(client: Client, target: PutTarget) -> Self {
        Self {
            putter: Putter::new(client, target),
            backoff: BACKOFF,
            was_answered: Arc::default(),
        }
    }

    /// Speaks as `wire` says and shares what it learns; without it, as the default says.
    #[must_use]
    pub fn speaking(self, wire: Wire) -> Self {
        Self {
            putter: self.putter.speaking(wire),
            ..self
        }
    }

    /// Waits as `backoff` says between attempts.
    #[must_use]
    #[cfg(test)]
    pub(crate) fn with_backoff(self, backoff: Backoff) -> Self {
        Self { backoff, ..self }
    }

    /// Stores everything, in order; calls `progress` with the totals after every request.
    pub async fn put_all(
        &self,
        entries: impl IntoIterator<Item = PutEntry>,
        progress: impl Fn(u64, u64),
    ) -> Result<PutReport, PutError> {
        let mut report = PutReport::default();
        let mut entries = entries.into_iter().peekable();
        while let Some(batch) = next_batch(&mut entries) {
            self.put_batch(batch, &mut report, &progress).await?;
        }
        Ok(report)
    }

    async fn put_batch(
        &self,
        mut batch: Vec<PutEntry>,
        report: &mut PutReport,
        progress: &impl Fn(u64, u64),
    ) -> Result<(), PutError> {
        let mut fruitless = 0;
        loop {
            let sent = batch.len();
            let put = self.put_once(batch.clone(), report).await;
            progress(report.records, report.bytes);
            let cause = match put {
                Ok(None) => return Ok(()),
                Ok(Some(refused)) => {
                    batch = refused.entries;
                    refused.cause
                }
                Err(cause) => cause,
            };
            fruitless = if batch.len() < sent { 0 } else { fruitless + 1 };
            let attempts_max = self.attempts_max(&cause);
            if fruitless >= attempts_max {
                return Err(PutError {
                    stored: report.clone(),
                    attempts: fruitless,
                    cause,
                });
            }
            // Half as often each time: the reason is shown, and a log is not flooded.
            if is_worth_a_line(fruitless) {
                tracing::warn!(
                    reason = %cause,
                    attempt = fruitless,
                    of = attempts_max,
                    code = "put-failed", "nothing was stored, trying again"
                );
            }
            report.retries += batch.len() as u64;
            tokio::time::sleep(self.backoff.delay(fruitless.max(1), fastrand::f64())).await;
        }
    }

    /// How many attempts in a row may store nothing, by what the last of them ran into.
    fn attempts_max(&self, cause: &ReadError) -> u32 {
        match cause {
            ReadError::Refused { .. }
            | ReadError::KeyUnusable { .. }
            | ReadError::NotFound { .. } => 1,
            // A running command does not get credentials later.
            ReadError::Unavailable { message } if message.contains(GIVE_CREDENTIALS) => 1,
            ReadError::Unavailable { message }
                if is_of_an_endpoint_that_is_none(message)
                    && !self.was_answered.load(Ordering::Relaxed) =>
            {
                UNANSWERED_ATTEMPTS_MAX
            }
            ReadError::Throttled { .. }
            | ReadError::Unavailable { .. }
            | ReadError::ExpiredIterator => FRUITLESS_ATTEMPTS_MAX,
        }
    }

    /// Sends one request and adds what it stored to `report`; returns the entries that Kinesis
    /// refused, in order, if it refused any.
    async fn put_once(
        &self,
        batch: Vec<PutEntry>,
        report: &mut PutReport,
    ) -> Result<Option<RefusedPart>, ReadError> {
        let put = self.putter.put(&batch).await;
        if !put.as_ref().is_err_and(is_unanswered) {
            self.was_answered.store(true, Ordering::Relaxed);
        }
        let outcomes = put?;
        let mut refused = Vec::new();
        let mut last_message = String::new();
        for (entry, outcome) in batch.into_iter().zip(outcomes) {
            match outcome {
                PutOutcome::Stored { shard, sequence } => {
                    report.records += 1;
                    report.bytes += entry.cost_bytes() as u64;
                    report.last_sequence.insert(shard, sequence);
                }
                PutOutcome::Refused { message } => {
                    last_message = message;
                    refused.push(entry);
                }
            }
        }
        if refused.is_empty() {
            return Ok(None);
        }
        Ok(Some(RefusedPart {
            entries: refused,
            cause: ReadError::Throttled {
                message: last_message,
            },
        }))
    }
}

/// Whether Kinesis may not have got the request.
fn is_unanswered(cause: &ReadError) -> bool {
    matches!(cause, ReadError::Unavailable { .. })
}

/// The entries of a batch that Kinesis refused, and why it refused the last of them.
struct RefusedPart {
    entries: Vec<PutEntry>,
    cause: ReadError,
}

/// As many entries as fit in one request. The first is always taken, even if Kinesis will refuse it
/// for its size. `None` at the end.
fn next_batch(
    entries: &mut std::iter::Peekable<impl Iterator<Item = PutEntry>>,
) -> Option<Vec<PutEntry>> {
    let first = entries.next()?;
    let mut bytes = first.cost_bytes();
    let mut batch = vec![first];
    while batch.len() < BATCH_RECORDS_MAX {
        match entries.next_if(|entry| bytes + entry.cost_bytes() <= BATCH_BYTES_MAX) {
            Some(entry) => {
                bytes += entry.cost_bytes();
                batch.push(entry);
            }
            None => break,
        }
    }
    Some(batch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_was_stored_and_how_often_was_tried_unless_it_is_the_first_attempt() {
        let told = |records: u64, attempts: u32| {
            let stored = PutReport {
                records,
                ..PutReport::default()
            };
            let cause = ReadError::Refused {
                message: "no".to_owned(),
            };
            PutError {
                stored,
                attempts,
                cause,
            }
            .to_string()
        };
        assert_eq!(told(0, 1), "kinesis refused the request: no");
        assert_eq!(
            told(5, 1),
            "stored 5 records, then kinesis refused the request: no"
        );
        let tried = "stored 5 records, then gave up after 20 attempts that stored nothing: \
            kinesis refused the request: no";
        assert_eq!(told(5, 20), tried);
    }

    fn entry(bytes: usize) -> PutEntry {
        PutEntry {
            partition_key: String::new(),
            explicit_hash_key: None,
            data: vec![0; bytes].into(),
        }
    }

    fn batch_sizes(entries: Vec<PutEntry>) -> Vec<usize> {
        let mut entries = entries.into_iter().peekable();
        std::iter::from_fn(|| next_batch(&mut entries).map(|batch| batch.len())).collect()
    }

    #[test]
    fn a_batch_has_at_most_500_records_and_5_mib() {
        assert_eq!(batch_sizes(vec![entry(1); 1_001]), [500, 500, 1]);
        assert_eq!(batch_sizes(vec![entry(2 * 1024 * 1024); 5]), [2, 2, 1]);
    }

    #[test]
    fn a_record_larger_than_a_batch_goes_alone() {
        assert_eq!(
            batch_sizes(vec![entry(1), entry(BATCH_BYTES_MAX + 1), entry(1)]),
            [1, 1, 1]
        );
        assert_eq!(batch_sizes(Vec::new()), [0; 0]);
    }
}
