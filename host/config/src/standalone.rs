//! The section `[standalone]` of a plugin: each host reads all shards by itself.

use std::time::Duration;

use serde::Deserialize;
use shardmill_core::fleet::{Restart, StandalonePolicy};
use shardmill_worker::{LeaseOptions, Retrieval};

use super::duration;
use super::problem::Problem;
use super::settings::StreamConfig;

/// As written; that it is there makes the plugin standalone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct StandaloneFile {
    #[serde(default)]
    restart: RestartWord,
    #[serde(default, deserialize_with = "duration::optional")]
    forget_after: Option<Duration>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum RestartWord {
    #[default]
    Resume,
    StartOver,
}

impl StandaloneFile {
    /// The policy, for a plugin that reads these streams on a host with such leases; it may have an
    /// id that a restart keeps.
    pub(super) fn check(
        self,
        leases: &LeaseOptions,
        has_worker_id: bool,
        streams: &[StreamConfig],
    ) -> Result<StandalonePolicy, Problem> {
        let policy = self.policy()?;
        if policy.restart == Restart::Resume && !has_worker_id {
            let message = "\"resume\" needs an id that a restart keeps: set worker-id (or the \
                variable SHARDMILL_WORKER_ID), or restart = \"start-over\"";
            return Err(Problem::new("standalone.restart", message));
        }
        if streams
            .iter()
            .any(|one| one.retrieval != Retrieval::Polling)
        {
            let message = "standalone hosts read by polling: a fan-out consumer feeds one reader \
                of a shard, and a stream has at most 20; set retrieval = \"polling\"";
            return Err(Problem::new("standalone", message));
        }
        if leases.max_leases < usize::MAX {
            let message = "a standalone host reads all shards, and leases.max would leave some \
                unread: remove leases.max";
            return Err(Problem::new("standalone", message));
        }
        if leases.shared_with_kcl {
            let message = "a standalone host shares its leases with nobody: remove \
                leases.shared-with-kcl";
            return Err(Problem::new("standalone", message));
        }
        Ok(policy)
    }

    fn policy(self) -> Result<StandalonePolicy, Problem> {
        let forget_after = self
            .forget_after
            .unwrap_or(StandalonePolicy::FORGET_AFTER_DEFAULT);
        let (least, most) = (
            StandalonePolicy::FORGET_AFTER_MIN,
            StandalonePolicy::FORGET_AFTER_MAX,
        );
        if !(least..=most).contains(&forget_after) {
            let message = "must be between 10m and 365d: a host that is gone for longer loses its \
                places, and clocks of hosts may differ";
            return Err(Problem::new("standalone.forget-after", message));
        }
        Ok(StandalonePolicy {
            restart: match self.restart {
                RestartWord::Resume => Restart::Resume,
                RestartWord::StartOver => Restart::StartOver,
            },
            forget_after,
            keeps_state: false,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use shardmill_core::plugin::PluginName;

    use super::*;
    use crate::{Config, PluginConfig};

    /// The settings of plugin `prices` on a host with this configuration.
    fn of_prices(config: &str) -> Result<PluginConfig, String> {
        let config = Config::parse(&format!("stream = \"s\"\n{config}"), Path::new("."))?;
        config.of_plugin(&PluginName::new("prices").unwrap(), None)
    }

    #[test]
    fn a_standalone_host_has_its_own_rows_of_each_streams_tables() {
        let prices = of_prices(
            "worker-id = \"pod-1\"\n[plugin.prices]\nstreams = [\"eu\", \"us\"]\n\
             [plugin.prices.standalone]\n",
        )
        .unwrap();
        let applications: Vec<_> = prices.streams.iter().map(|one| &one.application).collect();
        assert_eq!(applications, ["prices.eu@pod-1", "prices.us@pod-1"]);
        assert_eq!(prices.standalone, Some(StandalonePolicy::default()));
        let shared = of_prices("worker-id = \"pod-1\"\n").unwrap();
        assert_eq!(shared.streams[0].application, "prices");
        assert_eq!(shared.standalone, None);
    }

    #[test]
    fn a_host_without_a_lasting_id_can_only_start_over() {
        let resumes = "[plugin.prices.standalone]\nrestart = \"resume\"\n";
        let refused = of_prices(resumes).unwrap_err();
        assert!(refused.contains("set worker-id"), "{refused}");
        let starts_over = "[plugin.prices.standalone]\nrestart = \"start-over\"\n";
        let policy = of_prices(starts_over).unwrap().standalone.unwrap();
        assert_eq!(policy.restart, Restart::StartOver);
    }

    #[test]
    fn what_contradicts_reading_all_shards_is_refused() {
        for (config, told) in [
            ("[leases]\nmax = 5\n", "remove leases.max"),
            ("[leases]\nshared-with-kcl = true\n", "shared-with-kcl"),
            ("[reads]\nretrieval = \"fan-out\"\n", "by polling"),
            ("[reads]\nretrieval = \"auto\"\n", "by polling"),
        ] {
            let text = format!("worker-id = \"a\"\n{config}[plugin.prices.standalone]\n");
            let refused = of_prices(&text).unwrap_err();
            assert!(refused.contains(told), "{refused}");
        }
    }

    #[test]
    fn a_host_is_forgotten_after_ten_minutes_to_a_year() {
        let of = |text: &str| {
            of_prices(&format!(
                "worker-id = \"a\"\n[plugin.prices.standalone]\nforget-after = \"{text}\"\n"
            ))
        };
        for allowed in ["10m", "36h", "365d"] {
            assert!(of(allowed).is_ok(), "{allowed}");
        }
        for refused in ["599s", "366d", "0s"] {
            let refused = of(refused).unwrap_err();
            assert!(
                refused.contains("standalone.forget-after: must be between"),
                "{refused}"
            );
        }
    }

    #[test]
    fn a_stream_by_name_and_by_arn_is_refused_where_both_would_have_the_same_rows() {
        let of = |table: &str| {
            of_prices(&format!(
                "[plugin.prices]\n{table}streams = [\"orders\", \
                 \"arn:aws:kinesis:eu-west-1:123456789012:stream/orders\"]\n"
            ))
        };
        let refused = of("multi-stream-table = true\n").unwrap_err();
        assert!(refused.contains("orders may be named twice"), "{refused}");
        assert!(of("").is_ok(), "each has its own table");
    }

    #[test]
    fn a_manifest_alone_may_not_multiply_the_reads() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("prices.toml");
        std::fs::write(&path, "stream = \"s\"\n[standalone]\n").unwrap();
        let manifest = crate::Manifest::read(&path).unwrap();
        let config = Config::parse("worker-id = \"a\"\n", Path::new(".")).unwrap();
        let name = PluginName::new("prices").unwrap();
        let refused = config.of_plugin(&name, manifest.as_ref()).unwrap_err();
        assert!(
            refused.contains("standalone: is for the host to set"),
            "{refused}"
        );
    }
}
