//! The summary of a finished `dev` run.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use indicatif::HumanCount;
use serde::Serialize;
use shardmill_core::lease::Lease;
use shardmill_serve::{HostSnapshot, PluginSnapshot};

use crate::author::pump::PumpSummary;
use crate::author::settled::is_checkpointed;
use crate::output::short_digest;

/// What a host did in one run that ended once it was idle.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Summary {
    /// Seconds from start to idle.
    pub(crate) seconds: f64,
    /// Records that the feed put into the stream.
    pub(crate) fed: u64,
    /// Whether a signal came before everything was processed.
    pub(crate) was_interrupted: bool,
    /// What each plugin did, by its name.
    pub(crate) plugins: BTreeMap<String, PluginSummary>,
}

/// One plugin's part.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct PluginSummary {
    /// The version on offer at the end.
    pub(crate) plugin_digest: Option<String>,
    /// Shards that this host served, now or earlier in the run.
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

/// Everything was settled, but records were given up.
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

    /// The summary of a run that ended now; `is_idle` if everything was processed.
    pub(crate) fn new(
        snapshot: &HostSnapshot,
        fed: Option<&PumpSummary>,
        elapsed: Duration,
        is_idle: bool,
    ) -> Self {
        let was_interrupted = !is_idle || fed.is_some_and(|fed| fed.was_stopped);
        let plugins = snapshot.plugins.iter();
        Self {
            seconds: elapsed.as_secs_f64(),
            fed: fed.map_or(0, |fed| fed.records),
            was_interrupted,
            plugins: plugins
                .map(|(name, plugin)| (name.clone(), PluginSummary::of(plugin)))
                .collect(),
        }
    }
}

impl PluginSummary {
    fn of(plugin: &PluginSnapshot) -> Self {
        let mut summary = Self {
            plugin_digest: plugin.worker.plugin_digest.clone(),
            shards: plugin.worker.shards.len(),
            ..Self::default()
        };
        for (id, shard) in &plugin.worker.shards {
            summary.records += shard.records;
            summary.batches += shard.batches;
            summary.dead_lettered += shard.given_up.dead_lettered;
            summary.skipped += shard.given_up.skipped;
            summary.records_by_shard.insert(id.clone(), shard.records);
        }
        summary
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (fed, seconds) = (HumanCount(self.fed), self.seconds);
        let end = if self.was_interrupted {
            "interrupted"
        } else {
            "idle"
        };
        write!(f, "fed {fed} records; {end} after {seconds:.1} s")?;
        for (name, plugin) in &self.plugins {
            write!(f, "\n{name} {plugin}")?;
            if !self.was_interrupted {
                write!(f, ", all checkpointed")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for PluginSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digest = self.plugin_digest.as_deref().map_or("?", short_digest);
        let (records, batches) = (HumanCount(self.records), HumanCount(self.batches));
        let shards = self.shards;
        write!(
            f,
            "({digest}): {records} records in {batches} batches on {shards} shards"
        )?;
        if self.dead_lettered > 0 {
            let count = HumanCount(self.dead_lettered);
            write!(f, ", {count} given up and stored as dead letters")?;
        }
        if self.skipped > 0 {
            write!(f, ", {} given up and dropped", HumanCount(self.skipped))?;
        }
        Ok(())
    }
}

/// Whether the table shows every fed record as settled.
pub(crate) fn is_fed_checkpointed(leases: &[Lease], fed: Option<&PumpSummary>) -> bool {
    fed.is_none_or(|fed| is_checkpointed(leases, &fed.last_sequence_numbers))
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
    fn a_run_that_was_interrupted_is_not_shown_as_done_and_what_was_given_up_is_shown() {
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
