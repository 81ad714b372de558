//! Whether a plugin still makes progress, or will never settle anything more.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::bail;
use shardmill_serve::PluginSnapshot;
use shardmill_worker::{ShardState, ShardStatus, Why};
use tokio::time::Instant;

/// A component of 20 MB, which holds an interpreter, takes seconds to compile, on a busy machine a
/// minute.
pub(super) const START_MAX: Duration = Duration::from_mins(5);
/// Attempts after which a shard that has not begun never will. More than one, since a version may
/// just be swapped in, or a service that the plugin needs may be down for a moment.
const BEGIN_ATTEMPTS: u32 = 3;

/// When the plugin last settled a record.
pub(super) struct Headway {
    started: Instant,
    moved: Instant,
    records: u64,
    timeout: Duration,
}

impl Headway {
    /// Nothing settled for `timeout` is an error.
    pub(super) fn new(timeout: Duration) -> Self {
        let now = Instant::now();
        Self {
            started: now,
            moved: now,
            records: 0,
            timeout,
        }
    }

    /// Notes that the plugin is not compiled yet. An error if that takes too long.
    pub(super) fn not_started(&mut self) -> anyhow::Result<()> {
        if self.started.elapsed() > START_MAX {
            bail!("the plugin was not compiled within {START_MAX:?}");
        }
        self.moved = Instant::now();
        Ok(())
    }

    /// Notes what the plugin has settled. An error if it will settle nothing more, or has settled
    /// nothing for too long.
    pub(super) fn observe(&mut self, plugin: &PluginSnapshot) -> anyhow::Result<()> {
        let records = plugin
            .worker
            .shards
            .values()
            .map(|shard| shard.records + shard.filtered_records)
            .sum();
        if records != self.records {
            self.records = records;
            self.moved = Instant::now();
        }
        refuse_standstill(plugin)?;
        if self.moved.elapsed() > self.timeout {
            bail!(
                "nothing was settled for {:?}: {}",
                self.timeout,
                why_blocked(plugin, None)
            );
        }
        Ok(())
    }
}

/// Fails for a plugin that will never settle anything more.
fn refuse_standstill(plugin: &PluginSnapshot) -> anyhow::Result<()> {
    let mut shards = plugin.worker.shards.values();
    if let Some(halted) = shards.find(|shard| shard.state == ShardState::Halted) {
        bail!(
            "the plugin's failure policy stopped it: {}",
            why_blocked(plugin, halted.given_up.last.as_deref())
        );
    }
    if plugin.worker.shards.values().any(will_never_begin) {
        bail!("no record can be settled: {}", why_blocked(plugin, None));
    }
    Ok(())
}

/// Whether the shard lacks an instance, or the state that the plugin keeps, and will never get it:
/// the stack is in this process, and the settings do not change.
fn will_never_begin(shard: &ShardStatus) -> bool {
    shard.blocked.as_ref().is_some_and(|blocked| {
        let is_needed = blocked.why == Why::State || shard.state == ShardState::Starting;
        is_needed && blocked.attempts >= BEGIN_ATTEMPTS
    })
}

fn why_blocked(plugin: &PluginSnapshot, otherwise: Option<&str>) -> String {
    let mut reasons: BTreeSet<&str> = BTreeSet::new();
    for shard in plugin.worker.shards.values() {
        reasons.extend(
            shard
                .blocked
                .as_ref()
                .map(|blocked| blocked.reason.as_str()),
        );
    }
    if reasons.is_empty() {
        return otherwise.unwrap_or("no reason is known").to_owned();
    }
    Vec::from_iter(reasons).join("; ")
}
