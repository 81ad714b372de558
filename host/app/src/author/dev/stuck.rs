//! Whether a run with `--until-idle` would never end.

use shardmill_serve::HostSnapshot;
use shardmill_worker::{ShardState, Why};

/// Failed deliveries in a row after which waiting for the plugin ends: some twenty seconds.
const FAILURES_MAX: u32 = 8;

/// The error of a plugin that fails on a shard again and again, once no other shard makes progress
/// either. `tries_for_ever` takes a plugin's label and returns whether its failure policy never
/// gives up.
pub(super) fn stuck(host: &HostSnapshot, tries_for_ever: impl Fn(&str) -> bool) -> Option<String> {
    let mut problem = None;
    for (plugin, of) in &host.plugins {
        for (id, shard) in &of.worker.shards {
            let is_gone = matches!(
                shard.state,
                ShardState::Lost | ShardState::Released | ShardState::GaveUp
            );
            if is_gone || shard.is_idle() {
                continue;
            }
            // One that is not blocked, or not for long, may make progress.
            let blocked = shard.blocked.as_ref()?;
            if blocked.why != Why::Plugin
                || blocked.attempts < FAILURES_MAX
                || !tries_for_ever(plugin)
            {
                return None;
            }
            let (attempts, reason) = (blocked.attempts, &blocked.reason);
            problem.get_or_insert_with(|| {
                format!(
                    "plugin {plugin} failed {attempts} times in a row on shard {id}, and no other \
                        shard makes progress: {reason}; fix the plugin, or set under [failure] \
                        when a record is given up"
                )
            });
        }
    }
    problem
}

#[cfg(test)]
mod tests {
    use shardmill_core::lease::Checkpoint;
    use shardmill_serve::{HostStatus, PluginSnapshot};
    use shardmill_worker::{BlockedStatus, ShardStatus};

    use super::*;

    fn shard(blocked: Option<(Why, u32)>) -> ShardStatus {
        let blocked = blocked.map(|(why, attempts)| BlockedStatus {
            why,
            attempts,
            reason: "trapped".to_owned(),
        });
        ShardStatus {
            blocked,
            ..ShardStatus::starting(1, Checkpoint::TrimHorizon)
        }
    }

    fn host(shards: Vec<ShardStatus>) -> HostSnapshot {
        let mut host = HostStatus::new("host").snapshot();
        let mut plugin = PluginSnapshot::default();
        let named = shards
            .into_iter()
            .enumerate()
            .map(|(n, shard)| (format!("shard-{n}"), shard));
        plugin.worker.shards = named.collect();
        host.plugins.insert("poison".to_owned(), plugin);
        host
    }

    #[test]
    fn a_plugin_that_fails_for_ever_is_reported_once_nothing_else_gets_on() {
        let (failing, idle) = (
            shard(Some((Why::Plugin, 8))),
            ShardStatus {
                is_at_tip: true,
                ..shard(None)
            },
        );
        let told = stuck(&host(vec![idle.clone(), failing.clone()]), |_| true).unwrap();
        assert!(
            told.starts_with("plugin poison failed 8 times in a row on shard shard-1, and"),
            "{told}"
        );
        assert!(
            told.contains("trapped; fix the plugin, or set under [failure]"),
            "{told}"
        );
        assert_eq!(
            stuck(&host(vec![failing.clone()]), |_| false),
            None,
            "its policy gives the record up some time"
        );
        for other in [
            shard(None),
            shard(Some((Why::Plugin, 7))),
            shard(Some((Why::Sink, 9))),
        ] {
            assert_eq!(stuck(&host(vec![failing.clone(), other]), |_| true), None);
        }
        assert_eq!(stuck(&host(vec![idle]), |_| true), None);
    }
}
