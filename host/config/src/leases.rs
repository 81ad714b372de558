//! The section `[leases]`.

use std::time::Duration;

use serde::Deserialize;
use shardmill_core::plan::Balance;
use shardmill_worker::LeaseOptions;

use super::duration;
use super::floor;
use super::problem::Problem;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct LeasesFile {
    #[serde(default, deserialize_with = "duration::optional")]
    duration: Option<Duration>,
    #[serde(default, deserialize_with = "duration::optional")]
    renew_every: Option<Duration>,
    #[serde(default, deserialize_with = "duration::optional")]
    scan_every: Option<Duration>,
    #[serde(default, deserialize_with = "duration::optional")]
    shard_sync_every: Option<Duration>,
    max: Option<usize>,
    #[serde(default)]
    balance: BalanceWord,
    #[serde(default)]
    shared_with_kcl: bool,
    #[serde(default, deserialize_with = "duration::optional")]
    read_deadline: Option<Duration>,
    #[serde(default, deserialize_with = "duration::optional")]
    plugin_deadline: Option<Duration>,
    #[serde(default, deserialize_with = "duration::optional")]
    checkpoint_deadline: Option<Duration>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum BalanceWord {
    #[default]
    Count,
    Throughput,
}

impl LeasesFile {
    pub(super) fn check(self) -> Result<LeaseOptions, Problem> {
        let defaults = LeaseOptions::default();
        let duration = self.duration.unwrap_or(defaults.duration);
        // A lease may be longer than the default deadlines.
        let deadline =
            |set: Option<Duration>, default: Duration| set.unwrap_or_else(|| default.max(duration));
        let options = LeaseOptions {
            duration,
            renew_every: floor::RENEW_EVERY.check(self.renew_every, duration.mul_f64(0.36))?,
            scan_every: floor::SCAN_EVERY.check(self.scan_every, defaults.scan_every)?,
            shard_sync_every: floor::SHARD_SYNC_EVERY
                .check(self.shard_sync_every, defaults.shard_sync_every)?,
            max_leases: self.max.unwrap_or(defaults.max_leases),
            balance: match self.balance {
                BalanceWord::Count => Balance::Count,
                BalanceWord::Throughput => Balance::Throughput,
            },
            shared_with_kcl: self.shared_with_kcl,
            read_deadline: deadline(self.read_deadline, defaults.read_deadline),
            plugin_deadline: deadline(self.plugin_deadline, defaults.plugin_deadline),
            checkpoint_deadline: deadline(self.checkpoint_deadline, defaults.checkpoint_deadline),
        };
        options.validate()?;
        Ok(options)
    }
}
