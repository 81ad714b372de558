//! Puts records at a steady rate, in several lanes at once: a request is answered within
//! milliseconds or a second, and the rate must not depend on that.

use std::collections::btree_map::Entry;
use std::time::Duration;

use bytes::Bytes;
use shardmill_aws::{PutEntry, PutReport, StreamWriter};
use shardmill_core::load_test::LoadTest;
use shardmill_core::ports::Clock;
use shardmill_serve::BootClock;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use crate::author::pump::unless_left;

/// How often a lane puts what is due.
const PUT_EVERY: Duration = Duration::from_millis(100);
/// Bytes a second that a lane is given: half a request of 5 MiB, which AWS answers well within a
/// second.
const LANE_BYTES_A_SECOND: f64 = 2_621_440.0;
/// Requests at once at most, so that one machine does not open connections without end.
const LANES_MAX: u32 = 64;
/// Records that a lane makes at a time, if it is behind; and their bytes.
const CHUNK_RECORDS: u64 = 5_000;
const CHUNK_BYTES: u64 = 8 << 20;
/// How long after the end a lane may still put what is due. Without a limit a load that is
/// throttled would last several times as long, and would not be the load that was asked for.
const LATE_MAX: Duration = Duration::from_secs(5);
/// How each record ends.
const END: &str = "\"}";

/// Puts all records, or as many as Kinesis takes in time and before `stop`.
pub(super) async fn put_all(
    writer: &StreamWriter,
    load: LoadTest,
    stop: &CancellationToken,
) -> anyhow::Result<PutReport> {
    let lanes = lanes_for(&load);
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for number in 0..lanes {
        let lane = Lane {
            writer: writer.clone(),
            load,
            lanes,
            number,
            started,
            put: 0,
        };
        tasks.spawn(lane.run(stop.clone()));
    }
    let mut total = PutReport::default();
    while let Some(ended) = tasks.join_next().await {
        add(&mut total, ended??);
    }
    Ok(total)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "above zero; the cast saturates"
)]
fn lanes_for(load: &LoadTest) -> u32 {
    let bytes_per_second = load.records_per_second * f64::from(load.record_bytes);
    ((bytes_per_second / LANE_BYTES_A_SECOND).ceil() as u32).clamp(1, LANES_MAX)
}

/// Some of the records, one request after the other.
struct Lane {
    writer: StreamWriter,
    load: LoadTest,
    lanes: u32,
    number: u32,
    started: Instant,
    /// Records that were put.
    put: u64,
}

impl Lane {
    async fn run(mut self, stop: CancellationToken) -> anyhow::Result<PutReport> {
        let mut total = PutReport::default();
        let mut ticks = tokio::time::interval(PUT_EVERY);
        // What is due is counted by the time that has passed.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let all = self.due_at(self.load.lasts);
        while !stop.is_cancelled() && self.put < all && self.started.elapsed() < self.end() {
            ticks.tick().await;
            let due = self.due_at(self.started.elapsed());
            let chunk = due.saturating_sub(self.put).min(self.chunk_max());
            let put = self.writer.put_all(self.records(chunk), |_, _| {});
            match unless_left(put, &stop).await {
                Some(report) => add(&mut total, report?),
                None => break,
            }
            self.put += chunk;
        }
        Ok(total)
    }

    fn end(&self) -> Duration {
        self.load.lasts.saturating_add(LATE_MAX)
    }

    /// The next ones of this lane. All lanes number them together.
    fn records(&self, count: u64) -> Vec<PutEntry> {
        let (lanes, own) = (u64::from(self.lanes), u64::from(self.number));
        (self.put..self.put + count)
            .map(|count| record(count * lanes + own, self.load.record_bytes))
            .collect()
    }

    fn due_at(&self, after: Duration) -> u64 {
        self.load.due_in_lane(after, self.number, self.lanes)
    }

    fn chunk_max(&self) -> u64 {
        let by_bytes = CHUNK_BYTES / u64::from(self.load.record_bytes);
        by_bytes.clamp(1, CHUNK_RECORDS)
    }
}

/// JSON, as most records are, with what a plugin can check: which one it is, and when it left.
fn record(number: u64, bytes: u32) -> PutEntry {
    let partition_key = number.to_string();
    let sent_ms = BootClock.wall_ms();
    let begin = format!("{{\"number\":{number},\"sent-ms\":{sent_ms},\"filler\":\"");
    let others = partition_key.len() + begin.len() + END.len();
    let filler = "x".repeat((bytes as usize).saturating_sub(others));
    PutEntry {
        partition_key,
        explicit_hash_key: None,
        data: Bytes::from(format!("{begin}{filler}{END}")),
    }
}

fn add(total: &mut PutReport, report: PutReport) {
    total.records += report.records;
    total.bytes += report.bytes;
    total.retries += report.retries;
    for (shard, sequence) in report.last_sequence {
        // A lane's last record in a shard may be before another's.
        match total.last_sequence.entry(shard) {
            Entry::Occupied(last) if *last.get() >= sequence => {}
            Entry::Occupied(mut last) => {
                last.insert(sequence);
            }
            Entry::Vacant(none) => {
                none.insert(sequence);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_have_the_size_that_was_asked_for_and_say_which_they_are() {
        for number in [0, 1, 30_000_000_002] {
            let record = record(number, 128);
            assert_eq!(record.cost_bytes(), 128);
            assert_eq!(record.partition_key, number.to_string());
            let value: serde_json::Value = serde_json::from_slice(&record.data).unwrap();
            assert_eq!(value["number"], number);
        }
    }

    #[test]
    fn a_high_load_is_shared_among_lanes_and_there_are_not_too_many() {
        let lanes = |records_per_second, record_bytes| {
            lanes_for(&LoadTest {
                records_per_second,
                record_bytes,
                lasts: Duration::from_secs(1),
            })
        };
        assert_eq!(lanes(0.001, 128), 1);
        assert_eq!(lanes(10_240.0, 1_024), 4);
        assert_eq!(lanes(1e7, 1_048_576), LANES_MAX);
    }
}
