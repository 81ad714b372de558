//! The sections `[batch]`, `[checkpoint]` and `[retry]`, of the host and of a plugin.

use std::time::Duration;

use bytesize::ByteSize;
use serde::Deserialize;
use shardmill_core::backoff::Backoff;
use shardmill_core::pipeline::CheckpointPolicy;
use shardmill_worker::BatchLimits;

use super::duration;
use super::floor;
use super::problem::Problem;
use super::size;
use super::units::to_usize;

#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct BatchFile {
    pub(super) records: Option<usize>,
    #[serde(default, deserialize_with = "size::optional")]
    bytes: Option<ByteSize>,
    #[serde(default, deserialize_with = "duration::optional")]
    pub(super) window: Option<Duration>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct CheckpointFile {
    records: Option<u64>,
    #[serde(default, deserialize_with = "size::optional")]
    bytes: Option<ByteSize>,
    #[serde(default, deserialize_with = "duration::optional")]
    pub(super) age: Option<Duration>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct RetryFile {
    #[serde(default, deserialize_with = "duration::optional")]
    base: Option<Duration>,
    #[serde(default, deserialize_with = "duration::optional")]
    cap: Option<Duration>,
}

impl BatchFile {
    /// These keys, and those of `under` that are not set here.
    pub(super) fn laid_over(self, under: Self) -> Self {
        Self {
            records: self.records.or(under.records),
            bytes: self.bytes.or(under.bytes),
            window: self.window.or(under.window),
        }
    }

    /// The limits that follow over `defaults`.
    pub(super) fn check(self, defaults: BatchLimits) -> Result<BatchLimits, Problem> {
        /// A shard iterator lives for five minutes (AWS).
        const WINDOW_MAX: Duration = Duration::from_mins(5);
        let limits = BatchLimits {
            records: self.records.unwrap_or(defaults.records),
            bytes: self.bytes.map_or(defaults.bytes, to_usize),
            window: self.window.unwrap_or(defaults.window),
        };
        if limits.records == 0 {
            return Err(Problem::new("batch.records", "must be at least 1"));
        }
        if limits.bytes == 0 {
            return Err(Problem::new("batch.bytes", "must be above zero"));
        }
        if limits.window > WINDOW_MAX {
            return Err(Problem::new(
                "batch.window",
                "must be at most 5m, when a shard iterator expires",
            ));
        }
        Ok(limits)
    }
}

impl CheckpointFile {
    /// These keys, and those of `under` that are not set here.
    pub(super) fn laid_over(self, under: Self) -> Self {
        Self {
            records: self.records.or(under.records),
            bytes: self.bytes.or(under.bytes),
            age: self.age.or(under.age),
        }
    }

    /// The first of a manifest's keys that asks for checkpoints more often than
    /// [`OFTEN`](Self::OFTEN) and than the host's `general` ones. Those that the operator's
    /// `section` sets do not count.
    pub(super) fn asks_too_often(
        &self,
        section: &Self,
        general: &CheckpointPolicy,
    ) -> Option<&'static str> {
        let often = Self::OFTEN;
        if let (Some(records), None) = (self.records, section.records)
            && records < often.records.min(general.records)
        {
            return Some("checkpoint.records");
        }
        if let (Some(bytes), None) = (self.bytes, section.bytes)
            && bytes.as_u64() < often.bytes.min(general.bytes)
        {
            return Some("checkpoint.bytes");
        }
        if let (Some(age), None) = (self.age, section.age)
            && age < often.age.min(general.age)
        {
            return Some("checkpoint.age");
        }
        None
    }

    /// A busy shard's checkpoints by a manifest: some ten writes a second.
    const OFTEN: CheckpointPolicy = CheckpointPolicy {
        records: 100,
        bytes: 100 << 10,
        age: Duration::from_secs(1),
    };

    /// The policy that follows over `defaults`.
    pub(super) fn check(self, defaults: CheckpointPolicy) -> CheckpointPolicy {
        CheckpointPolicy {
            records: self.records.unwrap_or(defaults.records),
            bytes: self.bytes.map_or(defaults.bytes, |size| size.as_u64()),
            age: self.age.unwrap_or(defaults.age),
        }
    }
}

impl RetryFile {
    /// These keys, and those of `under` that are not set here.
    pub(super) fn laid_over(self, under: Self) -> Self {
        Self {
            base: self.base.or(under.base),
            cap: self.cap.or(under.cap),
        }
    }

    /// The waits that follow over `defaults`.
    pub(super) fn check(self, defaults: Backoff) -> Result<Backoff, Problem> {
        let base = floor::RETRY_BASE.check(self.base, defaults.base())?;
        let cap = self.cap.unwrap_or(defaults.cap().max(base));
        Backoff::new(base, cap)
            .ok_or_else(|| Problem::new("retry.base", "must be at most retry.cap"))
    }
}
