//! The hostile corpus, or some of it (`SHARDMILL_CORPUS=1`: all of it), dropped into the plugins
//! folder of a host whose neighbour plugin is under a steady feed.
//!
//! Prints the neighbour's latency, from put to output, without and with the corpus, and the host's
//! resident memory.

use std::collections::HashMap;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use aws_sdk_kinesis::Client;
use aws_sdk_kinesis::primitives::Blob;
use harness::corpus::{self, Call, Entry, Expected};
use harness::flights::Output;
use harness::guests::guest;
use harness::process::{Host, eventually};
use harness::setting::{STREAM, Setting};
use serde_json::Value;
use shardmill_core::lease::Checkpoint;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Every so manieth entry is some of each kind: they stand together by kind, in more than so many
/// each.
const SOME: usize = 4;
/// Entries in the folder at once. Enough to overlap their deadlines, few enough to see which one
/// did what.
const AT_ONCE: usize = 8;
/// Of an entry with many files, how many replace each other in the folder.
const FILES_MAX: usize = 8;
/// Resident memory that the host may have had at any time. Eight instances of 64 MiB, the compiler
/// at work on one plugin and the host itself stay well below; a corpus that leaked, or a limit that
/// did not hold, would not.
pub(crate) const RESIDENT_KIB_MAX: u64 = 1 << 20;
/// What a component that keeps state exports.
const STATE: &[u8] = b"shardmill:processor/state@0.1.0";
pub(crate) const CONFIG: &str = "[host]\nadmin = \"127.0.0.1:0\"\non-remove = \
    \"stop\"\n[reads]\ncalls-per-second = 50.0\n\
    bytes-per-second = \"1GiB\"\nidle-every = \"20ms\"\nidle-max = \"20ms\"";

/// A feed that remembers when it put what, and a reader of the output that looks when it comes out.
pub(crate) struct Latency {
    put: Arc<Mutex<HashMap<u64, Instant>>>,
    took: Arc<Mutex<Vec<Took>>>,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

/// How long one record took, and when it came out.
#[derive(Clone, Copy)]
pub(crate) struct Took {
    pub(crate) duration: Duration,
    pub(crate) at: Instant,
}

impl Latency {
    pub(crate) fn start(client: Client, output: PathBuf) -> Self {
        let (put, took): (Arc<Mutex<HashMap<_, _>>>, Arc<Mutex<Vec<_>>>) = Default::default();
        let (stop, mut tasks) = (CancellationToken::new(), JoinSet::new());
        tasks.spawn(feed(client, Arc::clone(&put), stop.clone()));
        tasks.spawn(follow(
            output,
            Arc::clone(&put),
            Arc::clone(&took),
            stop.clone(),
        ));
        Self {
            put,
            took,
            stop,
            tasks,
        }
    }

    /// Waits for the first records, and forgets how long they took: they waited for the plugin to
    /// be compiled.
    pub(crate) async fn until_flowing(&self) {
        while self.took.lock().unwrap().len() < 10 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.took.lock().unwrap().clear();
    }

    /// What was measured since the last call: median, 99th of a hundred, longest, and how many.
    pub(crate) fn take(&self) -> (Duration, Duration, Duration, usize) {
        let took = self.take_each().into_iter();
        let mut took: Vec<Duration> = took.map(|one| one.duration).collect();
        took.sort_unstable();
        let at = |percent: usize| took[(took.len() - 1) * percent / 100];
        (at(50), at(99), at(100), took.len())
    }

    /// Each record since the last call, in the order in which they came out.
    pub(crate) fn take_each(&self) -> Vec<Took> {
        std::mem::take(&mut *self.took.lock().unwrap())
    }

    /// Stops once everything that was put has come out; gives how many that is.
    pub(crate) async fn stop(mut self) -> usize {
        self.stop.cancel();
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap();
        }
        self.put.lock().unwrap().len()
    }
}

