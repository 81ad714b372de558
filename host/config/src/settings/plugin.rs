//! Settings of one plugin, and of each stream that it reads.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use shardmill_core::backoff::Backoff;
use shardmill_core::fleet::StandalonePolicy;
use shardmill_core::pipeline::{CheckpointPolicy, FailurePolicy, Parallelism, TickInterval};
use shardmill_core::plugin::{GuestLimits, Permissions, PluginName, WantedContract, tables_of};
use shardmill_core::rollout::RolloutPolicy;
use shardmill_core::shadow::ShadowPolicy;
use shardmill_core::stream::{InitialPosition, StreamRef};
use shardmill_filter::Filter;
use shardmill_worker::{BatchLimits, Retrieval};

/// One plugin's settings, all of them, checked.
#[derive(Debug, Clone, PartialEq)]
pub struct PluginConfig {
    /// The streams it reads; at least one, unless a function says otherwise.
    pub streams: Vec<StreamConfig>,
    /// Which records it gets; all of them without a filter.
    pub filter: Option<Arc<Filter>>,
    /// How many instances work on one shard at a time.
    pub parallelism: Parallelism,
    /// Batches, of each instance.
    pub batches: BatchLimits,
    /// When settled records are written to the lease table.
    pub checkpoints: CheckpointPolicy,
    /// How often it is called because time has passed, if its component wants that.
    pub tick: TickInterval,
    /// How long to wait between attempts of reads, deliveries and sinks.
    pub retry: Backoff,
    /// What happens to records that fail.
    pub failure: FailurePolicy,
    /// What an instance may use.
    pub limits: GuestLimits,
    /// How new versions are tried.
    pub rollout: RolloutPolicy,
    /// How a version runs in its shadow.
    pub shadow: ShadowPolicy,
    /// How it is read if each host reads all shards by itself; `None` if hosts share them.
    pub standalone: Option<StandalonePolicy>,
    /// Values the plugin reads through `wasi:config/store`.
    pub config: BTreeMap<String, String>,
    /// The sinks that it may emit to; `None` is all of them.
    pub sinks: Option<BTreeSet<String>>,
    /// The version of the contract that its component must be built for.
    pub world: Option<WantedContract>,
    /// What it may use beyond its records, its configuration and the sinks.
    pub permissions: Permissions,
}

/// One stream of a plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamConfig {
    /// The stream, by name or ARN.
    pub stream: StreamRef,
    /// The name of the lease table, which holds its leases and checkpoints; with `@` and this
    /// host's id if the host is standalone and only has rows of its own there.
    pub application: String,
    /// The plugin's name in metrics and on the status page for this stream.
    pub label: PluginName,
    /// Where shards without a checkpoint start.
    pub initial_position: InitialPosition,
    /// How its records are read.
    pub retrieval: Retrieval,
}

impl PluginConfig {
    /// The sinks of `all` that the plugin may emit to.
    pub fn destinations(&self, all: &[String]) -> Vec<String> {
        let is_its = |name: &&String| self.sinks.as_ref().is_none_or(|own| own.contains(*name));
        all.iter().filter(is_its).cloned().collect()
    }

    /// An application of which the other plugin has a table too, if there is one.
    pub fn shares_a_table_with(&self, other: &Self) -> Option<&str> {
        let theirs: BTreeSet<String> = other
            .streams
            .iter()
            .flat_map(|one| tables_of(&one.application))
            .collect();
        let shared = self.streams.iter().find(|one| {
            tables_of(&one.application)
                .iter()
                .any(|table| theirs.contains(table))
        });
        shared.map(|one| one.application.as_str())
    }

    /// Refuses a version that was built for another contract than the settings want.
    pub fn refuse_other_contract(&self, exported: Option<&str>) -> Result<(), String> {
        match (&self.world, exported) {
            (Some(wanted), Some(exported)) if !wanted.is_met_by(exported) => Err(format!(
                "world is {wanted:?}, and the component is built for {exported:?} of the \
                    contract: build it for that version, or change world",
                wanted = wanted.to_string(),
            )),
            _ => Ok(()),
        }
    }
}
