//! A batch that fails is recorded with all that its instance had been given: what is in the state, and
//! what came since.

use std::sync::{Arc, Mutex};

use harness::fleet::{TestFleet, until};
use harness::native::NativePlugin;
use shardmill_core::pipeline::{FailurePolicy, GiveUp, Order, Parallelism};
use shardmill_core::plugin::{Lack, ProcessorError};
use shardmill_core::ports::{Processed, Recorder};
use shardmill_core::recording::Recording;
use shardmill_core::stream::Batch;
use shardmill_worker::{RecordingLimits, Recordings};

use crate::poison::{Bad, number, plugin};

const LIMITS: RecordingLimits = RecordingLimits {
    instance_bytes: 1 << 20,
    host_bytes: 4 << 20,
};

#[derive(Default)]
struct Kept(Mutex<Vec<Recording>>);

impl Recorder for Kept {
    fn keep(&self, recording: Recording) {
        self.0.lock().unwrap().push(recording);
    }
}

impl Kept {
    fn all(&self) -> Vec<Recording> {
        self.0.lock().unwrap().clone()
    }
}

/// A fleet that records, and gives a record up after two attempts.
fn recording(shards: u32, limits: RecordingLimits) -> (TestFleet, Arc<Kept>) {
    let kept = Arc::new(Kept::default());
    let mut fleet = TestFleet::new(shards);
    fleet.recordings = Recordings::new(Arc::<Kept>::clone(&kept), limits);
    fleet.options.failure = FailurePolicy {
        attempts: Some(2),
        bisect: true,
        then: Some(GiveUp::DeadLetter("dead".to_owned())),
        ..FailurePolicy::default()
    };
    (fleet, kept)
}

fn numbers(batch: &Batch) -> Vec<u32> {
    batch.records.iter().map(number).collect()
}

/// The records that the instance had handled, as the recording tells it: in the state, and since.
fn before(recording: &Recording) -> Vec<String> {
    let state = recording.state.clone().unwrap_or_default();
    let state = String::from_utf8(state.to_vec()).unwrap();
    let mut before: Vec<String> = state.lines().map(str::to_owned).collect();
    for batch in &recording.run_up {
        before.extend(
            batch
                .records
                .iter()
                .map(|record| record.position.to_string()),
        );
    }
    before
}

#[tokio::test(start_paused = true)]
async fn a_failing_batch_is_recorded_with_the_state_and_the_batches_before_it() {
    let (mut fleet, kept) = recording(1, LIMITS);
    fleet.options.keeps_state = true;
    let traps = |batch: &Batch| batch.records.iter().any(|record| number(record) == 137);
    let plugin = NativePlugin::new(1, move |_, batch: &Batch| {
        if traps(batch) {
            let message = "poison".to_owned();
            return Err(ProcessorError::Trapped { message });
        }
        Ok(Processed::default())
    });
    let host = fleet.start("a", plugin.keeping_state());
    fleet.put(0..200);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    host.stop().await;
    let recordings = kept.all();
    assert!(!recordings.is_empty());
    let records = fleet.stream.records(&fleet.stream.shards()[0].id);
    for recording in &recordings {
        assert!(recording.is_whole());
        assert_eq!(recording.failure.code, "trapped");
        assert!(numbers(&recording.batch).contains(&137));
        let first = &recording.batch.records[0].position;
        let earlier = records.iter().filter(|record| record.position < *first);
        let earlier: Vec<String> = earlier.map(|record| record.position.to_string()).collect();
        assert_eq!(before(recording), earlier, "each record once, and in order");
    }
    let last = recordings.last().unwrap();
    assert_eq!(numbers(&last.batch), [137], "it was found alone");
    assert!(last.batch.attempt > 1);
    assert_eq!(
        fleet.recordings.used_bytes(),
        0,
        "nothing is held for instances that are gone"
    );
}

