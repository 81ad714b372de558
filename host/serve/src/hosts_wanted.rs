//! How many hosts like this one are wanted, for all plugins that they run: from what the leaders of
//! the applications say.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Serialize;
use shardmill_core::scaling::{Combined, combine};
use shardmill_worker::{HostsWantedStatus, WorkerStatus};

use crate::host_status::{HostSnapshot, PluginSnapshot};
use crate::metrics::HOSTS_WANTED;

/// A leader that is silent for a lease duration is replaced, and its successor writes at once.
/// After this many, there is something that this host does not see.
const STALE_AFTER_LEASES: u32 = 6;

/// What is wanted, as far as this host knows.
#[derive(Debug, Clone)]
pub(crate) enum HostsWanted {
    /// No plugin of this host is scaled.
    Off,
    /// Of some plugin it is not known. What is wanted for the others alone would remove hosts.
    Unknown(Unknown),
    /// This many.
    Known(Answer),
}

/// The page `/scaling` where that is not known.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Unknown {
    /// The plugins of which it is not known, each with why.
    unknown: BTreeMap<String, String>,
}

/// The page `/scaling`.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Answer {
    /// Hosts wanted.
    hosts_wanted: usize,
    /// What all plugins need, in hosts that are used up to the target.
    load_hosts: f64,
    /// Shards of the plugin that has most: there are never more hosts wanted.
    shards: usize,
    /// What each plugin wants on each of its streams.
    plugins: BTreeMap<String, HostsWantedStatus>,
}

/// From what this host knows of its plugins.
pub(crate) fn hosts_wanted(host: &HostSnapshot) -> HostsWanted {
    let mut known = BTreeMap::new();
    let mut unknown = BTreeMap::new();
    for (label, plugin) in scaled(host) {
        match figure_of(&plugin.worker) {
            Ok(figure) => {
                known.insert(label.clone(), figure.clone());
            }
            Err(why) => {
                unknown.insert(label.clone(), why);
            }
        }
    }
    if !unknown.is_empty() {
        return HostsWanted::Unknown(Unknown { unknown });
    }
    let together = combine(known.values().map(|status| &status.figure));
    together.map_or(HostsWanted::Off, |together| {
        HostsWanted::Known(Answer::new(together, known))
    })
}

/// The plugins that are scaled, on each of their streams.
fn scaled(host: &HostSnapshot) -> impl Iterator<Item = (&String, &PluginSnapshot)> {
    let plugins = host.plugins.iter();
    plugins.filter(|(_, plugin)| plugin.stream.is_some() && plugin.worker.is_scaled)
}

fn figure_of(worker: &WorkerStatus) -> Result<&HostsWantedStatus, String> {
    let Some(status) = &worker.hosts_wanted else {
        return Err(match &worker.leader {
            Some(leader) => format!(
                "{leader}, which leads, says nothing: it has not measured enough yet, or has no \
                    section [scaling]"
            ),
            None => "no host leads".to_owned(),
        });
    };
    let age = status.at.elapsed();
    if age > worker.lease_duration * STALE_AFTER_LEASES {
        return Err(format!(
            "this host has not seen the leader write for {} s",
            age.as_secs()
        ));
    }
    Ok(status)
}

impl Answer {
    fn new(together: Combined, plugins: BTreeMap<String, HostsWantedStatus>) -> Self {
        Self {
            hosts_wanted: together.wanted,
            load_hosts: together.load_milli as f64 / 1_000.0,
            shards: together.shards,
            plugins,
        }
    }
}

