//! A plugin's state through kill -9, hand-overs between two hosts and swaps, all at random moments:
//! each flight counts once.
//!
//! `SHARDMILL_STATE_RUNS=100` runs it that often, `SHARDMILL_FLIGHTS` on other input.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::time::Duration;

use flate2::read::GzDecoder;
use harness::flights;
use harness::guests::{guest, marked};
use harness::process::{Host, shardmill};
use harness::setting::Setting;
use serde::Deserialize;
use serde_json::Value;

use crate::setting as number;

const SHARDS: u32 = 4;
const SWAPS: usize = 20;
const MANIFEST: &str = "[grants]\nstate = true\n[config]\ndestination = \"out\"";

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
struct Sum {
    flights: u64,
    with_delay: u64,
    delay_minutes: i64,
}

type Sums = BTreeMap<String, Sum>;

fn expected() -> Sums {
    let file = std::fs::File::open(flights::input()).unwrap();
    let mut sums = Sums::new();
    for line in BufReader::new(GzDecoder::new(file)).lines() {
        let flight: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let delay = flight["dep_delay"].as_i64();
        add(
            &mut sums,
            flight["carrier"].as_str().unwrap(),
            &Sum {
                flights: 1,
                with_delay: u64::from(delay.is_some()),
                delay_minutes: delay.unwrap_or(0),
            },
        );
    }
    sums
}

fn add(sums: &mut Sums, carrier: &str, more: &Sum) {
    let sum = sums.entry(carrier.to_owned()).or_default();
    sum.flights += more.flights;
    sum.with_delay += more.with_delay;
    sum.delay_minutes += more.delay_minutes;
}

/// What the states of all shards hold together, as the command prints them.
async fn saved(setting: &Setting) -> Sums {
    let mut sums = Sums::new();
    for lease in setting.leases("totals").await {
        let args = ["state", "totals", "--local", "--shard", lease.key.as_str()];
        let output = shardmill(&args, setting.path()).await;
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let of_shard: Sums = serde_json::from_slice(&output.stdout).unwrap();
        for (carrier, sum) in &of_shard {
            add(&mut sums, carrier, sum);
        }
    }
    sums
}

/// The last line of each shard and carrier, added up.
fn emitted(setting: &Setting) -> Sums {
    let mut greatest: BTreeMap<(String, String), Sum> = BTreeMap::new();
    for id in ["a", "b"] {
        let Ok(file) = std::fs::File::open(setting.output_of(id)) else {
            continue;
        };
        for line in BufReader::new(file).lines() {
            let line: Value = serde_json::from_str(&line.unwrap()).unwrap();
            let key = |name: &str| line[name].as_str().unwrap().to_owned();
            let sum: Sum = serde_json::from_value(line.clone()).unwrap();
            let held = greatest.entry((key("shard"), key("carrier"))).or_default();
            // Totals of one shard only rise; hosts take turns.
            if sum.flights > held.flights {
                *held = sum;
            }
        }
    }
    let mut sums = Sums::new();
    for ((_, carrier), sum) in &greatest {
        add(&mut sums, carrier, sum);
    }
    sums
}

struct Chaos {
    random: fastrand::Rng,
    config: String,
    kills: u32,
    ends: u32,
}

impl Chaos {
    fn start(&self, setting: &Setting, id: &str) -> Host {
        setting.host_sharing(
            id,
            "duration = \"2s\"\nscan-every = \"100ms\"",
            &self.config,
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
        hosts.push((id, self.start(setting, id)));
    }
}

async fn run(seed: u64) {
    let setting = Setting::new(SHARDS).await;
    setting.drop_manifest("totals", MANIFEST);
    setting.drop_plugin("totals", &guest("totals"));
    let expected = expected();
    let count: u64 = expected.values().map(|sum| sum.flights).sum();
    let last = setting.put(&flights::input()).await;
    // Slow enough that everything happens in the middle of it: some five seconds without
    // disturbances. No version is blamed for the kills.
    let per_call = (count / u64::from(SHARDS) / 100).max(10);
    let config = format!(
        "[host]\ncache = \"off\"\n[reads]\ncalls-per-second = 20.0\nrecords-per-call = {per_call}\nbytes-per-second = \
            \"1GiB\"\nidle-every = \"50ms\"\n[batch]\nrecords = {}",
        per_call.min(500),
    );
    let mut chaos = Chaos {
        random: fastrand::Rng::with_seed(seed),
        config,
        kills: 0,
        ends: 0,
    };
    let mut hosts = vec![
        ("a", chaos.start(&setting, "a")),
        ("b", chaos.start(&setting, "b")),
    ];
    for version in 1..=SWAPS {
        tokio::time::sleep(Duration::from_millis(chaos.random.u64(50..400))).await;
        setting.drop_plugin("totals", &marked(&guest("totals"), version));
        if chaos.random.u32(0..3) == 0 {
            chaos.disturb(&setting, &mut hosts).await;
        }
    }
    setting.until_checkpointed("totals", &last).await;
    for (_, host) in hosts {
        assert!(host.terminate().await.success());
    }
    let (saved, emitted) = (saved(&setting).await, emitted(&setting));
    let Chaos { kills, ends, .. } = chaos;
    eprintln!("seed {seed}: {SWAPS} swaps, {kills} kills, {ends} hand-overs, {count} flights");
    assert_eq!(saved, expected, "seed {seed}");
    assert_eq!(emitted, expected, "seed {seed}");
    setting.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_flight_counts_once_in_the_state_through_kills_hand_overs_and_swaps() {
    for _ in 0..number("SHARDMILL_STATE_RUNS", 1) {
        run(fastrand::u64(0..1_000_000)).await;
    }
}

#[test]
fn what_the_states_are_compared_with_is_the_known_answer() {
    let sums = expected();
    let known = match sums.values().map(|sum| sum.flights).sum() {
        // All departures from New York City in 2013, and the slice of them in the repository.
        336_776 => [
            ("UA", 58_665, 57_979, 701_898),
            ("B6", 54_635, 54_169, 705_417),
            ("EV", 54_173, 51_356, 1_024_829),
        ],
        12_000 => [
            ("UA", 2_072, 2_064, 15_062),
            ("B6", 2_060, 2_059, 19_364),
            ("EV", 1_803, 1_790, 26_984),
        ],
        other => return eprintln!("nobody has counted these {other} flights otherwise"),
    };
    for (carrier, flights, with_delay, delay_minutes) in known {
        assert_eq!(
            sums[carrier],
            Sum {
                flights,
                with_delay,
                delay_minutes
            },
            "{carrier}"
        );
    }
}
