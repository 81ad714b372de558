//! What an instance may use: the host's word, a plugin's own, and how much of that a manifest may
//! ask for. Each limit is a row of a table; what is done with limits is written once.

use std::time::Duration;

use bytesize::ByteSize;
use serde::Deserialize;
use shardmill_core::plugin::GuestLimits;

use super::problem::Problem;
use super::units::to_usize;

/// The most that a manifest may ask for unless the host says otherwise; inclusive. What JavaScript
/// and Python need with room, a minute, which is still far below a lease's patience with a plugin,
/// and of the rest some times what every plugin gets. What has no row in the table below is not
/// asked for.
pub(super) fn default_ceilings() -> GuestLimits {
    GuestLimits {
        memory_bytes: 256 << 20,
        table_elements: 1_000_000,
        process_deadline: Duration::from_mins(1),
        init_deadline: Duration::from_mins(1),
        hostcall_bytes: 64 << 20,
        handles: 16 << 10,
        emit_bytes: 64 << 20,
        emit_count: 1_000_000,
        state_bytes: STATE_BYTES_MAX,
        ..GuestLimits::default()
    }
}

/// An item of DynamoDB has 400 KB at most (AWS limit), with its names, the checkpoint and a digest.
const STATE_BYTES_MAX: usize = 380 << 10;

/// The section `[limits]`: for every plugin that says nothing else.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct HostLimitsFile {
    memory: Option<ByteSize>,
    table_elements: Option<usize>,
    #[serde(default, with = "humantime_serde")]
    process_deadline: Option<Duration>,
    #[serde(default, with = "humantime_serde")]
    init_deadline: Option<Duration>,
    hostcall_bytes: Option<ByteSize>,
    handles: Option<usize>,
    emit_bytes: Option<ByteSize>,
    emit_count: Option<usize>,
    state: Option<ByteSize>,
    log_line_bytes: Option<ByteSize>,
    log_lines_per_second: Option<u32>,
    log_burst: Option<u32>,
}

/// A plugin's own `[limits]`, and the host's `[ceilings]`, which have the same keys.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct LimitsFile {
    memory: Option<ByteSize>,
    table_elements: Option<usize>,
    #[serde(default, with = "humantime_serde")]
    process_deadline: Option<Duration>,
    #[serde(default, with = "humantime_serde")]
    init_deadline: Option<Duration>,
    hostcall_bytes: Option<ByteSize>,
    handles: Option<usize>,
    emit_bytes: Option<ByteSize>,
    emit_count: Option<usize>,
    state: Option<ByteSize>,
}

