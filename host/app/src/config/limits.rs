//! What an instance may use: the host's word, a plugin's own, and how much of that a manifest may ask for.

use std::time::Duration;

use bytesize::ByteSize;
use serde::Deserialize;
use shardmill_core::plugin::GuestLimits;

use super::file::to_usize;
use super::problem::Problem;

/// What a manifest may ask for unless the host says otherwise: what JavaScript and Python need with room, and a minute,
/// which is still far below a lease's patience with a plugin.
pub(super) const CEILINGS: Ceilings = Ceilings {
    memory_bytes: 256 << 20,
    process_deadline: Duration::from_mins(1),
    init_deadline: Duration::from_mins(1),
    emit_bytes: 64 << 20,
};

/// The most that a manifest may ask for. Inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ceilings {
    /// Linear memory.
    pub memory_bytes: usize,
    /// A call of `process`.
    pub process_deadline: Duration,
    /// `init`, and `close`.
    pub init_deadline: Duration,
    /// Output of a batch.
    pub emit_bytes: usize,
}

/// The section `[limits]`: for every plugin that says nothing else.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct HostLimitsFile {
    memory: Option<ByteSize>,
    #[serde(default, with = "humantime_serde")]
    process_deadline: Option<Duration>,
    #[serde(default, with = "humantime_serde")]
    init_deadline: Option<Duration>,
    emit_bytes: Option<ByteSize>,
    log_lines_per_second: Option<u32>,
}

/// A plugin's own `[limits]`, and the host's `[ceilings]`, which have the same keys.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct LimitsFile {
    memory: Option<ByteSize>,
    #[serde(default, with = "humantime_serde")]
    process_deadline: Option<Duration>,
    #[serde(default, with = "humantime_serde")]
    init_deadline: Option<Duration>,
    emit_bytes: Option<ByteSize>,
}

impl HostLimitsFile {
    /// Problems are named by key, without the section.
    pub(super) fn check(self, defaults: GuestLimits) -> Result<GuestLimits, Problem> {
        let Self { memory, process_deadline, init_deadline, emit_bytes, log_lines_per_second } = self;
        let limits = LimitsFile { memory, process_deadline, init_deadline, emit_bytes }.over(defaults)?;
        Ok(GuestLimits {
            log_lines_per_second: log_lines_per_second.unwrap_or(defaults.log_lines_per_second),
            ..limits
        })
    }
}

impl LimitsFile {
    pub(super) fn check(self, defaults: Ceilings) -> Result<Ceilings, Problem> {
        let limits = self.over(GuestLimits {
            memory_bytes: defaults.memory_bytes,
            process_deadline: defaults.process_deadline,
            init_deadline: defaults.init_deadline,
            emit_bytes: defaults.emit_bytes,
            ..GuestLimits::default()
        })?;
        let GuestLimits { memory_bytes, process_deadline, init_deadline, emit_bytes, .. } = limits;
        Ok(Ceilings { memory_bytes, process_deadline, init_deadline, emit_bytes })
    }

    /// A plugin's own limits over the general ones.
    pub(super) fn over(self, general: GuestLimits) -> Result<GuestLimits, Problem> {
        let limits = GuestLimits {
            memory_bytes: self.memory.map_or(general.memory_bytes, to_usize),
            process_deadline: self.process_deadline.unwrap_or(general.process_deadline),
            init_deadline: self.init_deadline.unwrap_or(general.init_deadline),
            emit_bytes: self.emit_bytes.map_or(general.emit_bytes, to_usize),
            ..general
        };
        if limits.memory_bytes < 1 << 20 {
            return Err(Problem::new("memory", "must be at least 1MiB: less does not hold any guest"));
        }
        for (key, deadline) in [("process-deadline", limits.process_deadline), ("init-deadline", limits.init_deadline)]
        {
            if deadline.is_zero() {
                return Err(Problem::new(key, "must be above zero"));
            }
        }
        Ok(limits)
    }

