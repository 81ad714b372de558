//! Rounds of batches through an instance, timed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use shardmill_core::plugin::ProcessorError;
use shardmill_core::ports::{
    CloseReason, InstanceContext, Processed, ProcessorFactory, RecordProcessor,
};
use shardmill_core::stream::Batch;
use tokio_util::sync::CancellationToken;

use super::native::NativeNoOp;
use super::report::{BenchReport, Failed, Spread, Timing};

/// How long a round takes unless its number of records is given: long compared with what a
/// scheduler takes away.
const ROUND: Duration = Duration::from_millis(500);
/// How long an instance is warmed up: pages touched, tables filled, branches learned.
const WARM_UP: Duration = Duration::from_millis(300);
/// Instances that are created to measure how long that takes; fewer if [`INSTANTIATE_MAX`] ends
/// first.
const INSTANCES_MAX: usize = 101;
const INSTANTIATE_MAX: Duration = Duration::from_secs(2);

/// A plugin to measure, and how to measure it.
pub(crate) struct Bench {
    /// Batches that are delivered over and over; one at least, none empty.
    pub(crate) batches: Vec<Batch>,
    /// Records in a round, made up to whole batches; `None` takes as many as fill half a second.
    pub(crate) records: Option<u32>,
    /// Rounds, at least 1.
    pub(crate) rounds: u32,
    /// What the instances see of their surroundings.
    pub(crate) context: Arc<InstanceContext>,
}

/// Why there is nothing to report.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    /// No instance could be made.
    #[error("the plugin does not start: {0}")]
    Start(#[source] ProcessorError),
    /// A call failed as a whole.
    #[error("the plugin failed in batch {batch}: {error}")]
    Process {
        /// Counted from 1, over warm-up and rounds.
        batch: u64,
        /// How.
        #[source]
        error: ProcessorError,
    },
    /// It was stopped.
    #[error("interrupted")]
    Interrupted,
}

/// A processor that is measured.
struct Subject {
    processor: Box<dyn RecordProcessor>,
    next: usize,
    delivered: u64,
    tally: Tally,
    nanos_per_record: Vec<f64>,
    cpu_nanos_per_record: Vec<f64>,
}

/// Counts the results of the batches.
#[derive(Debug, Clone, Default)]
struct Tally {
    batches: u64,
    records: u64,
    bytes: u64,
    emitted: u64,
    emitted_bytes: u64,
    failed: u64,
    first_failure: Option<String>,
}

impl Tally {
    fn add(&mut self, batch: &Batch, processed: &Processed) {
        let Processed { outcome, emitted } = processed;
        let sizes = batch.records.iter().map(|record| record.data.len() as u64);
        self.batches += 1;
        self.records += batch.records.len() as u64;
        self.bytes += sizes.sum::<u64>();
        self.emitted += emitted.len() as u64;
        for piece in emitted {
            self.emitted_bytes += piece.data.len() as u64;
        }
        self.failed += outcome.failures.len() as u64;
        if let Some(first) = outcome.failures.first() {
            self.first_failure
                .get_or_insert_with(|| first.message.clone());
        }
    }

    fn failed(self) -> Option<Failed> {
        let first = self.first_failure?;
        Some(Failed {
            records: self.failed,
            first,
        })
    }
}

/// Has the allocator keep what batches take, as it does in a host, where replies of Kinesis are
/// larger than they are. Otherwise glibc would return that memory after each batch, and what is
/// measured would be page faults. It raises its bounds when a large block is freed, up to 32 MiB.
fn keep_the_heap() {
    const BLOCK_BYTES: usize = 31 << 20;
    drop(std::hint::black_box(Vec::<u8>::with_capacity(BLOCK_BYTES)));
}

impl Bench {
    /// Measures `plugin`, and for comparison `empty`, a component that does nothing, and native
    /// code.
    pub(crate) async fn run(
        &self,
        plugin: &dyn ProcessorFactory,
        empty: &dyn ProcessorFactory,
        stop: &CancellationToken,
    ) -> Result<BenchReport, BenchError> {
        keep_the_heap();
        let instantiate = self.instantiate(plugin, stop).await?;
        let mut subjects = [
            Subject::new(self.instance(plugin).await?),
            Subject::new(self.instance(empty).await?),
            Subject::new(Box::new(NativeNoOp)),
        ];
        let records_per_round = self.time(&mut subjects, stop).await?;
        let memory_bytes = subjects[0].processor.memory_bytes();
        let [plugin, empty, native] = subjects;
        let tally = plugin.tally.clone();
        Ok(BenchReport {
            rounds: self.rounds,
            records_per_round: records_per_round.max(tally.records / u64::from(self.rounds)),
            records_per_batch: ratio(tally.records, tally.batches),
            bytes_per_record: ratio(tally.bytes, tally.records),
            emitted_per_record: ratio(tally.emitted, tally.records),
            emitted_bytes_per_record: ratio(tally.emitted_bytes, tally.records),
            instantiate,
            memory_bytes,
            plugin: plugin.close().await,
            empty_component: empty.close().await,
            native_no_op: native.close().await,
            failed: tally.failed(),
        })
    }

