//! What a finished `dev` run tells.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use indicatif::HumanCount;
use serde::Serialize;
use shardmill_core::lease::{Checkpoint, Lease};
use shardmill_core::stream::{SequenceNumber, ShardId};
use shardmill_serve::HostSnapshot;

use crate::author::pump::PumpSummary;

/// One run.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Summary {
    /// Seconds from start to idle.
    pub(crate) seconds: f64,
    /// Records fed.
    pub(crate) fed: u64,
    /// Whether a signal came before everything was processed.
    pub(crate) was_interrupted: bool,
    /// By plugin.
    pub(crate) plugins: BTreeMap<String, PluginSummary>,
}

/// One plugin's part.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct PluginSummary {
    /// The version on offer at the end.
    pub(crate) plugin_digest: Option<String>,
    /// Shards served.
    pub(crate) shards: usize,
    /// Records settled in this run.
    pub(crate) records: u64,
    /// Batches they came in.
    pub(crate) batches: u64,
    /// Records that the failure policy stored as dead letters.
    pub(crate) dead_lettered: u64,
    /// Records that it dropped.
    pub(crate) skipped: u64,
    /// Records settled, by shard.
    pub(crate) records_by_shard: BTreeMap<String, u64>,
}

/// A run to whose end everything was settled, though not everything was handled.
#[derive(Debug, thiserror::Error)]
#[error(
    "{0} record(s) were given up, as the failure policy says; the log names each with its reason"
)]
pub(crate) struct RecordsGivenUp(u64);

impl Summary {
    /// An error if records were given up.
    pub(crate) fn all_handled(&self) -> Result<(), RecordsGivenUp> {
        match self
            .plugins
            .values()
            .map(|plugin| plugin.dead_lettered + plugin.skipped)
            .sum()
        {
            0 => Ok(()),
            given_up => Err(RecordsGivenUp(given_up)),
        }
    }

    pub(crate) fn new(
        snapshot: &HostSnapshot,
        fed: Option<&PumpSummary>,
        elapsed: Duration,
        is_idle: bool,
    ) -> Self {
        let was_interrupted = !is_idle || fed.is_some_and(|fed| fed.was_stopped);
        let plugins = snapshot.plugins.iter().map(|(name, plugin)| {
            let shards = &plugin.worker.shards;
            let part = PluginSummary {
                plugin_digest: plugin.worker.plugin_digest.clone(),
                shards: shards.len(),
                records: shards.values().map(|shard| shard.records).sum(),
                batches: shards.values().map(|shard| shard.batches).sum(),
                dead_lettered: shards
                    .values()
                    .map(|shard| shard.given_up.dead_lettered)
                    .sum(),
                skipped: shards.values().map(|shard| shard.given_up.skipped).sum(),
                records_by_shard: shards
                    .iter()
                    .map(|(id, shard)| (id.clone(), shard.records))
                    .collect(),
            };
            (name.clone(), part)
        });
        let fed = fed.map_or(0, |fed| fed.records);
        Self {
            seconds: elapsed.as_secs_f64(),
            fed,
            was_interrupted,
            plugins: plugins.collect(),
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = if self.was_interrupted {
            "interrupted"
        } else {
            "idle"
        };
        write!(
            f,
            "fed {} records; {end} after {:.1} s",
            HumanCount(self.fed),
            self.seconds
        )?;
        for (name, plugin) in &self.plugins {
            let digest = plugin
                .plugin_digest
                .as_deref()
                .map_or("?", |digest| &digest[..12]);
            let (records, batches) = (HumanCount(plugin.records), HumanCount(plugin.batches));
            write!(
                f,
                "\n{name} ({digest}): {records} records in {batches} batches on {} shards",
                plugin.shards
            )?;
            if plugin.dead_lettered > 0 {
                write!(
                    f,
                    ", {} given up and stored as dead letters",
                    HumanCount(plugin.dead_lettered)
                )?;
            }
            if plugin.skipped > 0 {
                write!(f, ", {} given up and dropped", HumanCount(plugin.skipped))?;
            }
            if !self.was_interrupted {
                write!(f, ", all checkpointed")?;
            }
        }
        Ok(())
    }
}

/// Whether the table shows every fed record as settled.
pub(crate) fn is_fed_checkpointed(leases: &[Lease], fed: Option<&PumpSummary>) -> bool {
    fed.is_none_or(|fed| is_checkpointed(leases, &fed.report.last_sequence))
}

/// Whether the table shows every record up to `last` as settled.
pub(crate) fn is_checkpointed(leases: &[Lease], last: &BTreeMap<ShardId, SequenceNumber>) -> bool {
    last.iter().all(|(shard, last)| {
        let lease = leases.iter().find(|lease| lease.key.shard_id() == *shard);
        lease.is_some_and(|lease| match &lease.checkpoint {
            Checkpoint::ShardEnd => true,
            Checkpoint::At(position) => position.sequence >= *last,
            Checkpoint::TrimHorizon | Checkpoint::Latest | Checkpoint::AtTimestamp => false,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(was_interrupted: bool, given_up: u64) -> Summary {
        let part = PluginSummary {
            plugin_digest: None,
            shards: 1,
            records: 7,
            batches: 2,
            dead_lettered: given_up,
            skipped: 0,
            records_by_shard: BTreeMap::new(),
        };
        Summary {
            seconds: 1.0,
            fed: 9,
            was_interrupted,
            plugins: BTreeMap::from([("orders".to_owned(), part)]),
        }
    }

    #[test]
    fn a_run_that_was_interrupted_is_not_told_as_done_and_what_was_given_up_is_told() {
        let done = summary(false, 0).to_string();
        assert!(
            done.contains("idle after 1.0 s") && done.contains("all checkpointed"),
            "{done}"
        );
        let interrupted = summary(true, 0).to_string();
        assert!(interrupted.contains("interrupted after"), "{interrupted}");
        assert!(
            !interrupted.contains("idle") && !interrupted.contains("all checkpointed"),
            "{interrupted}"
        );
        let given_up = summary(false, 3);
        assert!(given_up.to_string().contains("3 given up"), "{given_up}");
        assert!(given_up.all_handled().is_err());
    }
}