    /// Refuses what a manifest may not ask for. What every plugin gets is never too much.
    pub(super) fn refuse_beyond(&self, ceilings: &Ceilings, general: &GuestLimits) -> Result<(), Problem> {
        let bytes = |asked: Option<ByteSize>, ceiling: usize, general: usize| {
            asked.is_some_and(|asked| to_usize(asked) > ceiling.max(general))
        };
        let time = |asked: Option<Duration>, ceiling: Duration, general: Duration| {
            asked.is_some_and(|asked| asked > ceiling.max(general))
        };
        for (key, is_beyond) in [
            ("memory", bytes(self.memory, ceilings.memory_bytes, general.memory_bytes)),
            ("process-deadline", time(self.process_deadline, ceilings.process_deadline, general.process_deadline)),
            ("init-deadline", time(self.init_deadline, ceilings.init_deadline, general.init_deadline)),
            ("emit-bytes", bytes(self.emit_bytes, ceilings.emit_bytes, general.emit_bytes)),
        ] {
            if is_beyond {
                let message = format!(
                    "is more than this host lets a manifest have: ask for less, raise ceilings.{key}, or set it in the \
                     host's section of the plugin"
                );
                return Err(Problem::new(key, message));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use shardmill_core::plugin::PluginName;

    use super::*;
    use crate::config::{Config, Manifest};

    fn limits(config: &str, manifest: &str) -> Result<GuestLimits, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("alerts.toml");
        std::fs::write(&path, manifest).unwrap();
        let manifest = Manifest::read(&path).map_err(|error| error.to_string())?;
        let config = Config::parse(&format!("stream = \"orders\"\n{config}"), Path::new("."))?;
        Ok(config.of_plugin(&PluginName::new("alerts").unwrap(), manifest.as_ref())?.limits)
    }

    #[test]
    fn a_plugins_own_limits_stand_over_the_general_ones_key_by_key() {
        let own =
            limits("[limits]\nmemory = \"96MiB\"\nemit-bytes = \"1MiB\"", "[limits]\nmemory = \"128MiB\"").unwrap();
        assert_eq!((own.memory_bytes, own.emit_bytes), (128 << 20, 1 << 20));
        let section = "[plugin.alerts.limits]\nmemory = \"2GiB\"";
        let own = limits(section, "[limits]\nmemory = \"128MiB\"\nprocess-deadline = \"7s\"").unwrap();
        assert_eq!(
            (own.memory_bytes, own.process_deadline),
            (2 << 30, Duration::from_secs(7)),
            "the host's word is free"
        );
    }

    #[test]
    fn a_manifest_gets_no_more_than_the_ceiling_or_what_every_plugin_gets() {
        let refused = limits("", "[limits]\nmemory = \"257MiB\"").unwrap_err();
        assert!(refused.contains("alerts.toml: line 2: limits.memory: is more than this host"), "{refused}");
        assert!(limits("", "[limits]\nmemory = \"256MiB\"").is_ok(), "the ceiling is inclusive");
        assert!(limits("[ceilings]\nmemory = \"1GiB\"", "[limits]\nmemory = \"1GiB\"").is_ok());
        assert!(limits("[limits]\nprocess-deadline = \"5m\"", "[limits]\nprocess-deadline = \"4m\"").is_ok());
        assert!(limits("[ceilings]\ninit-deadline = \"1s\"", "[limits]\ninit-deadline = \"6s\"").is_err());
    }

    #[test]
    fn limits_that_cannot_work_are_refused_with_their_place() {
        for (config, manifest, expected) in [
            ("[limits]\nmemory = \"1kB\"", "", "limits.memory: must be at least 1MiB"),
            ("[ceilings]\nprocess-deadline = \"0s\"", "", "ceilings.process-deadline: must be above zero"),
            ("[plugin.alerts.limits]\nmemory = \"1kB\"", "", "plugin.alerts.limits.memory"),
            ("", "[limits]\nlog-lines-per-second = 1000", "unknown field `log-lines-per-second`"),
        ] {
            let error = limits(config, manifest).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