    /// Times all rounds. Returns the records that a round of the first subject should have.
    async fn time(
        &self,
        subjects: &mut [Subject],
        stop: &CancellationToken,
    ) -> Result<u64, BenchError> {
        let mut rounds = Vec::new();
        for subject in subjects.iter_mut() {
            let records = subject.warm_up(&self.batches, stop).await?;
            rounds.push(self.records.map_or(records, u64::from));
        }
        // In turn, so that what slows the machine down slows all of them down.
        for _ in 0..self.rounds {
            for (subject, records) in subjects.iter_mut().zip(&rounds) {
                subject.round(&self.batches, *records, stop).await?;
            }
        }
        Ok(rounds.first().copied().unwrap_or_default())
    }

    async fn instance(
        &self,
        factory: &dyn ProcessorFactory,
    ) -> Result<Box<dyn RecordProcessor>, BenchError> {
        factory
            .instantiate(Arc::clone(&self.context), None)
            .await
            .map_err(BenchError::Start)
    }

    /// Microseconds to a new instance whose `init` is done.
    async fn instantiate(
        &self,
        plugin: &dyn ProcessorFactory,
        stop: &CancellationToken,
    ) -> Result<Spread, BenchError> {
        let (started, mut micros) = (Instant::now(), Vec::new());
        while micros.is_empty()
            || (micros.len() < INSTANCES_MAX && started.elapsed() < INSTANTIATE_MAX)
        {
            if stop.is_cancelled() {
                return Err(BenchError::Interrupted);
            }
            let from = Instant::now();
            let instance = self.instance(plugin).await?;
            micros.push(from.elapsed().as_secs_f64() * 1e6);
            drop(instance);
        }
        Ok(Spread::of(micros))
    }
}

impl Subject {
    fn new(processor: Box<dyn RecordProcessor>) -> Self {
        Self {
            processor,
            next: 0,
            delivered: 0,
            tally: Tally::default(),
            nanos_per_record: Vec::new(),
            cpu_nanos_per_record: Vec::new(),
        }
    }

    /// Delivers for a while, and returns how many records a round takes. These results do not
    /// count.
    async fn warm_up(
        &mut self,
        batches: &[Batch],
        stop: &CancellationToken,
    ) -> Result<u64, BenchError> {
        let started = Instant::now();
        while self.tally.batches == 0 || started.elapsed() < WARM_UP {
            self.deliver(batches, stop).await?;
        }
        let per_round =
            self.tally.records as f64 * ROUND.as_secs_f64() / started.elapsed().as_secs_f64();
        self.tally = Tally::default();
        // One record at least; far below what a float holds exactly.
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "positive, and a few billions at most"
        )]
        Ok(per_round.max(1.0) as u64)
    }

    async fn round(
        &mut self,
        batches: &[Batch],
        records: u64,
        stop: &CancellationToken,
    ) -> Result<(), BenchError> {
        let before = self.tally.records;
        let (started, cpu) = (Instant::now(), cpu_time());
        while self.tally.records - before < records {
            self.deliver(batches, stop).await?;
        }
        let records = (self.tally.records - before) as f64;
        self.nanos_per_record
            .push(started.elapsed().as_secs_f64() * 1e9 / records);
        self.cpu_nanos_per_record
            .push(cpu_time().saturating_sub(cpu).as_secs_f64() * 1e9 / records);
        Ok(())
    }

    async fn deliver(
        &mut self,
        batches: &[Batch],
        stop: &CancellationToken,
    ) -> Result<(), BenchError> {
        if stop.is_cancelled() {
            return Err(BenchError::Interrupted);
        }
        let batch = &batches[self.next % batches.len()];
        (self.next, self.delivered) = (self.next + 1, self.delivered + 1);
        let processed = self.processor.process(batch.clone()).await;
        let processed = processed.map_err(|error| BenchError::Process {
            batch: self.delivered,
            error,
        })?;
        self.tally.add(batch, &processed);
        Ok(())
    }

    async fn close(self) -> Timing {
        // Its answer does not change what was measured.
        let _ = self.processor.close(CloseReason::Shutdown).await;
        let nanos_per_record = Spread::of(self.nanos_per_record);
        let bytes_per_record = ratio(self.tally.bytes, self.tally.records);
        let mib_per_second = bytes_per_record / nanos_per_record.median * 1e9 / f64::from(1 << 20);
        let cpu_nanos_per_record = Spread::of(self.cpu_nanos_per_record);
        Timing {
            nanos_per_record,
            cpu_nanos_per_record,
            mib_per_second,
        }
    }
}

/// The time of all threads of this process, since a call runs on a separate thread. It does not
/// include what other processes take.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or_default(),
        u32::try_from(time.tv_nsec).unwrap_or_default(),
    )
}

fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

#[cfg(test)]
mod tests;
