//! Windows through kill -9, hand-overs between two hosts and swaps, all at random moments: each
//! hour of each carrier has each of its flights once, and the last hours close on the silent
//! shards by ticks alone.
//!
//! `SHARDMILL_STATE_RUNS=100` runs it that often. Always on the slice in the repository: it is in
//! the order of the days, as a stream would be.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::time::Duration;

use flate2::read::GzDecoder;
use harness::guests::{guest, marked};
use harness::process::{Host, repository, shardmill};
use harness::setting::Setting;
use serde::Deserialize;
use serde_json::Value;

use crate::setting as number;

const SHARDS: u32 = 4;
const SWAPS: usize = 12;
const MANIFEST: &str = "[grants]\nstate = true\n[tick]\nevery = \"1s\"\n[config]\n\
    destination = \"out\"\nsilence = \"2s\"";
/// How long the last hours may take to close: the lease of a host that was killed, the silence, the
/// grace of the windows, and a slow machine.
const CLOSES_WITHIN: Duration = Duration::from_mins(3);

#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
struct Sum {
    flights: u64,
    with_delay: u64,
    delay_minutes: i64,
}

/// By hour and carrier.
type Hours = BTreeMap<(String, String), Sum>;

/// Lines that hosts emitted.
#[derive(Default)]
struct Emitted {
    /// The last line of each shard, hour and carrier: the one before it came from an instance whose
    /// state was not saved.
    hours: BTreeMap<(String, String, String), Sum>,
    /// Flights that came out as late.
    late: usize,
}

fn input() -> PathBuf {
    repository().join("examples/flights/sample.ndjson.gz")
}

fn text(line: &Value, name: &str) -> String {
    line[name].as_str().unwrap().to_owned()
}

fn expected() -> Hours {
    let file = std::fs::File::open(input()).unwrap();
    let mut hours = Hours::new();
    for line in BufReader::new(GzDecoder::new(file)).lines() {
        let flight: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let delay = flight["dep_delay"].as_i64();
        let key = (text(&flight, "time_hour"), text(&flight, "carrier"));
        let sum = hours.entry(key).or_default();
        sum.flights += 1;
        sum.with_delay += u64::from(delay.is_some());
        sum.delay_minutes += delay.unwrap_or(0);
    }
    hours
}

impl Emitted {
    /// What the hosts have written so far. They take turns, so of two lines of the same hour that
    /// differ the later one has more flights.
    fn read(setting: &Setting) -> Self {
        let mut emitted = Self::default();
        for id in ["a", "b"] {
            let Ok(file) = std::fs::File::open(setting.output_of(id)) else {
                continue;
            };
            for line in BufReader::new(file).lines() {
                // A host that is at work, or was killed, may have written half of a line.
                if let Ok(line) = serde_json::from_str(&line.unwrap()) {
                    emitted.add(&line);
                }
            }
        }
        emitted
    }

    fn add(&mut self, line: &Value) {
        if line.get("hour").is_none() {
            self.late += 1;
            return;
        }
        let key = (
            text(line, "shard"),
            text(line, "hour"),
            text(line, "carrier"),
        );
        let sum: Sum = serde_json::from_value(line.clone()).unwrap();
        let kept = self.hours.entry(key).or_default();
        if sum.flights > kept.flights {
            *kept = sum;
        }
    }

    fn of_all_shards(&self) -> Hours {
        let mut hours = Hours::new();
        for ((_, hour, carrier), sum) in &self.hours {
            let all = hours.entry((hour.clone(), carrier.clone())).or_default();
            all.flights += sum.flights;
            all.with_delay += sum.with_delay;
            all.delay_minutes += sum.delay_minutes;
        }
        hours
    }
}

struct Chaos {
    random: fastrand::Rng,
    kills: u32,
    ends: u32,
}

impl Chaos {
    fn start(setting: &Setting, id: &str) -> Host {
        setting.host_sharing(
            id,
            "duration = \"2s\"\nscan-every = \"100ms\"",
            "[host]\ncache = \"off\"\n[reads]\ncalls-per-second = 20.0\nrecords-per-call = 30\n\
                bytes-per-second = \"1GiB\"\nidle-every = \"50ms\"\n[batch]\nrecords = 30",
        )
    }

