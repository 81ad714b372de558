//! The section `[rollout]`: how new versions are tried.

use std::time::Duration;

use bytesize::ByteSize;
use serde::Deserialize;
use shardmill_core::rollout::{RolloutPolicy, RolloutProblem};

use super::duration;
use super::floor;
use super::problem::Problem;
use super::size;

#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct RolloutFile {
    enabled: Option<bool>,
    canary_records: Option<u64>,
    canary_batches: Option<u64>,
    #[serde(default, deserialize_with = "duration::optional")]
    canary_for: Option<Duration>,
    time_factor: Option<f64>,
    memory_factor: Option<f64>,
    #[serde(default, deserialize_with = "size::optional")]
    memory_allowance: Option<ByteSize>,
    #[serde(default, deserialize_with = "duration::optional")]
    probation: Option<Duration>,
    share: Option<f64>,
    #[serde(default, deserialize_with = "duration::optional")]
    share_wait: Option<Duration>,
    #[serde(default, deserialize_with = "duration::optional")]
    quarantine_for: Option<Duration>,
}

impl RolloutFile {
    /// These keys, and those of `under` that are not set here.
    pub(super) fn laid_over(self, under: Self) -> Self {
        Self {
            enabled: self.enabled.or(under.enabled),
            canary_records: self.canary_records.or(under.canary_records),
            canary_batches: self.canary_batches.or(under.canary_batches),
            canary_for: self.canary_for.or(under.canary_for),
            time_factor: self.time_factor.or(under.time_factor),
            memory_factor: self.memory_factor.or(under.memory_factor),
            memory_allowance: self.memory_allowance.or(under.memory_allowance),
            probation: self.probation.or(under.probation),
            share: self.share.or(under.share),
            share_wait: self.share_wait.or(under.share_wait),
            quarantine_for: self.quarantine_for.or(under.quarantine_for),
        }
    }

    /// A plugin's own keys over the general ones.
    pub(super) fn check(self, general: RolloutPolicy) -> Result<RolloutPolicy, Problem> {
        let policy = RolloutPolicy {
            enabled: self.enabled.unwrap_or(general.enabled),
            canary_records: self.canary_records.unwrap_or(general.canary_records),
            canary_batches: self.canary_batches.unwrap_or(general.canary_batches),
            canary_for: floor::CANARY_FOR.check(self.canary_for, general.canary_for)?,
            time_factor: self.time_factor.unwrap_or(general.time_factor),
            memory_factor: self.memory_factor.unwrap_or(general.memory_factor),
            memory_allowance: self
                .memory_allowance
                .map_or(general.memory_allowance, |size| size.as_u64()),
            probation: self.probation.unwrap_or(general.probation),
            share: self.share.unwrap_or(general.share),
            share_wait: self.share_wait.unwrap_or(general.share_wait),
            quarantine_for: floor::QUARANTINE_FOR
                .check(self.quarantine_for, general.quarantine_for)?,
        };
        match policy.problem() {
            Some(RolloutProblem { key, problem }) => {
                Err(Problem::new(format!("rollout.{key}"), problem))
            }
            None => Ok(policy),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use shardmill_core::plugin::PluginName;

    use super::*;
    use crate::Config;

    #[test]
    fn a_plugins_rollout_stands_over_the_hosts_key_by_key() {
        let text = "stream = \"s\"\n[rollout]\nshare = 0.25\nprobation = \"1m\"\n\
                    [plugin.abc.rollout]\nenabled = false\nprobation = \"2m\"\n";
        let config = Config::parse(text, Path::new(".")).unwrap();
        let of = |name| {
            config
                .of_plugin(&PluginName::new(name).unwrap(), None)
                .unwrap()
                .rollout
        };
        assert_eq!(
            (of("def").enabled, of("def").share, of("def").probation),
            (true, 0.25, Duration::from_mins(1))
        );
        assert_eq!(
            (of("abc").enabled, of("abc").share, of("abc").probation),
            (false, 0.25, Duration::from_mins(2))
        );
    }

    #[test]
    fn a_rollout_that_cannot_work_is_refused_with_its_line_and_mend() {
        for (section, expected) in [
            (
                "share = 0.0",
                "line 3: rollout.share: must be above 0 and at most 1",
            ),
            (
                "canary-records = 0",
                "line 3: rollout.canary-records: must be at least 1",
            ),
            (
                "time-factor = 0.9",
                "line 3: rollout.time-factor: must be at least 1",
            ),
            ("factor = 3", "unknown field `factor`"),
        ] {
            let error = Config::parse(
                &format!("stream = \"s\"\n[rollout]\n{section}\n"),
                Path::new("."),
            )
            .unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
