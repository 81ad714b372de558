//! Work that `tests/benches/instructions.py` counts the instructions of, under valgrind: unlike
//! times, they do not depend on what else a machine does.
//! `instructions WORK ROUNDS` does the work that often and prints nothing.

use std::hint::black_box;
use std::sync::Arc;

use bytes::Bytes;
use harness::fake_tracer::FakeTracer;
use harness::fleet::{TestFleet, until};
use harness::guests::guest;
use harness::instance::instance_context;
use harness::native::NativePlugin;
use serde_json::json;
use shardmill_core::pipeline::{BatchLimits, Beyond, Ledger, Parallelism, Spread, Strand};
use shardmill_core::plugin::PluginName;
use shardmill_core::ports::{ProcessorFactory, RecordProcessor, Tracer};
use shardmill_core::recording::{RunUp, detached};
use shardmill_core::stream::{Batch, Position, Record, SequenceNumber};
use shardmill_core::time::Moment;
use shardmill_core::trace::Sampler;
use shardmill_wasm::{Runtime, RuntimeOptions};
use shardmill_wire::{CborWriter, read_reply};

/// Records of each reply and of each batch; the script divides by it.
const RECORDS: usize = 1_000;
const RECORD_BYTES: usize = 100;

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|word| word != "--bench");
    let work = arguments.next().unwrap_or_default();
    let rounds = arguments.next().and_then(|text| text.parse().ok());
    let rounds: usize = rounds.unwrap_or(1);
    match work.as_str() {
        "json" => decode(&in_json().into(), rounds),
        "cbor" => decode(&in_cbor().into(), rounds),
        "failing" => settle(&[100, 500, 900], rounds),
        "lanes" => spread(rounds),
        "frame" => call("noop", rounds),
        "lists" => call("noop_lists", rounds),
        "pipeline" => pipeline(None, rounds),
        "untraced" => pipeline(Some(0.0), rounds),
        "traced" => pipeline(Some(1.0), rounds),
        "run-up" => keep(|batch| batch, rounds),
        "run-up-of-filtered" => keep(|batch| detached(&batch), rounds),
        // What `cargo bench` calls it with: there is nothing to show without the script.
        _ => {}
    }
}

fn sequence(n: usize) -> String {
    format!("4954498593665654000000000000000000000000000000000{n:07}")
}

fn in_json() -> Vec<u8> {
    let records: Vec<_> = (0..RECORDS)
        .map(|n| {
            json!({
                "SequenceNumber": sequence(n),
                "ApproximateArrivalTimestamp": 1_441_215_410.867,
                "Data": "QUJD".repeat(RECORD_BYTES / 3),
                "PartitionKey": format!("partition-key-{n}"),
            })
        })
        .collect();
    serde_json::to_vec(&json!({"Records": records, "NextShardIterator": "next"})).expect("JSON")
}

fn in_cbor() -> Vec<u8> {
    let mut body = CborWriter::default();
    body.open_map();
    body.text("Records");
    body.open_list();
    for n in 0..RECORDS {
        body.open_map();
        body.text("SequenceNumber");
        body.text(&sequence(n));
        body.text("ApproximateArrivalTimestamp");
        body.time_ms(1_441_215_410_867);
        body.text("Data");
        body.bytes(&[7; RECORD_BYTES]);
        body.text("PartitionKey");
        body.text(&format!("partition-key-{n}"));
        body.end();
    }
    body.end();
    body.end();
    body.finish()
}

fn decode(body: &Bytes, rounds: usize) {
    for _ in 0..rounds {
        black_box(read_reply(black_box(body)).expect("a reply"));
    }
}

/// The decisions about each record of a batch of which some failed. Of one that goes well, only the
/// last record is looked at.
fn settle(failed: &[usize], rounds: usize) {
    let records = batch().records;
    for _ in 0..rounds {
        let mut ledger = Ledger::default();
        for record in records.iter() {
            ledger.hand_out(&record.position);
        }
        ledger.report(&records, failed, None);
        black_box(ledger.settled());
    }
}

/// With parallel keys: which instance each record of a batch goes to, and each one's next call.
fn spread(rounds: usize) {
    let (records, limits) = (batch().records, BatchLimits::default());
    let parallelism = Parallelism::new(4).expect("few enough");
    let now = Moment::default();
    let mut spread = Spread::new(parallelism);
    let mut strands: Vec<Strand> = (0..parallelism.get()).map(|_| Strand::default()).collect();
    for _ in 0..rounds {
        for record in records.iter() {
            let strand = spread.strand_of(record);
            strands[strand].add(record.clone(), now);
        }
        for strand in &mut strands {
            black_box(strand.next_batch(Beyond::Nothing, &limits, now));
        }
    }
}

/// The whole pipeline over the fakes, with a thousand records a round in batches of ten: traced in
/// part, or without a tracer.
fn pipeline(part: Option<f64>, rounds: usize) {
    let tokio = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .expect("a runtime");
    tokio.block_on(async {
        let fleet = fleet_with(part, RECORDS * rounds);
        let host = fleet.start("a", NativePlugin::no_op(1).unwatched());
        until("all checkpointed", || fleet.is_all_checkpointed()).await;
        host.stop().await;
    });
}

fn fleet_with(part: Option<f64>, records: usize) -> TestFleet {
    let mut fleet = TestFleet::new(1);
    fleet.options.batches = BatchLimits {
        records: 10,
        ..BatchLimits::default()
    };
    fleet.tracer = part.map(|part| {
        let sampler = Sampler::new(part).expect("a part");
        Arc::new(FakeTracer::new(sampler)) as Arc<dyn Tracer>
    });
    let data = "x".repeat(RECORD_BYTES);
    for n in 0..records {
        let key = format!("partition-key-{n}");
        fleet.stream.put_at(0, &key, data.clone());
    }
    fleet
}

/// What is kept of a batch in case that a later one fails, as long as none does.
fn keep(as_kept: impl Fn(Batch) -> Batch, rounds: usize) {
    const BYTES_MAX: usize = 512 << 10;
    let given = batch();
    let mut run_up = RunUp::default();
    for _ in 0..rounds {
        run_up.push(as_kept(black_box(given.clone())), BYTES_MAX);
    }
    black_box(run_up.bytes());
}

fn batch() -> Batch {
    let record = |n: usize| Record {
        data: Bytes::from(vec![b'x'; RECORD_BYTES]),
        partition_key: format!("partition-key-{n}"),
        explicit_hash_key: None,
        position: Position::plain(SequenceNumber::parse(&sequence(n)).expect("digits")),
        arrival_ms: 1,
    };
    Batch {
        records: Arc::new((0..RECORDS).map(record).collect()),
        attempt: 1,
        millis_behind_latest: 0,
        trace: None,
    }
}

/// Calls into a component, with all that is around them.
fn call(guest_name: &str, rounds: usize) {
    let tokio = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let engine = Runtime::new(RuntimeOptions::default()).expect("an engine");
    let name = PluginName::new("noop").expect("valid");
    let loaded = tokio.block_on(engine.load(name, Bytes::from(guest(guest_name))));
    let started = tokio.block_on(loaded.expect("loads").instantiate(instance_context(), None));
    let mut instance: Box<dyn RecordProcessor> = started.expect("an instance");
    let batch = batch();
    for _ in 0..rounds {
        let processed = tokio.block_on(instance.process(batch.clone()));
        black_box(processed.expect("handled"));
    }
}
