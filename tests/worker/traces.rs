//! What a pipeline reports of batches that are traced.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use harness::fake_stream::ReadOp;
use harness::fake_tracer::FakeTracer;
use harness::fleet::{TestFleet, until};
use harness::native::NativePlugin;
use shardmill_core::pipeline::{Order, Parallelism};
use shardmill_core::trace::{Operation, Sampler, Span, TraceId};
use shardmill_worker::BatchLimits;

use crate::poison::{Bad, dead_lettering, number, plugin};

/// A fleet whose hosts trace the batches that `sampler` takes.
fn traced(shards: u32, sampler: Sampler) -> (TestFleet, Arc<FakeTracer>) {
    let mut fleet = TestFleet::new(shards);
    let tracer = Arc::new(FakeTracer::new(sampler));
    fleet.tracer = Some(Arc::clone(&tracer) as _);
    fleet.options.batches = BatchLimits {
        records: 8,
        ..BatchLimits::default()
    };
    (fleet, tracer)
}

fn all() -> Sampler {
    Sampler::new(1.0).unwrap()
}

fn traces(spans: &[Span]) -> BTreeSet<String> {
    let ids = spans.iter().map(|span| span.context.trace.to_string());
    ids.collect()
}

fn attempt(span: &Span) -> u32 {
    let Operation::Process { attempt, .. } = &span.operation else {
        panic!("{span:?}");
    };
    *attempt
}

#[tokio::test(start_paused = true)]
async fn all_attempts_at_a_batch_and_its_halves_are_one_trace_that_ends_with_the_checkpoint() {
    let (mut fleet, tracer) = traced(1, all());
    fleet.options.failure = dead_lettering(5);
    fleet.put(0..16);
    // One record of the first eight fails four times.
    let fails = |number: u32, before: u32| (number == 5 && before < 4).then_some(Bad::Traps);
    let plugin = plugin(1, move |record, before| fails(number(record), before));
    let host = fleet.start("a", plugin);
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    until("the traces have ended", || tracer.settled().len() == 2).await;
    host.stop().await;

    let calls = tracer.calls();
    assert_eq!(traces(&calls).len(), 2, "{calls:#?}");
    let first = calls[0].context.trace;
    let of_first: Vec<&Span> = calls
        .iter()
        .filter(|span| span.context.trace == first)
        .collect();
    let failed = of_first.iter().filter(|span| span.failure.is_some());
    assert_eq!(failed.count(), 4);
    assert!(of_first.iter().any(|span| attempt(span) > 1));
    let failure = of_first[0].failure.as_ref().unwrap();
    assert_eq!(failure.code, "trapped");
    // All calls are below the reply that brought the records, and the end is below the last call.
    let received = tracer.received();
    assert_eq!(traces(&received), traces(&calls));
    assert_eq!(received.len(), 2, "once for each trace");
    for call in &of_first {
        assert_eq!(call.parent, Some(received[0].context.span));
    }
    let settled = tracer.settled();
    let end = settled.iter().find(|span| span.context.trace == first);
    let last = of_first.last().unwrap();
    assert_eq!(end.unwrap().parent, Some(last.context.span));
    for span in tracer.spans() {
        assert!(span.started_ns <= span.ended_ns, "{span:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_another_host_delivers_again_is_in_the_trace_that_it_began_in() {
    let (mut fleet, tracer) = traced(1, all());
    fleet.options.checkpoints.age = Duration::from_hours(1);
    fleet.put(0..8);
    let host = fleet.start("a", NativePlugin::echo(1));
    until("delivered", || tracer.calls().len() == 1).await;
    // A crash: nothing was checkpointed.
    drop(host);
    let host = fleet.start("b", NativePlugin::echo(1));
    until("delivered again", || tracer.calls().len() == 2).await;
    host.stop().await;
    let calls = tracer.calls();
    assert_eq!(traces(&calls).len(), 1);
    assert_ne!(calls[0].context.span, calls[1].context.span);
}

#[tokio::test(start_paused = true)]
async fn with_parallel_keys_each_call_has_a_trace_of_its_own_with_its_end() {
    let (mut fleet, tracer) = traced(1, all());
    fleet.options.parallelism = Parallelism::new(4).unwrap();
    fleet.options.failure.order = Order::Key;
    for number in 0..64 {
        let key = format!("key-{}", number % 16);
        fleet.stream.put_at(0, &key, number.to_string());
    }
    let host = fleet.start("a", NativePlugin::echo(1));
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    let have_ended = || tracer.settled().len() == tracer.calls().len();
    until("the traces have ended", have_ended).await;
    host.stop().await;
    let calls = tracer.calls();
    assert!(calls.len() >= 8, "{}", calls.len());
    assert_eq!(traces(&calls).len(), calls.len());
    assert_eq!(traces(&tracer.settled()), traces(&calls));
}

#[tokio::test(start_paused = true)]
async fn of_a_batch_that_is_not_traced_nothing_is_searched_and_no_clock_is_read() {
    let (fleet, tracer) = traced(1, Sampler::none());
    fleet.put(0..800);
    let host = fleet.start("a", NativePlugin::echo(1));
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    host.stop().await;
    assert_eq!((tracer.spans(), tracer.searches()), (Vec::new(), 0));
    // Two looks for each reply, of which there are some; none for each of a hundred batches.
    let reads = tracer.clock_reads();
    let replies = fleet.stream.calls(ReadOp::Fetch) as u64;
    assert!(reads <= 2 * replies + 2, "{reads} reads, {replies} calls");
}

#[tokio::test(start_paused = true)]
async fn one_in_so_many_batches_is_traced_whatever_host_has_it() {
    let sampler = Sampler::new(0.25).unwrap();
    let (fleet, tracer) = traced(4, sampler);
    fleet.put(0..3_200);
    let host = fleet.start("a", NativePlugin::echo(1));
    until("all checkpointed", || fleet.is_all_checkpointed()).await;
    host.stop().await;
    let calls = tracer.calls();
    // Of 400 batches or some more; four standard deviations.
    assert!((65..=140).contains(&calls.len()), "{}", calls.len());
    let is_taken = |id: TraceId| sampler.takes(id);
    assert!(calls.iter().all(|span| is_taken(span.context.trace)));
}