/// The same as a series, of one host only: the one that leads its first plugin, by name. Others
/// know it a few seconds later, and whoever takes the greatest value of several would keep hosts
/// for as long as one of them is wrong.
pub(crate) fn as_metrics(host: &HostSnapshot) -> String {
    let mut text = String::new();
    let leads = scaled(host).next().is_some_and(|(_, plugin)| {
        let status = plugin.worker.hosts_wanted.as_ref();
        status.is_some_and(|status| status.leads)
    });
    if let HostsWanted::Known(answer) = hosts_wanted(host)
        && leads
    {
        let help = "hosts wanted for all plugins; reported by the leader of the first";
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "# HELP {HOSTS_WANTED} {help}\n# TYPE {HOSTS_WANTED} gauge\n{HOSTS_WANTED} {}",
            answer.hosts_wanted
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use shardmill_core::scaling::{Figure, ScalingPolicy};
    use tokio::time::Instant;

    use super::*;
    use crate::host_status::HostStatus;

    fn status(wanted: usize, load_milli: u64, leads: bool) -> HostsWantedStatus {
        let figure = Figure {
            wanted,
            undamped: Some(wanted),
            load_milli,
            shards: 16,
            policy: ScalingPolicy::default(),
            why: "what arrives needs so many".to_owned(),
        };
        HostsWantedStatus {
            wanted,
            undamped: Some(wanted),
            shards: 16,
            why: figure.why.clone(),
            notes: Vec::new(),
            leads,
            at: Instant::now(),
            figure,
        }
    }

    fn plugin(hosts_wanted: Option<HostsWantedStatus>) -> PluginSnapshot {
        PluginSnapshot {
            stream: Some("orders".to_owned()),
            worker: WorkerStatus {
                is_scaled: true,
                lease_duration: Duration::from_secs(10),
                hosts_wanted,
                ..WorkerStatus::default()
            },
            ..PluginSnapshot::default()
        }
    }

    fn host(plugins: &[(&str, PluginSnapshot)]) -> HostSnapshot {
        let mut host = HostStatus::new("host").snapshot();
        let plugins = plugins.iter();
        host.plugins = plugins
            .map(|(name, plugin)| ((*name).to_owned(), plugin.clone()))
            .collect();
        host
    }

    #[tokio::test(start_paused = true)]
    async fn what_plugins_want_is_added_and_shown_by_the_leader_of_the_first() {
        let both = |leads_first, leads_second| {
            host(&[
                ("a", plugin(Some(status(2, 1_600, leads_first)))),
                ("b", plugin(Some(status(1, 700, leads_second)))),
            ])
        };
        let HostsWanted::Known(answer) = hosts_wanted(&both(false, false)) else {
            panic!("all of it is known");
        };
        let shown = serde_json::to_value(&answer).unwrap();
        assert_eq!(shown["hosts-wanted"], 3);
        assert_eq!(shown["load-hosts"], 2.3);
        assert_eq!(shown["plugins"]["a"]["wanted"], 2);
        assert_eq!(as_metrics(&both(false, true)), "");
        let series = as_metrics(&both(true, false));
        assert!(series.ends_with("\nshardmill_hosts_wanted 3\n"), "{series}");
    }

    #[tokio::test(start_paused = true)]
    async fn while_one_plugin_is_not_known_nothing_is_said_of_the_others() {
        let unknown = host(&[
            ("a", plugin(Some(status(2, 1_600, true)))),
            ("b", plugin(None)),
        ]);
        let HostsWanted::Unknown(why) = hosts_wanted(&unknown) else {
            panic!("b is not known");
        };
        assert_eq!(why.unknown["b"], "no host leads");
        assert_eq!(as_metrics(&unknown), "");
        let known = host(&[("a", plugin(Some(status(2, 1_600, true))))]);
        assert!(matches!(hosts_wanted(&known), HostsWanted::Known(_)));
        tokio::time::advance(Duration::from_secs(61)).await;
        let HostsWanted::Unknown(why) = hosts_wanted(&known) else {
            panic!("it is old");
        };
        assert!(why.unknown["a"].contains("for 61 s"), "{why:?}");
    }

    #[test]
    fn a_plugin_that_is_not_scaled_does_not_count_and_without_others_it_is_off() {
        let mut standalone = plugin(None);
        standalone.worker.is_scaled = false;
        let alone = host(&[("a", standalone)]);
        assert!(matches!(hosts_wanted(&alone), HostsWanted::Off));
    }
}