    async fn disturb(&mut self, setting: &Setting, hosts: &mut Vec<(&'static str, Host)>) {
        let (id, host) = hosts.remove(self.random.usize(0..hosts.len()));
        if self.random.bool() {
            self.kills += 1;
            host.kill();
        } else {
            self.ends += 1;
            assert!(host.terminate().await.success());
        }
        hosts.push((id, Self::start(setting, id)));
    }
}

async fn run(seed: u64) {
    let setting = Setting::new(SHARDS).await;
    setting.drop_manifest("hours", MANIFEST);
    setting.drop_plugin("hours", &guest("hours"));
    let expected = expected();
    setting.put(&input()).await;
    let mut chaos = Chaos {
        random: fastrand::Rng::with_seed(seed),
        kills: 0,
        ends: 0,
    };
    let mut hosts = vec![
        ("a", Chaos::start(&setting, "a")),
        ("b", Chaos::start(&setting, "b")),
    ];
    for version in 1..=SWAPS {
        tokio::time::sleep(Duration::from_millis(chaos.random.u64(50..600))).await;
        setting.drop_plugin("hours", &marked(&guest("hours"), version));
        if chaos.random.u32(0..3) == 0 {
            chaos.disturb(&setting, &mut hosts).await;
        }
    }
    let closing = async {
        while Emitted::read(&setting).of_all_shards() != expected {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let has_closed = tokio::time::timeout(CLOSES_WITHIN, closing).await.is_ok();
    // Also what comes out as they end: nothing.
    for (_, host) in hosts {
        assert!(host.terminate().await.success());
    }
    let emitted = Emitted::read(&setting);
    let Chaos { kills, ends, .. } = chaos;
    eprintln!(
        "seed {seed}: {SWAPS} swaps, {kills} kills, {ends} hand-overs, {} hours of carriers",
        expected.len()
    );
    let found = emitted.of_all_shards();
    let first_wrong = expected
        .iter()
        .find(|(hour, sum)| found.get(*hour) != Some(sum))
        .map(|(hour, sum)| (hour, sum, found.get(hour)));
    assert_eq!(first_wrong, None, "seed {seed}, has closed: {has_closed}");
    assert_eq!(found.len(), expected.len(), "seed {seed}");
    assert_eq!(emitted.late, 0, "seed {seed}");
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_hour_has_each_of_its_flights_once_through_kills_hand_overs_and_swaps() {
    for _ in 0..number("SHARDMILL_STATE_RUNS", 1) {
        run(fastrand::u64(0..1_000_000)).await;
    }
}

#[test]
fn what_the_hours_are_compared_with_is_the_known_answer() {
    let hours = expected();
    assert_eq!(hours.values().map(|sum| sum.flights).sum::<u64>(), 12_000);
    let of = |hour: &str, carrier: &str| {
        let sum = hours[&(hour.to_owned(), carrier.to_owned())];
        (sum.flights, sum.with_delay, sum.delay_minutes)
    };
    assert_eq!(of("2013-01-01T11:00:00Z", "B6"), (14, 13, -26));
    assert_eq!(of("2013-01-14T13:00:00Z", "UA"), (10, 10, 168));
}

/// A folder with the plugin and three flights: two of one hour, and one of the next.
fn small_test(manifest: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("hours.wasm"), guest("hours")).unwrap();
    std::fs::write(path("hours.toml"), manifest).unwrap();
    let flight = |hour: u32| {
        format!(
            "{{\"carrier\":\"UA\",\"time_hour\":\"2013-01-01T{hour}:00:00Z\",\"dep_delay\":1}}\n"
        )
    };
    let flights = [10, 10, 11].map(flight).concat();
    std::fs::write(path("in.ndjson"), flights).unwrap();
    folder
}

async fn tested(folder: &tempfile::TempDir, more: &[&str]) -> (bool, Vec<String>, String) {
    let args = [&["test", "hours.wasm", "--input", "in.ndjson"], more].concat();
    let output = shardmill(&args, folder.path()).await;
    let hour_of = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        format!("{} {}", text(&line, "hour"), line["flights"])
    };
    let lines = String::from_utf8(output.stdout).unwrap();
    // Which of several shards comes first is chance; echoed flights have no hour.
    let mut hours: Vec<String> = lines
        .lines()
        .filter(|line| line.contains("hour\":"))
        .map(hour_of)
        .collect();
    hours.sort();
    (
        output.status.success(),
        hours,
        String::from_utf8(output.stderr).unwrap(),
    )
}

const BOTH_HOURS: [&str; 2] = ["2013-01-01T10:00:00Z 2", "2013-01-01T11:00:00Z 1"];

#[tokio::test(flavor = "multi_thread")]
async fn a_test_lets_time_pass_without_waiting_and_hands_over_what_was_saved() {
    let folder =
        small_test("[grants]\nstate = true\n[tick]\nevery = \"1m\"\n[config]\nsilence = \"30m\"");
    let (is_good, hours, told) = tested(&folder, &[]).await;
    assert!(is_good, "{told}");
    assert_eq!(hours, [""; 0], "no time passes by itself");
    let more = ["--hand-over-after", "1", "--clock", "40m"];
    let (is_good, hours, told) = tested(&folder, &more).await;
    assert!(is_good, "{told}");
    assert_eq!(hours, BOTH_HOURS);
    let (is_good, _, told) = tested(&folder, &["--clock", "300days"]).await;
    assert!(
        !is_good && told.contains("10000 times tick.every"),
        "{told}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_test_ends_the_shards() {
    let folder = small_test("[grants]\nstate = true");
    let (is_good, hours, told) = tested(&folder, &["--end-shard", "--shards", "2"]).await;
    assert!(is_good, "{told}");
    assert_eq!(hours, BOTH_HOURS);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_test_of_a_component_without_ticks_says_so_if_time_is_to_pass() {
    let folder = small_test("");
    std::fs::write(folder.path().join("hours.wasm"), guest("echo")).unwrap();
    let (is_good, _, told) = tested(&folder, &["--clock", "1m", "--timeout", "2s"]).await;
    assert!(
        !is_good && told.contains("only if it exports ticker"),
        "{told}"
    );
}
