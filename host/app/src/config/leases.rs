//! The section `[leases]`.

use std::time::Duration;

use serde::Deserialize;
use shardmill_core::plan::Balance;
use shardmill_worker::LeaseOptions;

use super::problem::Problem;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct LeasesFile {
    #[serde(default, with = "humantime_serde")]
    duration: Option<Duration>,
    #[serde(default, with = "humantime_serde")]
    renew_every: Option<Duration>,
    #[serde(default, with = "humantime_serde")]
    scan_every: Option<Duration>,
    #[serde(default, with = "humantime_serde")]
    shard_sync_every: Option<Duration>,
    max: Option<usize>,
    #[serde(default)]
    balance: BalanceWord,
    #[serde(default)]
    shared_with_kcl: bool,
    #[serde(default, with = "humantime_serde")]
    read_deadline: Option<Duration>,
    #[serde(default, with = "humantime_serde")]
    plugin_deadline: Option<Duration>,
    #[serde(default, with = "humantime_serde")]
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
        if duration < Duration::from_secs(1) {
            return Err(Problem::new("leases.duration", "must be at least 1s"));
        }
        let renew_every = self.renew_every.unwrap_or(duration.mul_f64(0.3));
        if renew_every.is_zero() || renew_every > duration / 3 {
            let third = humantime::format_duration(duration / 3);
            return Err(Problem::new(
                "leases.renew-every",
                format!("must be above zero and at most a third of leases.duration, {third}"),
            ));
        }
        let deadline = |key: &'static str, set: Option<Duration>, default: Duration| match set {
            Some(deadline) if deadline < duration => Err(Problem::new(
                key,
                format!("must be at least leases.duration, {}", humantime::format_duration(duration)),
            )),
            Some(deadline) => Ok(deadline),
            None => Ok(default.max(duration)),
        };
        Ok(LeaseOptions {
            duration,
            renew_every,
            scan_every: self.scan_every.unwrap_or(defaults.scan_every),
            shard_sync_every: self.shard_sync_every.unwrap_or(defaults.shard_sync_every),
            max_leases: self.max.unwrap_or(defaults.max_leases),
            balance: match self.balance {
                BalanceWord::Count => Balance::Count,
                BalanceWord::Throughput => Balance::Throughput,
            },
            shared_with_kcl: self.shared_with_kcl,
            read_deadline: deadline("leases.read-deadline", self.read_deadline, defaults.read_deadline)?,
            plugin_deadline: deadline("leases.plugin-deadline", self.plugin_deadline, defaults.plugin_deadline)?,
            checkpoint_deadline: deadline(
                "leases.checkpoint-deadline",
                self.checkpoint_deadline,
                defaults.checkpoint_deadline,
            )?,
        })
    }
}
