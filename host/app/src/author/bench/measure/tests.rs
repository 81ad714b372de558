use bytes::Bytes;
use shardmill_core::lease::{LeaseCounter, WorkerId};
use shardmill_core::plugin::{PluginDigest, PluginName};
use shardmill_core::ports::StartPosition;
use shardmill_core::ports::{
    FailureKind, LastOutput, Outcome, PortFuture, Processed, RecordFailure,
};
use shardmill_core::stream::{Emitted, ShardId, StreamName};
use shardmill_worker::BatchLimits;

use super::super::batches::{BenchInput, batches};
use super::*;

/// Emits each record's data twice, and fails as told.
struct Doubling {
    digest: PluginDigest,
    fails: Option<Result<(), ProcessorError>>,
}

impl Doubling {
    /// `None` does not fail; an `Ok` makes the first record of each batch fail, an `Err` the call.
    fn new(fails: Option<Result<(), ProcessorError>>) -> Self {
        Self {
            digest: PluginDigest::from_hex(&"0".repeat(64)).unwrap(),
            fails,
        }
    }
}

impl ProcessorFactory for Doubling {
    fn digest(&self) -> &PluginDigest {
        &self.digest
    }

    fn instantiate(
        &self,
        _context: Arc<InstanceContext>,
        _state: Option<Bytes>,
    ) -> PortFuture<'_, Result<Box<dyn RecordProcessor>, ProcessorError>> {
        let fails = self.fails.clone();
        Box::pin(async move { Ok(Box::new(Self::new(fails)) as Box<dyn RecordProcessor>) })
    }
}

impl RecordProcessor for Doubling {
    fn process(&mut self, batch: Batch) -> PortFuture<'_, Result<Processed, ProcessorError>> {
        Box::pin(async move {
            let twice = batch.records.iter().flat_map(|record| [record, record]);
            let emit = |record: &shardmill_core::stream::Record| Emitted {
                destination: "out".to_owned(),
                key: String::new(),
                data: record.data.clone(),
            };
            let failure = || RecordFailure {
                index: 0,
                kind: FailureKind::Reject,
                message: "no good".to_owned(),
            };
            let failures = match &self.fails {
                None => Vec::new(),
                Some(result) => result.clone().map(|()| vec![failure()])?,
            };
            let outcome = Outcome {
                failures,
                ..Outcome::default()
            };
            Ok(Processed {
                outcome,
                emitted: twice.map(emit).collect(),
            })
        })
    }

    fn close(
        self: Box<Self>,
        _reason: CloseReason,
    ) -> PortFuture<'static, Result<LastOutput, ProcessorError>> {
        Box::pin(async { Ok(LastOutput::default()) })
    }
}

fn bench() -> Bench {
    let context = InstanceContext {
        start: StartPosition::default(),
        plugin: PluginName::new("bench").unwrap(),
        application: "bench".to_owned(),
        stream: StreamName::new("bench").unwrap(),
        shard: ShardId::new("shardId-000000000000").unwrap(),
        worker: WorkerId::new("bench").unwrap(),
        epoch: LeaseCounter(1),
        destinations: Vec::new(),
        limits: None,
        config: Vec::new(),
        permissions: Arc::default(),
    };
    let limits = BatchLimits {
        records: 100,
        ..BatchLimits::default()
    };
    Bench {
        batches: batches(BenchInput::made_up(), &limits),
        records: Some(250),
        rounds: 3,
        context: Arc::new(context),
    }
}

async fn run(fails: Option<Result<(), ProcessorError>>) -> Result<BenchReport, BenchError> {
    bench()
        .run(
            &Doubling::new(fails),
            &Doubling::new(None),
            &CancellationToken::new(),
        )
        .await
}

#[tokio::test]
async fn what_goes_in_and_comes_out_is_counted_over_all_rounds() {
    let report = run(None).await.unwrap();
    assert_eq!(
        (
            report.bytes_per_record,
            report.emitted_per_record,
            report.emitted_bytes_per_record
        ),
        (1024.0, 2.0, 2048.0)
    );
    assert!(
        (97.0..=100.0).contains(&report.records_per_batch),
        "the last batch of the input is short: {report:?}"
    );
    assert!(report.failed.is_none() && report.records_per_round >= 250);
    let Spread { median, min, max } = report.plugin.nanos_per_record;
    assert!(0.0 < min && min <= median && median <= max);
    assert!(report.plugin.cpu_nanos_per_record.max > 0.0);
}

#[tokio::test]
async fn records_that_fail_are_counted_and_shown() {
    let failed = run(Some(Ok(()))).await.unwrap().failed.unwrap();
    // One of each batch; three batches make a round of 250 records.
    assert_eq!((failed.records, failed.first.as_str()), (9, "no good"));
}

#[tokio::test]
async fn a_call_that_fails_ends_the_benchmark_with_the_batch_and_the_reason() {
    let error = run(Some(Err(ProcessorError::Trapped {
        message: "unreachable".to_owned(),
    })))
    .await
    .unwrap_err();
    let told = error.to_string();
    assert!(
        told.contains("batch 1: ") && told.contains("unreachable"),
        "{told}"
    );
}

#[tokio::test]
async fn a_stop_ends_it_without_a_report() {
    let (stop, plugin) = (CancellationToken::new(), Doubling::new(None));
    stop.cancel();
    assert!(matches!(
        bench().run(&plugin, &plugin, &stop).await,
        Err(BenchError::Interrupted)
    ));
}
