//! Components that a grammar makes of seeds, each in the folder of a whole host that may not grow
//! beyond a limit, beside a plugin that works.
//! `SHARDMILL_GRAMMAR=10000 cargo test --test scenarios grammar -- --nocapture` searches on, from
//! `SHARDMILL_GRAMMAR_FROM`; what it finds is kept as a seed here.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use harness::flights::{self, Output};
use harness::grammar;
use harness::guests::guest;
use harness::process::{Host, binary};
use harness::setting::Setting;
use serde_json::Value;

use crate::setting as number;

/// Seeds that once did harm.
const KEPT: [u64; 0] = [];
/// Components in the folder at once.
const AT_ONCE: usize = 8;
/// How long a component may take until something is known of it. Some do nothing that shows.
const PATIENCE: Duration = Duration::from_secs(10);
/// Memory that the host may write to: eight plugins of 64 MiB, and itself. What it asks for beyond
/// that it does not get, and it dies.
const DATA_KIB: u64 = 1_536 << 10;

const CONFIG: &str = "[host]\nadmin = \"127.0.0.1:0\"\non-remove = \
    \"stop\"\n[limits]\nprocess-deadline = \"100ms\"\n\
    init-deadline = \"100ms\"\n[retry]\ncap = \"100ms\"\n[reads]\ncalls-per-second = \
    50.0\nidle-every = \"20ms\"";

fn limited(setting: &Setting) -> Host {
    let file = setting.configure("a", "duration = \"3s\"\nscan-every = \"200ms\"", CONFIG);
    let mut command = Command::new("sh");
    command
        .args(["-c", "ulimit -d $0 && exec \"$@\"", &DATA_KIB.to_string()])
        .arg(binary());
    command
        .args(["run", "--config", &file, "--local"])
        .current_dir(setting.path())
        .stdin(Stdio::null());
    Host::run("a", command, setting.path())
}

/// Whether something came of it: refused, failed, or did its work.
fn is_known(status: &Value, name: &str) -> bool {
    let plugin = &status["plugins"][name];
    let mut shards = plugin["shards"]
        .as_object()
        .into_iter()
        .flat_map(|shards| shards.values());
    plugin["refused-file"].is_string()
        || shards.any(|shard| shard["blocked"].is_object() || shard["records"].as_u64() > Some(0))
}

async fn until_known(host: &Host, names: &[String]) {
    let started = Instant::now();
    let mut left = names.to_vec();
    while !left.is_empty() && started.elapsed() < PATIENCE {
        let status = host.status().await;
        left.retain(|name| !is_known(&status, name));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn components_by_chance_neither_end_a_host_nor_take_its_memory_nor_cost_a_neighbour_a_record()
{
    let setting = Setting::new(1).await;
    setting.drop_plugin("flights", &guest("flights"));
    let host = limited(&setting);
    let first = u64::try_from(number("SHARDMILL_GRAMMAR_FROM", 0)).unwrap();
    let count = u64::try_from(number("SHARDMILL_GRAMMAR", AT_ONCE)).unwrap();
    let last = setting.put(&flights::input()).await;
    host.until_status("the folder is read", |status| {
        status["is-folder-read"] == true
    })
    .await;
    let seeds: Vec<u64> = KEPT.into_iter().chain(first..first + count).collect();
    let (started, mut at_most) = (Instant::now(), 0);
    for wave in seeds.chunks(AT_ONCE) {
        let names: Vec<_> = wave.iter().map(|seed| format!("seed-{seed}")).collect();
        for (seed, name) in wave.iter().zip(&names) {
            setting.drop_plugin(name, &grammar::component(*seed));
        }
        until_known(&host, &names).await;
        at_most = at_most.max(host.resident_kib());
        assert!(
            at_most > 0 && at_most < DATA_KIB,
            "{at_most} KiB are resident with seeds {wave:?}"
        );
        for name in names {
            std::fs::remove_file(setting.path().join("plugins").join(format!("{name}.wasm")))
                .unwrap();
        }
    }
    eprintln!(
        "{} components in {:?}; {} MiB resident at most",
        seeds.len(),
        started.elapsed(),
        at_most >> 10
    );
    setting.until_checkpointed("flights", &last).await;
    assert!(host.terminate().await.success(), "the host outlived them");
    let output = Output::read(&[&setting.output_of("a")]);
    assert_eq!((output.carriers, output.repeats), (flights::expected(), 0));
    setting.stop().await;
}