async fn feed(client: Client, put: Arc<Mutex<HashMap<u64, Instant>>>, stop: CancellationToken) {
    for flight in 0_u64.. {
        if stop
            .run_until_cancelled(tokio::time::sleep(Duration::from_millis(20)))
            .await
            .is_none()
        {
            return;
        }
        let line = format!(
            r#"{{"carrier":"UA","flight":{flight},"origin":"EWR","dest":"IAH","dep_delay":2}}"#
        );
        put.lock().unwrap().insert(flight, Instant::now());
        let request = client
            .put_record()
            .stream_name(STREAM)
            .partition_key("key")
            .data(Blob::new(line));
        request.send().await.expect("the record is stored");
    }
}

async fn follow(
    output: PathBuf,
    put: Arc<Mutex<HashMap<u64, Instant>>>,
    took: Arc<Mutex<Vec<Took>>>,
    stop: CancellationToken,
) {
    let (mut offset, mut seen) = (0, 0);
    while !stop.is_cancelled() || seen < put.lock().unwrap().len() {
        tokio::time::sleep(Duration::from_millis(2)).await;
        let text = text_from(&output, offset);
        // A line that is being written is read with the next ones.
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        offset += whole as u64;
        for line in text[..whole].lines() {
            let line: Value = serde_json::from_str(line).unwrap();
            let put_at = put.lock().unwrap()[&line["flight"].as_u64().unwrap()];
            took.lock().unwrap().push(Took {
                duration: put_at.elapsed(),
                at: Instant::now(),
            });
            seen += 1;
        }
    }
}

fn text_from(path: &Path, offset: u64) -> String {
    let mut text = String::new();
    let Ok(mut file) = std::fs::File::open(path) else {
        return text;
    };
    file.seek(SeekFrom::Start(offset)).unwrap();
    file.read_to_string(&mut text).unwrap();
    text
}

/// Whether the host says of an entry what is expected; a close is only logged, and a load comes
/// with a second instance.
fn is_judged(entry: &Entry, status: &Value, log: &str) -> bool {
    let plugin = &status["plugins"][entry.name];
    let shards = || {
        plugin["shards"]
            .as_object()
            .into_iter()
            .flat_map(|shards| shards.values())
    };
    let is_blocked = |says: &str| {
        shards().any(|shard| {
            shard["blocked"]["reason"]
                .as_str()
                .is_some_and(|reason| reason.contains(says))
        })
    };
    let has_settled =
        || shards().any(|shard| shard["records"].as_u64().is_some_and(|records| records > 0));
    let is_refused = |says: &str| {
        plugin["refused-file"]
            .as_str()
            .is_some_and(|reason| reason.contains(says))
    };
    match entry.expected {
        Expected::RefusedByHost(says) => is_refused(says),
        Expected::Refused { says, mend } => is_refused(says) && is_refused(mend),
        Expected::Fails {
            call: Call::Init | Call::Process | Call::Save,
            says,
            ..
        } => is_blocked(says),
        Expected::Fails {
            call: Call::Close | Call::Load,
            ..
        }
        | Expected::Harmless => has_settled(),
        Expected::Runs | Expected::Contained => log.contains(entry.name),
    }
}

/// Puts an entry into the folder, with a manifest that makes its deadlines short where they are
/// what stops it.
pub(crate) async fn drop_entry(setting: &Setting, entry: &Entry) {
    let is_stopped_by_time = matches!(
        entry.expected,
        Expected::Fails {
            kind: "deadline",
            ..
        } | Expected::Runs
            | Expected::Contained
    );
    let deadline = if is_stopped_by_time { "200ms" } else { "30s" };
    let config: Vec<String> = entry
        .config
        .iter()
        .map(|(key, value)| format!("{key} = \"{value}\"\n"))
        .collect();
    let config = config.concat();
    let files = (entry.files)();
    let keeps_state = files
        .iter()
        .any(|file| file.windows(STATE.len()).any(|part| part == STATE));
    let manifest = format!(
        "initial-position = \"latest\"\n[limits]\nprocess-deadline = \
            \"{deadline}\"\ninit-deadline = \"{deadline}\"\n\
         [grants]\nstate = {keeps_state}\n[config]\n{config}"
    );
    setting.drop_manifest(entry.name, &manifest);
    let step = files.len().div_ceil(FILES_MAX);
    for file in files.into_iter().step_by(step) {
        setting.drop_plugin(entry.name, &file);
        // Longer than a file has to rest before it is read; of several, the last stays.
        tokio::time::sleep(Duration::from_millis(60)).await;
    }
}

