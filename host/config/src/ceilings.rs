//! The section `[ceilings]`: the most that a manifest may ask for, and what it may name.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, de};
use shardmill_core::pipeline::Parallelism;
use shardmill_core::plugin::GuestLimits;
use shardmill_sinks::SinkOptions;

use super::grants::{GrantCeilingsFile, PermissionCeilings};
use super::limits::{LimitsFile, default_ceilings};
use super::names::{NameCeilings, NameCeilingsFile};
use super::parallelism;
use super::problem::{Problem, Under};
use super::section;

/// The section as written: limits and names, and the section `[ceilings.grants]` within.
#[derive(Debug, Default)]
pub(super) struct CeilingsFile {
    limits: LimitsFile,
    names: NameCeilingsFile, // Keys of `[ceilings]` itself, as the next two.
    parallelism: Option<u32>,
    frequent_checkpoints: bool,
    grants: GrantCeilingsFile,
}

/// What a manifest may ask for.
#[derive(Debug, Clone)]
pub(crate) struct Ceilings {
    /// The most of each limit; inclusive.
    pub(crate) limits: GuestLimits,
    /// The most instances for a shard; inclusive.
    pub(crate) parallelism: Parallelism,
    /// Whether it may ask for checkpoints that cost the operator more than usual.
    pub(crate) are_frequent_checkpoints_allowed: bool,
    pub(crate) permissions: PermissionCeilings,
    /// Which streams, applications and sinks it may name.
    pub(crate) names: NameCeilings,
}

// === impl CeilingsFile ===

impl CeilingsFile {
    pub(super) fn check(&self, sinks: &BTreeMap<String, SinkOptions>) -> Result<Ceilings, Problem> {
        Ok(Ceilings {
            permissions: self.grants.check().under("ceilings.grants")?,
            names: self.names.check(sinks).under("ceilings")?,
            limits: self.limits.over(default_ceilings()).under("ceilings")?,
            parallelism: parallelism::ceiling(self.parallelism).under("ceilings")?,
            are_frequent_checkpoints_allowed: self.frequent_checkpoints,
        })
    }
}

impl<'de> Deserialize<'de> for CeilingsFile {
    /// By hand, since unknown keys are refused, which a flattened section would not do.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let readable = |error: toml::de::Error| de::Error::custom(error.message());
        let mut limits = toml::Table::deserialize(deserializer)?;
        let grants = match limits.remove("grants") {
            Some(grants) => section::one(grants).map_err(readable)?,
            None => GrantCeilingsFile::default(),
        };
        let parallelism = match limits.remove("parallelism") {
            Some(most) => Some(most.try_into().map_err(readable)?),
            None => None,
        };
        let frequent_checkpoints = match limits.remove("frequent-checkpoints") {
            Some(allowed) => allowed.try_into().map_err(readable)?,
            None => false,
        };
        let mut names = toml::Table::new();
        for key in NameCeilingsFile::KEYS {
            names.extend(limits.remove_entry(key));
        }
        Ok(Self {
            names: names.try_into().map_err(readable)?,
            parallelism,
            frequent_checkpoints,
            limits: limits.try_into().map_err(readable)?,
            grants,
        })
    }
}
