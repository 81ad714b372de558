//! Components that a grammar makes of seeds, each in the folder of a whole host that may not grow
//! beyond a limit, beside a plugin that works.
//! `SHARDMILL_GRAMMAR=10000 cargo test --test scenarios grammar -- --nocapture` searches on, from
//! `SHARDMILL_GRAMMAR_FROM`; what it finds is kept as a seed here.

use std::collections::BTreeMap;
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
/// After how many waves a long search shows what it has found so far.
const SHOWN_EVERY: usize = 250;
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

/// Where a host's own sentence ends and the words of its parser, its linker or the component begin.
/// The parser alone has hundreds of sentences for damaged bytes, and the host does the same after
/// each: they are one kind of answer.
const ENDS_OF_OWN_WORDS: [&str; 7] = [
    "failed to compile:",
    "failed to parse WebAssembly module:",
    "it is not a valid component:",
    "its imports or exports do not match the contract:",
    "it imports interfaces that plugins do not get:",
    "the plugin emitted to",
    "the plugin trapped: invalid utf-",
];

/// What hosts said of components, without what is different in each, and the first seed of it.
#[derive(Default)]
struct Kinds {
    by_text: BTreeMap<String, (u64, u64)>,
    silent: u64,
}

impl Kinds {
    fn add(&mut self, seed: u64, text: &str) {
        // Where it trapped differs in each, and so do names that a component made up, which may
        // be damaged, what else happened, and addresses, in hexadecimal digits behind an x.
        let what = text.split(", in ").next().unwrap_or_default();
        let what = own_words(what.split(" (").next().unwrap_or_default());
        let outside_backticks: String = what.split('`').step_by(2).collect();
        let words = outside_backticks
            .split(' ')
            .filter(|word| !is_of_component(word));
        let mut kind = words.collect::<Vec<_>>().join(" ");
        kind = kind.replace(&format!("seed-{seed}"), "NAME");
        kind.retain(|c| !c.is_ascii_digit());
        let seen = self.by_text.entry(kind).or_insert((0, seed));
        seen.0 += 1;
    }

    /// With the estimate of Good and Turing: the chance that the next component shows a kind that
    /// none has shown is the part of components whose kind is theirs alone.
    fn show(&self) {
        for (kind, (count, first)) in &self.by_text {
            eprintln!("  {count} from seed {first}: {kind}");
        }
        let all: u64 = self.by_text.values().map(|(count, _)| count).sum();
        let alone = self.by_text.values().filter(|(count, _)| *count == 1);
        eprintln!(
            "{} kinds in {all} components, {} of them once; {} did nothing that shows",
            self.by_text.len(),
            alone.count(),
            self.silent
        );
    }
}

fn own_words(text: &str) -> &str {
    let ends = ENDS_OF_OWN_WORDS.iter();
    let end = ends.filter_map(|words| text.find(words).map(|at| at + words.len()));
    &text[..end.max().unwrap_or(text.len())]
}

/// Whether a word of a message is an address, or a name in quotes or of an interface.
fn is_of_component(word: &str) -> bool {
    word.starts_with("0x") || word.starts_with('"') || word.contains('/')
}

/// What came of a component: refused, failed, or did its work. `None` while it is not known.
fn known(status: &Value, name: &str) -> Option<String> {
    let plugin = &status["plugins"][name];
    if let Some(refused) = plugin["refused-file"].as_str() {
        return Some(format!("refused: {refused}"));
    }
    let shards = plugin["shards"].as_object()?;
    shards.values().find_map(|shard| {
        let is_at_work = shard["records"].as_u64() > Some(0);
        let reason = shard["blocked"]["reason"].as_str();
        let blocked = reason.map(|reason| format!("blocked: {reason}"));
        blocked.or_else(|| is_at_work.then(|| "works".to_owned()))
    })
}

async fn until_known(host: &Host, seeds: &[u64], kinds: &mut Kinds) {
    let started = Instant::now();
    let mut left = seeds.to_vec();
    while !left.is_empty() && started.elapsed() < PATIENCE {
        if let Some(status) = host.status_if_answered().await {
            left.retain(|seed| match known(&status, &format!("seed-{seed}")) {
                Some(text) => {
                    kinds.add(*seed, &text);
                    false
                }
                None => true,
            });
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    kinds.silent += u64::try_from(left.len()).unwrap();
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
    let (started, mut at_most, mut kinds) = (Instant::now(), 0, Kinds::default());
    for (number, wave) in seeds.chunks(AT_ONCE).enumerate() {
        if number % SHOWN_EVERY == SHOWN_EVERY - 1 {
            kinds.show();
        }
        let names: Vec<_> = wave.iter().map(|seed| format!("seed-{seed}")).collect();
        for (seed, name) in wave.iter().zip(&names) {
            setting.drop_plugin(name, &grammar::component(*seed));
        }
        until_known(&host, wave, &mut kinds).await;
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
    kinds.show();
    setting.until_checkpointed("flights", &last).await;
    assert!(host.terminate().await.success(), "the host outlived them");
    let output = Output::read(&[&setting.output_of("a")]);
    assert_eq!((output.carriers, output.repeats), (flights::expected(), 0));
    setting.stop().await;
}
