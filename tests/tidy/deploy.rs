//! What is deployed fits the host: alarms and dashboards name its metrics, each alarm has a page,
//! and whoever stops a host waits for it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use shardmill_config::Config;

use super::{files_with, root};

/// More is noise, at three in the morning.
const ALARMS_MAX: usize = 12;

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// Names in `text` that begin as the host's metrics do.
fn metrics_in(text: &str) -> BTreeSet<String> {
    let is_of_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    text.split(|c: char| !is_of_name(c))
        .filter(|word| word.starts_with("shardmill_"))
        .map(str::to_owned)
        .collect()
}

/// What the host measures, as its packages declare it.
fn measured() -> BTreeSet<String> {
    let declared = files_with("rs")
        .into_iter()
        .filter(|path| path.ends_with("metrics.rs"))
        .map(|path| fs::read_to_string(path).unwrap());
    declared.flat_map(|text| metrics_in(&text)).collect()
}

#[test]
fn alarms_and_dashboards_name_metrics_that_hosts_have() {
    let measured = measured();
    for path in [
        "deploy/alerts/shardmill.rules.yaml",
        "deploy/alerts/shardmill.test.yaml",
        "deploy/grafana/shardmill.json",
    ] {
        let named = metrics_in(&read(path));
        assert!(named.len() > 5, "{path} names {named:?}");
        // Of a histogram, its buckets are asked for.
        let is_known = |name: &&String| {
            measured.contains(*name)
                || name
                    .strip_suffix("_bucket")
                    .is_some_and(|name| measured.contains(name))
        };
        let unknown: Vec<_> = named.iter().filter(|name| !is_known(name)).collect();
        assert!(
            unknown.is_empty(),
            "{path} names what no host measures: {unknown:?}"
        );
    }
}

#[test]
fn every_alarm_is_tested_and_has_a_section_that_says_what_to_do() {
    let (rules, tests) = (
        read("deploy/alerts/shardmill.rules.yaml"),
        read("deploy/alerts/shardmill.test.yaml"),
    );
    let page = read("docs/operations.md");
    let after = |text: &str, start: &str| -> BTreeSet<String> {
        let lines = text.lines().map(str::trim);
        lines
            .filter_map(|line| Some(line.strip_prefix(start)?.trim().to_owned()))
            .collect()
    };
    let alarms = after(&rules, "- alert:");
    assert!((1..=ALARMS_MAX).contains(&alarms.len()), "{alarms:?}");
    assert_eq!(
        after(&page, "####"),
        alarms,
        "sections of docs/operations.md"
    );
    let pages: BTreeSet<String> = alarms
        .iter()
        .map(|alarm| format!("docs/operations.md#{}", alarm.to_lowercase()))
        .collect();
    assert_eq!(after(&rules, "runbook_url:"), pages);
    for alarm in &alarms {
        let fires = tests.contains(&format!(
            "alertname: {alarm}\n        exp_alerts:\n          - exp_labels"
        ));
        let rests = tests.contains(&format!("alertname: {alarm}, exp_alerts: []"));
        assert!(
            fires && rests,
            "{alarm} is not seen to fire and to rest in the tests of the rules"
        );
    }
}

/// The number behind `key` in a line of its own.
fn number(text: &str, key: &str) -> u64 {
    let line = text
        .lines()
        .find_map(|line| line.trim().strip_prefix(key))
        .unwrap();
    line.trim().trim_end_matches('s').parse().unwrap()
}

#[test]
fn whoever_stops_a_host_waits_longer_than_it_may_drain() {
    let drain = Config::parse("stream = \"s\"", Path::new("."))
        .unwrap()
        .host
        .drain_limit;
    let values = read("deploy/helm/shardmill/values.yaml");
    assert_eq!(
        Duration::from_secs(number(&values, "drainLimitSeconds:")),
        drain
    );
    let manifests = read("deploy/kubernetes/shardmill.yaml");
    let unit = read("deploy/systemd/shardmill.service");
    for waits in [
        number(&manifests, "terminationGracePeriodSeconds:"),
        number(&unit, "TimeoutStopSec="),
    ] {
        assert!(Duration::from_secs(waits) > drain, "{waits} s");
    }
}
