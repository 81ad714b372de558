//! The section `[reads]`.

use std::time::Duration;

use bytesize::ByteSize;
use serde::Deserialize;
use shardmill_worker::ReadLimits;

use super::duration;
use super::floor;
use super::host::HostFile;
use super::problem::Problem;
use super::retrieval::{RetrievalDefaults, RetrievalMode};
use super::size;

/// `reads.idle-max`, unless it is set, in multiples of `reads.idle-every`: three doublings, 2 s by
/// default.
const IDLE_MAX_TIMES: u32 = 8;

/// AWS allows five calls a second. An emulator may take more, but nothing that is read so often is
/// read any faster.
const CALLS_PER_SECOND_MAX: f64 = 1_000.0;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct ReadsFile {
    calls_per_second: Option<f64>,
    #[serde(default, deserialize_with = "size::optional")]
    bytes_per_second: Option<ByteSize>,
    records_per_call: Option<u32>,
    #[serde(default, deserialize_with = "duration::optional")]
    idle_every: Option<Duration>,
    #[serde(default, deserialize_with = "duration::optional")]
    idle_max: Option<Duration>,
    #[serde(default)]
    retrieval: RetrievalMode,
    #[serde(default)]
    deregister_on_exit: bool,
}

impl ReadsFile {
    /// How records are read, unless a plugin has its own setting.
    pub(super) fn retrieval(&self, host: &HostFile) -> RetrievalDefaults {
        RetrievalDefaults {
            mode: self.retrieval,
            deregister_on_exit: self.deregister_on_exit,
            is_fan_out_allowed: host.fan_out_allowed,
        }
    }

    pub(super) fn check(self) -> Result<ReadLimits, Problem> {
        let defaults = ReadLimits::default();
        let idle_every = floor::IDLE_EVERY.check(self.idle_every, defaults.idle_every)?;
        let some_times = idle_every
            .saturating_mul(IDLE_MAX_TIMES)
            .min(ReadLimits::SLOWEST);
        let limits = ReadLimits {
            calls_per_second: self.calls_per_second.unwrap_or(defaults.calls_per_second),
            bytes_per_second: self
                .bytes_per_second
                .map_or(defaults.bytes_per_second, |size| size.as_u64() as f64),
            records_per_call: self.records_per_call.unwrap_or(defaults.records_per_call),
            idle_every,
            idle_max: self.idle_max.unwrap_or(some_times),
        };
        limits.validate()?;
        if limits.calls_per_second > CALLS_PER_SECOND_MAX {
            let message = "must be at most 1000; AWS allows 5";
            return Err(Problem::new("reads.calls-per-second", message));
        }
        Ok(limits)
    }
}
