//! Parallel keys: a plugin that waits 10 ms in each call, on one shard, with more and more
//! instances.

use std::sync::Arc;
use std::time::Duration;

use harness::native::NativePlugin;
use harness::rig::{Rig, options, unlimited};
use shardmill_core::pipeline::{FailurePolicy, Order, Parallelism};
use shardmill_core::ports::ProcessorFactory;
use shardmill_worker::{BatchLimits, Retrieval};

const RECORDS: u64 = 2_000;
const CALL: Duration = Duration::from_millis(10);
const ROUNDS: usize = 3;
const INSTANCES: [u32; 5] = [1, 2, 4, 8, 16];

/// One record a call, as a plugin sees it that makes a request for each. The numbers of instances
/// take turns in one run; the ratio to one instance is what counts.
#[expect(
    clippy::print_stdout,
    reason = "the report is what this command is for"
)]
pub(crate) async fn measure(rig: &Rig) {
    let stream = rig.stream("parallel", 1).await;
    rig.fill(&stream, RECORDS, 100).await;
    let plugin: Arc<dyn ProcessorFactory> =
        Arc::new(NativePlugin::no_op(1).taking(CALL).unwatched());
    let mut rates = INSTANCES.map(|_| Vec::new());
    for round in 0..ROUNDS {
        for (instances, rates) in INSTANCES.into_iter().zip(&mut rates) {
            let application = format!("parallel-{instances}-{round}");
            let reads = unlimited(10_000);
            let mut options = options(&stream, &application, reads, Retrieval::Polling);
            options.parallelism = Parallelism::new(instances).expect("few enough");
            options.batches = BatchLimits {
                records: 1,
                ..options.batches
            };
            options.failure = FailurePolicy {
                order: Order::Key,
                ..FailurePolicy::default()
            };
            let measure = rig.work_off(options, &plugin, RECORDS).await;
            rates.push(RECORDS as f64 / measure.working());
        }
    }
    println!("\n{RECORDS} records on one shard, {CALL:?} a call of one record, median of {ROUNDS}");
    let medians = rates.map(|mut rates| {
        rates.sort_by(f64::total_cmp);
        rates[rates.len() / 2]
    });
    for (instances, rate) in INSTANCES.into_iter().zip(medians) {
        let times = rate / medians[0];
        println!("  {instances:>2} instances {rate:>7.0} records/s, {times:>5.2} times one");
    }
}