#[tokio::test(start_paused = true)]
async fn a_record_that_is_rejected_is_recorded_and_the_instance_goes_on_with_what_it_has() {
    let (fleet, kept) = recording(1, LIMITS);
    let bad = plugin(1, |record, _| {
        (number(record) % 50 == 7).then_some(Bad::Reject)
    });
    let host = fleet.start("a", bad);
    fleet.put(0..100);
    host.stop_when(|| fleet.is_all_checkpointed()).await;
    let recordings = kept.all();
    assert_eq!(recordings.len(), 2);
    let failed = |recording: &Recording| {
        let index = recording.failure.records[0].index as usize;
        number(&recording.batch.records[index])
    };
    let failed: Vec<u32> = recordings.iter().map(failed).collect();
    assert_eq!(failed, [7, 57]);
    let given: Vec<u32> = recordings[1].run_up.iter().flat_map(numbers).collect();
    assert!(
        given.contains(&7),
        "what failed was given to it too: {given:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_no_records_fault_is_not_recorded() {
    let (fleet, kept) = recording(1, LIMITS);
    let calls = std::sync::atomic::AtomicU32::new(0);
    let plugin = NativePlugin::new(1, move |_, _: &Batch| {
        let message = "away".to_owned();
        match calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
            0 => Err(ProcessorError::Host { message }),
            1 => Err(ProcessorError::NotReady {
                lack: Lack::Service,
                message,
            }),
            _ => Ok(Processed::default()),
        }
    });
    let host = fleet.start("a", plugin);
    fleet.put(0..10);
    host.stop_when(|| fleet.is_all_checkpointed()).await;
    assert!(kept.all().is_empty());
}

#[tokio::test(start_paused = true)]
async fn with_parallel_keys_each_instance_has_its_own_run_up() {
    let (mut fleet, kept) = recording(1, LIMITS);
    fleet.options.parallelism = Parallelism::new(4).unwrap();
    fleet.options.failure.order = Order::Key;
    let bad = plugin(1, |record, _| {
        (number(record) == 150).then_some(Bad::Reject)
    });
    let host = fleet.start("a", bad);
    fleet.put(0..200);
    host.stop_when(|| fleet.is_all_checkpointed()).await;
    let recordings = kept.all();
    assert_eq!(recordings.len(), 1);
    let own = recordings[0].run_up.iter().flat_map(numbers).count();
    assert!((1..150).contains(&own), "{own}: a part of the shard");
}

#[tokio::test(start_paused = true)]
async fn many_shards_hold_no_more_than_the_host_may_and_say_what_is_missing() {
    let limits = RecordingLimits {
        instance_bytes: 1 << 20,
        host_bytes: 20_000,
    };
    let (fleet, kept) = recording(50, limits);
    let bad = plugin(1, |record, _| {
        (number(record) == 4_321).then_some(Bad::Reject)
    });
    let host = fleet.start("a", bad);
    for portion in 0..10 {
        fleet.put(portion * 500..(portion + 1) * 500);
        until("all checkpointed", || fleet.is_all_checkpointed()).await;
        assert!(fleet.recordings.used_bytes() <= 20_000);
    }
    assert!(fleet.recordings.used_bytes() > 0);
    host.stop().await;
    let recordings = kept.all();
    assert!(!recordings[0].is_whole() && recordings[0].missing_batches > 0);
}

#[tokio::test(start_paused = true)]
async fn a_plugin_that_rejects_a_record_of_every_batch_is_recorded_at_a_bounded_rate() {
    let (fleet, kept) = recording(1, LIMITS);
    let bad = plugin(1, |record, _| {
        number(record).is_multiple_of(10).then_some(Bad::Reject)
    });
    let host = fleet.start("a", bad);
    fleet.put(0..5_000);
    let started = tokio::time::Instant::now();
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    let seconds = usize::try_from(started.elapsed().as_secs()).unwrap();
    host.stop().await;
    let recorded = kept.all().len();
    assert!(
        (10..=17 + seconds).contains(&recorded),
        "{recorded} in {seconds} s"
    );
}
