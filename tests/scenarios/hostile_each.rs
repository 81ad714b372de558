//! Each entry of the hostile corpus alone in the folder of a host, beside a neighbour under a
//! steady feed: what it costs the neighbour's pace, and the host's memory. Takes a quarter of an
//! hour and needs a quiet machine, so it runs only if `SHARDMILL_EACH` is set.

use std::time::{Duration, Instant};

use harness::corpus;
use harness::flights::Output;
use harness::guests::guest;
use harness::setting::Setting;

use crate::hostile_corpus::{CONFIG, Latency, RESIDENT_KIB_MAX, Took, drop_entry, until_judged};

/// Records that are put in a second.
const PACE: usize = 50;
/// How long each attack goes on at least, once it is known how the host takes it.
const GOES_ON: Duration = Duration::from_secs(2);
/// The neighbour may be below half of its pace for this long, as the feed itself may be.
const SLOW_MAX: Duration = Duration::from_secs(1);

/// What the operator gives plugins: 960 MiB. With 64 MiB for the host itself and what its allocator
/// keeps, it is `RESIDENT_KIB_MAX`.
const GIVEN: &str =
    "[host]\ninstances-memory = \"384MiB\"\nbuffer = \"64MiB\"\ncode-memory = \"512MiB\"\n";

/// What one attack cost.
struct Cost {
    name: &'static str,
    slow_for: Duration,
    longest: Duration,
    resident_kib: u64,
}

impl Cost {
    fn show(&self) {
        let mib = self.resident_kib >> 10;
        eprintln!(
            "  {}: slow for {:?}, longest record {:?}, {mib} MiB resident",
            self.name, self.slow_for, self.longest
        );
    }
}

/// The longest time for which each second had fewer records than half of the pace. Windows of a
/// second begin ten times in it.
fn slow_for(took: &[Took], from: Instant, until: Instant) -> Duration {
    const STEP: Duration = Duration::from_millis(100);
    const WINDOW: Duration = Duration::from_secs(1);
    let (mut begin, mut slow, mut longest) = (from, Duration::ZERO, Duration::ZERO);
    while begin + WINDOW <= until {
        let is_in = |one: &&Took| (begin..begin + WINDOW).contains(&one.at);
        if took.iter().filter(is_in).count() * 2 < PACE {
            slow += STEP;
        } else {
            slow = Duration::ZERO;
        }
        longest = longest.max(slow);
        begin += STEP;
    }
    longest
}

/// `SHARDMILL_EACH=277` begins with the 277th entry, to go on where a run was cut off.
fn first_entry() -> Option<usize> {
    let text = std::env::var("SHARDMILL_EACH").ok()?;
    let first = text.parse().expect("the number of the first entry");
    assert!(first > 0, "entries are counted from 1");
    Some(first)
}

#[tokio::test(flavor = "multi_thread")]
async fn each_attack_alone_leaves_the_neighbour_its_pace_and_the_host_its_memory() {
    let Some(first) = first_entry() else {
        eprintln!("skipped: SHARDMILL_EACH=1 tries each entry of the hostile corpus alone");
        return;
    };
    let setting = Setting::new(1).await;
    setting.drop_plugin("flights", &guest("flights"));
    let config = CONFIG.replacen("[host]\n", GIVEN, 1);
    let host = setting.host_with("a", &config);
    let latency = Latency::start(setting.clients.kinesis.clone(), setting.output_of("a"));
    latency.until_flowing().await;
    let mut costs = Vec::new();
    for entry in corpus::all().into_iter().skip(first - 1) {
        latency.take_each();
        let from = Instant::now();
        drop_entry(&setting, &entry).await;
        let resident_kib = until_judged(&host, std::slice::from_ref(&entry)).await;
        tokio::time::sleep(GOES_ON).await;
        let (took, until) = (latency.take_each(), Instant::now());
        let cost = Cost {
            name: entry.name,
            slow_for: slow_for(&took, from, until),
            longest: took
                .iter()
                .map(|one| one.duration)
                .max()
                .unwrap_or_default(),
            resident_kib: resident_kib.max(host.resident_kib()),
        };
        // At once: a quarter of an hour is lost otherwise if a later one goes wrong.
        cost.show();
        costs.push(cost);
        for ending in ["wasm", "toml"] {
            let name = format!("{}.{ending}", entry.name);
            std::fs::remove_file(setting.path().join("plugins").join(name)).unwrap();
        }
    }
    let put = latency.stop().await;
    assert!(host.terminate().await.success(), "the host outlived all");
    costs.sort_by_key(|cost| std::cmp::Reverse((cost.slow_for, cost.longest)));
    eprintln!("{} attacks, the slowest first:", costs.len());
    costs.iter().for_each(Cost::show);
    let output = Output::read(&[&setting.output_of("a")]);
    assert_eq!((output.lines, output.repeats), (put as u64, 0));
    for cost in costs {
        assert!(
            cost.slow_for <= SLOW_MAX,
            "{}: {:?}",
            cost.name,
            cost.slow_for
        );
        assert!(cost.resident_kib < RESIDENT_KIB_MAX, "{}", cost.name);
    }
    setting.stop().await;
}