/// Nothing that failed is checkpointed. One entry does well for some batches.
async fn check_unsettled(setting: &Setting, entry: &Entry) {
    let is_failing = matches!(
        entry.expected,
        Expected::Fails {
            call: Call::Init | Call::Process | Call::Save,
            ..
        }
    );
    if is_failing && entry.name != "evil-memory-leak" {
        let rows = setting.leases(entry.name).await;
        assert!(
            rows.iter().all(|row| row.checkpoint == Checkpoint::Latest),
            "{}: {rows:?}",
            entry.name
        );
    }
}

/// All entries if `SHARDMILL_CORPUS` is set; else some of each kind, and those that only a host
/// refuses.
fn chosen() -> Vec<Entry> {
    let step = if std::env::var_os("SHARDMILL_CORPUS").is_some() {
        1
    } else {
        SOME
    };
    let is_chosen = |(n, entry): &(usize, Entry)| {
        n % step == 0 || matches!(entry.expected, Expected::RefusedByHost(_))
    };
    corpus::all()
        .into_iter()
        .enumerate()
        .filter(is_chosen)
        .map(|(_, entry)| entry)
        .collect()
}

/// Waits until all of them are judged; gives the most memory that the host had meanwhile.
pub(crate) async fn until_judged(host: &Host, entries: &[Entry]) -> u64 {
    let deadline = tokio::time::Instant::now() + Duration::from_mins(5);
    let (mut left, mut resident) = (entries.iter().collect::<Vec<_>>(), 0);
    while !left.is_empty() {
        let (status, log) = (host.status().await, host.log());
        left.retain(|entry| !is_judged(entry, &status, &log));
        resident = resident.max(host.resident_kib());
        let names: Vec<_> = left.iter().map(|entry| entry.name).collect();
        let of_left: Vec<_> = names.iter().map(|name| &status["plugins"][name]).collect();
        assert!(
            tokio::time::Instant::now() < deadline,
            "not as expected: {names:?} {of_left:#?}\n{log}"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    resident
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hostile_corpus_in_the_folder_costs_the_neighbour_no_record_and_the_host_no_memory() {
    let setting = Setting::new(1).await;
    setting.drop_plugin("flights", &guest("flights"));
    let host = setting.host_with("a", CONFIG);
    let latency = Latency::start(setting.clients.kinesis.clone(), setting.output_of("a"));
    latency.until_flowing().await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let (alone, at_start) = (latency.take(), host.resident_kib());

    let (entries, started, mut at_most) = (chosen(), Instant::now(), 0);
    for wave in entries.chunks(AT_ONCE) {
        for entry in wave {
            drop_entry(&setting, entry).await;
        }
        at_most = at_most.max(until_judged(&host, wave).await);
        for entry in wave {
            check_unsettled(&setting, entry).await;
            for ending in ["wasm", "toml"] {
                std::fs::remove_file(
                    setting
                        .path()
                        .join("plugins")
                        .join(format!("{}.{ending}", entry.name)),
                )
                .unwrap();
            }
        }
    }
    let (took, together) = (started.elapsed(), latency.take());
    // Whoever still drains does so now.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let at_end = host.resident_kib();
    let put = latency.stop().await;
    // The last one may have been put a moment ago.
    let lines = || Output::read(&[&setting.output_of("a")]).lines;
    eventually("all records are out", || lines() >= put as u64).await;
    assert!(
        host.terminate().await.success(),
        "the host outlived the corpus"
    );

    eprintln!(
        "{} entries in {took:?}; the neighbour from put to output, median, p99, longest, records:",
        entries.len()
    );
    eprintln!("  alone {alone:?}\n  with the corpus {together:?}");
    eprintln!(
        "resident: {} MiB at the start, {} at most, {} at the end",
        at_start >> 10,
        at_most >> 10,
        at_end >> 10
    );
    assert!(at_most < RESIDENT_KIB_MAX, "{at_most} KiB");
    let output = Output::read(&[&setting.output_of("a")]);
    assert_eq!(
        (output.lines, output.repeats, output.disorder),
        (put as u64, 0, 0)
    );
    setting.stop().await;
}
