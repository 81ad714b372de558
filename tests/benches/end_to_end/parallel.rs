//! Parallel keys: a plugin that takes 10 ms for each record, on one shard, with more and more
//! instances. Once it is native and waits; once it is a component that makes a request.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use bytes::Bytes;
use harness::guests::guest;
use harness::native::NativePlugin;
use harness::rig::{Rig, options, unlimited};
use shardmill_core::pipeline::{FailurePolicy, Order, Parallelism};
use shardmill_core::plugin::{AddressPolicy, HttpHost, Network, Permissions, PluginName};
use shardmill_core::ports::ProcessorFactory;
use shardmill_core::stream::StreamName;
use shardmill_wasm::{HttpOptions, Runtime, RuntimeOptions};
use shardmill_worker::{BatchLimits, Retrieval, WorkerOptions};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

const RECORDS: u64 = 2_000;
const TAKES: Duration = Duration::from_millis(10);
const ROUNDS: usize = 3;
const INSTANCES: [u32; 5] = [1, 2, 4, 8, 16];

/// A plugin, the stream that it works off, and what it may do.
struct Case {
    name: &'static str,
    plugin: Arc<dyn ProcessorFactory>,
    stream: StreamName,
    permissions: Arc<Permissions>,
}

pub(crate) async fn measure(rig: &Rig) {
    compare(rig, &waiting(rig).await).await;
    let mut server = JoinSet::new();
    compare(rig, &requesting(rig, &mut server).await).await;
}

async fn waiting(rig: &Rig) -> Case {
    let stream = rig.stream("parallel", 1).await;
    rig.fill(&stream, RECORDS, 100).await;
    Case {
        name: "a native plugin that waits",
        plugin: Arc::new(NativePlugin::no_op(1).taking(TAKES).unwatched()),
        stream,
        permissions: Arc::default(),
    }
}

/// Each record says what to ask for; the server takes its time.
async fn requesting(rig: &Rig, server: &mut JoinSet<()>) -> Case {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let answer = || async {
        tokio::time::sleep(TAKES).await;
        "done"
    };
    server.spawn(async move {
        let app = Router::new().fallback(answer);
        axum::serve(listener, app).await.expect("it serves");
    });
    let stream = rig.stream("parallel-requests", 1).await;
    let request = format!("http GET http://{address}/");
    rig.fill_with(&stream, RECORDS, Bytes::from(request)).await;
    let host = HttpHost::parse(&format!("http://{address}")).expect("a host");
    Case {
        name: "a component that makes a request",
        plugin: component().await,
        stream,
        permissions: Arc::new(Permissions {
            http: vec![host],
            ..Permissions::default()
        }),
    }
}

async fn component() -> Arc<dyn ProcessorFactory> {
    let loopback = Network::parse("127.0.0.1").expect("a network");
    let http = HttpOptions {
        addresses: AddressPolicy {
            allowed: vec![loopback],
        },
        ..HttpOptions::default()
    };
    let runtime = RuntimeOptions {
        http,
        ..RuntimeOptions::default()
    };
    let engine = Runtime::new(runtime).expect("an engine");
    let name = PluginName::new("noop").expect("valid");
    let loaded = engine.load(name, Bytes::from(guest("asking"))).await;
    Arc::new(loaded.expect("loads"))
}

/// One record a call. The numbers of instances take turns in one run; the ratio to one instance is
/// what counts.
#[expect(
    clippy::print_stdout,
    reason = "the report is what this command is for"
)]
async fn compare(rig: &Rig, case: &Case) {
    let mut rates = INSTANCES.map(|_| Vec::new());
    for round in 0..ROUNDS {
        for (instances, rates) in INSTANCES.into_iter().zip(&mut rates) {
            let application = format!("{}-{instances}-{round}", case.stream);
            let options = with_instances(case, &application, instances);
            let measure = rig.work_off(options, &case.plugin, RECORDS).await;
            rates.push(RECORDS as f64 / measure.working());
        }
    }
    let name = case.name;
    println!("\n{name}: {RECORDS} records on one shard, {TAKES:?} each, median of {ROUNDS}");
    let medians = rates.map(|mut rates| {
        rates.sort_by(f64::total_cmp);
        rates[rates.len() / 2]
    });
    for (instances, rate) in INSTANCES.into_iter().zip(medians) {
        let times = rate / medians[0];
        println!("  {instances:>2} instances {rate:>7.0} records/s, {times:>5.2} times one");
    }
}

fn with_instances(case: &Case, application: &str, instances: u32) -> WorkerOptions {
    let reads = unlimited(10_000);
    let defaults = options(&case.stream, application, reads, Retrieval::Polling);
    WorkerOptions {
        parallelism: Parallelism::new(instances).expect("few enough"),
        permissions: Arc::clone(&case.permissions),
        batches: BatchLimits {
            records: 1,
            ..defaults.batches
        },
        failure: FailurePolicy {
            order: Order::Key,
            ..FailurePolicy::default()
        },
        ..defaults
    }
}