/// A limit that a plugin may have of its own.
struct Row {
    key: &'static str,
    /// What the file says.
    asked: fn(&LimitsFile) -> Option<Amount>,
    /// Where it stands.
    place: fn(&mut GuestLimits) -> Place<'_>,
    /// What less than that is refused with.
    least: (Amount, &'static str),
}

/// Bytes or pieces; nanoseconds of a time. A row is compared with nothing but itself.
type Amount = u64;

/// A limit in place.
enum Place<'a> {
    Bytes(&'a mut usize),
    Count(&'a mut usize),
    Time(&'a mut Duration),
}

const ABOVE_ZERO: (Amount, &str) = (1, "must be above zero");

const ROWS: [Row; 9] = [
    Row {
        key: "memory",
        asked: |file| file.memory.map(|size| size.as_u64()),
        place: |limits| Place::Bytes(&mut limits.memory_bytes),
        least: (
            1 << 20,
            "must be at least 1MiB: less does not hold any guest",
        ),
    },
    Row {
        key: "table-elements",
        asked: |file| file.table_elements.map(|count| count as Amount),
        place: |limits| Place::Count(&mut limits.table_elements),
        least: ABOVE_ZERO,
    },
    Row {
        key: "process-deadline",
        asked: |file| file.process_deadline.map(nanoseconds),
        place: |limits| Place::Time(&mut limits.process_deadline),
        least: ABOVE_ZERO,
    },
    Row {
        key: "init-deadline",
        asked: |file| file.init_deadline.map(nanoseconds),
        place: |limits| Place::Time(&mut limits.init_deadline),
        least: ABOVE_ZERO,
    },
    Row {
        key: "hostcall-bytes",
        asked: |file| file.hostcall_bytes.map(|size| size.as_u64()),
        place: |limits| Place::Bytes(&mut limits.hostcall_bytes),
        least: (
            64 << 10,
            "must be at least 64KiB: less does not hold an outcome with a few failures",
        ),
    },
    Row {
        key: "handles",
        asked: |file| file.handles.map(|count| count as Amount),
        place: |limits| Place::Count(&mut limits.handles),
        least: (
            16,
            "must be at least 16: what toolchains open before a plugin begins",
        ),
    },
    Row {
        key: "emit-bytes",
        asked: |file| file.emit_bytes.map(|size| size.as_u64()),
        place: |limits| Place::Bytes(&mut limits.emit_bytes),
        least: (0, ""),
    },
    Row {
        key: "emit-count",
        asked: |file| file.emit_count.map(|count| count as Amount),
        place: |limits| Place::Count(&mut limits.emit_count),
        least: (0, ""),
    },
    Row {
        key: "state",
        asked: |file| file.state.map(|size| size.as_u64()),
        place: |limits| Place::Bytes(&mut limits.state_bytes),
        least: ABOVE_ZERO,
    },
];

// === impl Row ===

impl Row {
    fn amount(&self, limits: &GuestLimits) -> Amount {
        let mut limits = *limits;
        match (self.place)(&mut limits) {
            Place::Bytes(size) | Place::Count(size) => *size as Amount,
            Place::Time(time) => nanoseconds(*time),
        }
    }

    fn set(&self, limits: &mut GuestLimits, amount: Amount) {
        match (self.place)(limits) {
            Place::Bytes(size) | Place::Count(size) => {
                *size = usize::try_from(amount).unwrap_or(usize::MAX);
            }
            Place::Time(time) => *time = Duration::from_nanos(amount),
        }
    }

    fn told(&self, limits: &GuestLimits) -> String {
        let mut limits = *limits;
        match (self.place)(&mut limits) {
            Place::Bytes(size) => ByteSize(*size as Amount).to_string(),
            Place::Count(count) => count.to_string(),
            Place::Time(time) => humantime::format_duration(*time).to_string(),
        }
    }
}

/// Each limit by its key, for people.
pub fn told(limits: &GuestLimits) -> Vec<(&'static str, String)> {
    ROWS.iter().map(|row| (row.key, row.told(limits))).collect()
}

/// A time of five centuries and more is as good as none.
fn nanoseconds(time: Duration) -> Amount {
    Amount::try_from(time.as_nanos()).unwrap_or(Amount::MAX)
}

// === impl HostLimitsFile ===

impl HostLimitsFile {
    /// Problems are named by key, without the section.
    pub(super) fn check(self, defaults: GuestLimits) -> Result<GuestLimits, Problem> {
        let Self {
            log_line_bytes,
            log_lines_per_second,
            log_burst,
            ..
        } = self;
        let limits = self.shared().over(defaults)?;
        let limits = GuestLimits {
            log_line_bytes: log_line_bytes.map_or(limits.log_line_bytes, to_usize),
            log_lines_per_second: log_lines_per_second.unwrap_or(limits.log_lines_per_second),
            log_burst: log_burst.unwrap_or(limits.log_burst),
            ..limits
        };
        if limits.log_burst == 0 && limits.log_lines_per_second > 0 {
            return Err(Problem::new(
                "log-burst",
                "must be above zero, or no line is ever written",
            ));
        }
        Ok(limits)
    }

    /// What plugins may have of their own, too.
    fn shared(self) -> LimitsFile {
        LimitsFile {
            memory: self.memory,
            table_elements: self.table_elements,
            process_deadline: self.process_deadline,
            init_deadline: self.init_deadline,
            hostcall_bytes: self.hostcall_bytes,
            handles: self.handles,
            emit_bytes: self.emit_bytes,
            emit_count: self.emit_count,
            state: self.state,
        }
    }
}

// === impl LimitsFile ===

impl LimitsFile {
    /// A plugin's own limits over the general ones, or the host's ceilings over the default ones.
    pub(super) fn over(&self, general: GuestLimits) -> Result<GuestLimits, Problem> {
        let mut limits = general;
        for row in &ROWS {
            if let Some(asked) = (row.asked)(self) {
                row.set(&mut limits, asked);
            }
            let (least, why) = row.least;
            if row.amount(&limits) < least {
                return Err(Problem::new(row.key, why));
            }
        }
        if limits.state_bytes > STATE_BYTES_MAX {
            return Err(Problem::new(
                "state",
                "must be at most 380KiB: an item of DynamoDB holds no more",
            ));
        }
        Ok(limits)
    }

    /// Refuses what a manifest may not ask for. What every plugin gets is never too much.
    pub(super) fn refuse_beyond(
        &self,
        ceilings: &GuestLimits,
        general: &GuestLimits,
    ) -> Result<(), Problem> {
        for row in &ROWS {
            let most = row.amount(ceilings).max(row.amount(general));
            if (row.asked)(self).is_some_and(|asked| asked > most) {
                let key = row.key;
                let message = format!(
                    "is more than this host allows a manifest: ask for less, raise \
                        ceilings.{key}, or set it in the host's section of the plugin"
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
    use crate::{Config, Manifest};

    fn limits(config: &str, manifest: &str) -> Result<GuestLimits, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("alerts.toml");
        std::fs::write(&path, manifest).unwrap();
        let manifest = Manifest::read(&path).map_err(|error| error.to_string())?;
        let config = Config::parse(&format!("stream = \"orders\"\n{config}"), Path::new("."))?;
        Ok(config
            .of_plugin(&PluginName::new("alerts").unwrap(), manifest.as_ref())?
            .limits)
    }

    #[test]
    fn a_plugins_own_limits_stand_over_the_general_ones_key_by_key() {
        let own = limits(
            "[limits]\nmemory = \"96MiB\"\nemit-bytes = \"1MiB\"",
            "[limits]\nmemory = \"128MiB\"",
        )
        .unwrap();
        assert_eq!((own.memory_bytes, own.emit_bytes), (128 << 20, 1 << 20));
        let section = "[plugin.alerts.limits]\nmemory = \"2GiB\"";
        let own = limits(
            section,
            "[limits]\nmemory = \"128MiB\"\nprocess-deadline = \"7s\"",
        )
        .unwrap();
        assert_eq!(
            (own.memory_bytes, own.process_deadline),
            (2 << 30, Duration::from_secs(7)),
            "the host's word is free"
        );
    }

    #[test]
    fn a_manifest_gets_no_more_than_the_ceiling_or_what_every_plugin_gets() {
        let refused = limits("", "[limits]\nmemory = \"257MiB\"").unwrap_err();
        assert!(
            refused.contains("alerts.toml: line 2: limits.memory: is more than this host"),
            "{refused}"
        );
        assert!(
            limits("", "[limits]\nmemory = \"256MiB\"").is_ok(),
            "the ceiling is inclusive"
        );
        assert!(
            limits(
                "[ceilings]\nmemory = \"1GiB\"",
                "[limits]\nmemory = \"1GiB\""
            )
            .is_ok()
        );
        assert!(
            limits(
                "[limits]\nprocess-deadline = \"5m\"",
                "[limits]\nprocess-deadline = \"4m\""
            )
            .is_ok()
        );
        assert!(
            limits(
                "[ceilings]\ninit-deadline = \"1s\"",
                "[limits]\ninit-deadline = \"6s\""
            )
            .is_err()
        );
    }

    #[test]
    fn every_limit_of_the_table_is_set_by_its_key_and_held_to_its_ceiling() {
        for row in &ROWS {
            let general = GuestLimits::default();
            let most = row.amount(&default_ceilings());
            assert!(
                most > row.amount(&general),
                "{}: a manifest may ask for more than it gets",
                row.key
            );
            let value = |amount: Amount| match row.key {
                key if key.ends_with("deadline") => format!("\"{amount}ns\""),
                key if key.ends_with("bytes") || key == "memory" => format!("\"{amount}B\""),
                _ => amount.to_string(),
            };
            // Room for the largest: all instances share the host's memory.
            let host = "[host]\ninstances-memory = \"1GiB\"";
            let set = limits(host, &format!("[limits]\n{} = {}", row.key, value(most))).unwrap();
            assert_eq!(row.amount(&set), most, "{}", row.key);
            let others = ROWS.iter().filter(|other| other.key != row.key);
            for other in others {
                assert_eq!(
                    other.amount(&set),
                    other.amount(&general),
                    "{} changes {}",
                    row.key,
                    other.key
                );
            }
            let refused = limits(
                host,
                &format!("[limits]\n{} = {}", row.key, value(most + 1)),
            )
            .unwrap_err();
            assert!(
                refused.contains(&format!("limits.{}: is more than this host", row.key)),
                "{refused}"
            );
        }
    }

    #[test]
    fn the_hosts_own_limits_on_logs_are_set_for_all_plugins() {
        let own = limits(
            "[limits]\nlog-line-bytes = \"1KiB\"\nlog-lines-per-second = 7\nlog-burst = 9",
            "",
        )
        .unwrap();
        assert_eq!(
            (own.log_line_bytes, own.log_lines_per_second, own.log_burst),
            (1 << 10, 7, 9)
        );
    }

    #[test]
    fn limits_that_cannot_work_are_refused_with_their_place() {
        for (config, manifest, expected) in [
            (
                "[limits]\nmemory = \"1kB\"",
                "",
                "limits.memory: must be at least 1MiB",
            ),
            (
                "[ceilings]\nprocess-deadline = \"0s\"",
                "",
                "ceilings.process-deadline: must be above zero",
            ),
            (
                "[plugin.alerts.limits]\nmemory = \"1kB\"",
                "",
                "plugin.alerts.limits.memory",
            ),
            (
                "",
                "[limits]\nlog-lines-per-second = 1000",
                "unknown field `log-lines-per-second`",
            ),
            (
                "",
                "[limits]\nlog-burst = 1000",
                "unknown field `log-burst`",
            ),
            (
                "[limits]\nlog-burst = 0",
                "",
                "limits.log-burst: must be above zero",
            ),
            (
                "[limits]\nhandles = 2",
                "",
                "limits.handles: must be at least 16",
            ),
            (
                "[limits]\nhostcall-bytes = \"1kB\"",
                "",
                "limits.hostcall-bytes: must be at least 64KiB",
            ),
            (
                "[host]\ninstances-memory = \"32MiB\"",
                "",
                "host.instances-memory: must be at least limits.memory",
            ),
            (
                "[host]\ninstances-memory = \"64MiB\"",
                "[limits]\nmemory = \"65MiB\"",
                "limits.memory: must be at most host.instances-memory",
            ),
        ] {
            let error = limits(config, manifest).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
