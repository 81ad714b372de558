//! What a call into a component costs, beside the same call to native code.

use std::sync::Arc;

use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use harness::guests::guest;
use harness::instance::instance_context;
use harness::native::NativePlugin;
use shardmill_core::plugin::PluginName;
use shardmill_core::ports::{ProcessorFactory, RecordProcessor};
use shardmill_core::stream::{Batch, Position, Record, SequenceNumber};
use shardmill_wasm::{Plugin, Runtime, RuntimeOptions};
use tokio::runtime;

fn batch(records: usize, bytes: usize) -> Batch {
    let record = |n: usize| Record {
        data: Bytes::from(vec![b'x'; bytes]),
        partition_key: format!("key-{n}"),
        explicit_hash_key: None,
        position: Position::plain(
            SequenceNumber::parse(&format!(
                "49640871423056104321897561048329857382957382957{n:09}"
            ))
            .expect("digits"),
        ),
        arrival_ms: 1,
    };
    Batch {
        records: Arc::new((0..records).map(record).collect()),
        attempt: 1,
        millis_behind_latest: 0,
        trace: None,
    }
}

fn calls(c: &mut Criterion) {
    let tokio = runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let engine = Runtime::new(RuntimeOptions::default()).expect("an engine");
    let load = |guest_name: &str| {
        let name = PluginName::new(guest_name).expect("valid");
        let plugin = tokio.block_on(engine.load(name, Bytes::from(guest(guest_name))));
        plugin.expect("loads")
    };
    let start = |plugin: &Plugin| -> Box<dyn RecordProcessor> {
        let instance = tokio.block_on(plugin.instantiate(instance_context(), None));
        instance.expect("an instance")
    };
    // As in a host: otherwise the memory of each batch is returned to the system, and comes back
    // with page faults. glibc keeps blocks that are smaller than the largest that was freed.
    drop(std::hint::black_box(Vec::<u8>::with_capacity(31 << 20)));
    let plugin = load("noop");
    let mut frame = start(&plugin);
    let mut lists = start(&load("noop_lists"));
    let mut echo_frame = start(&load("echo"));
    let mut echo_lists = start(&load("echo_lists"));
    let native = NativePlugin::no_op(1).unwatched();
    let mut native: Box<dyn RecordProcessor> = tokio
        .block_on(native.instantiate(instance_context(), None))
        .expect("an instance");

    let mut group = c.benchmark_group("process");
    for (records, bytes) in [
        (1, 1024),
        (100, 1024),
        (1000, 100),
        (1000, 1024),
        (1000, 10 * 1024),
    ] {
        let batch = batch(records, bytes);
        let label = format!("{records}x{bytes}B");
        group.throughput(Throughput::Elements(records as u64));
        for (what, processor) in [
            ("in one frame", &mut frame),
            ("in lists", &mut lists),
            ("native", &mut native),
            ("echo in one frame", &mut echo_frame),
            ("echo in lists", &mut echo_lists),
        ] {
            group.bench_with_input(BenchmarkId::new(what, &label), &batch, |b, batch| {
                b.iter(|| {
                    tokio
                        .block_on(processor.process(batch.clone()))
                        .expect("handled")
                });
            });
        }
    }
    group.finish();
    c.bench_function("instantiate and init", |b| {
        b.iter(|| {
            tokio
                .block_on(plugin.instantiate(instance_context(), None))
                .expect("an instance")
        });
    });
}

criterion_group!(benches, calls);
criterion_main!(benches);
