//! What an instance may use: the host's settings, a plugin's own, and how much of that a manifest
//! may ask for. A limit is one row of a table; reading, checking and comparing are written once.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use bytesize::ByteSize;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use shardmill_core::plugin::{GuestLimits, STATE_BYTES_MAX};

use super::duration::Bounded;
use super::floor;
use super::problem::{Problem, Under};
use super::section;
use super::size;

/// The most that a manifest may ask for by default; inclusive. Memory is what JavaScript and Python
/// need with room; a minute is still far below `leases.plugin-deadline`; the rest is a multiple of
/// what every plugin gets.
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

/// The host's section `[limits]`, which has all keys of [`ROWS`]. It applies to every plugin
/// without its own setting.
#[derive(Debug, Default)]
pub(super) struct HostLimitsFile(LimitsFile);

/// A plugin's own `[limits]`, and the limits among the host's `[ceilings]`: the amounts that are
/// set, by their keys, which are the first [`OF_PLUGINS`] of [`ROWS`].
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct LimitsFile(BTreeMap<&'static str, Amount>);

/// A limit that can be set.
struct Row {
    key: &'static str,
    /// Finds the limit among all of them.
    bound: fn(&mut GuestLimits) -> Bound<'_>,
    /// The smallest allowed value, and why.
    least: (Amount, &'static str),
}

/// Bytes, pieces, lines a second, or nanoseconds. Compared only with amounts of the same row.
type Amount = u64;

/// A limit in its unit.
enum Bound<'a> {
    Bytes(&'a mut usize),
    Count(&'a mut usize),
    Lines(&'a mut u32),
    Time(&'a mut Duration),
}

const ABOVE_ZERO: (Amount, &str) = (1, "must be above zero");
const ANY: (Amount, &str) = (0, "");

/// How many of [`ROWS`], from the first on, plugins and ceilings may set. The others are the
/// host's.
const OF_PLUGINS: usize = 9;

const ROWS: [Row; 12] = [
    Row {
        key: "memory",
        bound: |limits| Bound::Bytes(&mut limits.memory_bytes),
        least: (
            1 << 20,
            "must be at least 1MiB: less does not hold any guest",
        ),
    },
    Row {
        key: "table-elements",
        bound: |limits| Bound::Count(&mut limits.table_elements),
        least: ABOVE_ZERO,
    },
    Row {
        key: "process-deadline",
        bound: |limits| Bound::Time(&mut limits.process_deadline),
        least: floor::PROCESS_DEADLINE.in_nanoseconds(),
    },
    Row {
        key: "init-deadline",
        bound: |limits| Bound::Time(&mut limits.init_deadline),
        least: floor::INIT_DEADLINE.in_nanoseconds(),
    },
    Row {
        key: "hostcall-bytes",
        bound: |limits| Bound::Bytes(&mut limits.hostcall_bytes),
        least: (
            64 << 10,
            "must be at least 64KiB: less does not hold an outcome with a few failures",
        ),
    },
    Row {
        key: "handles",
        bound: |limits| Bound::Count(&mut limits.handles),
        least: (
            16,
            "must be at least 16: what toolchains open before a plugin begins",
        ),
    },
    Row {
        key: "emit-bytes",
        bound: |limits| Bound::Bytes(&mut limits.emit_bytes),
        least: ANY,
    },
    Row {
        key: "emit-count",
        bound: |limits| Bound::Count(&mut limits.emit_count),
        least: ANY,
    },
    Row {
        key: "state",
        bound: |limits| Bound::Bytes(&mut limits.state_bytes),
        least: ABOVE_ZERO,
    },
    Row {
        key: "log-line-bytes",
        bound: |limits| Bound::Bytes(&mut limits.log_line_bytes),
        least: ANY,
    },
    Row {
        key: "log-lines-per-second",
        bound: |limits| Bound::Lines(&mut limits.log_lines_per_second),
        least: ANY,
    },
    Row {
        key: "log-burst",
        bound: |limits| Bound::Lines(&mut limits.log_burst),
        least: ANY,
    },
];

const KEYS: [&str; ROWS.len()] = {
    let mut keys = [""; ROWS.len()];
    let mut at = 0;
    while at < keys.len() {
        keys[at] = ROWS[at].key;
        at += 1;
    }
    keys
};

/// Each limit that a plugin may set, by its key, for people.
pub fn shown(limits: &GuestLimits) -> Vec<(&'static str, String)> {
    let rows = ROWS[..OF_PLUGINS].iter();
    rows.map(|row| (row.key, row.shown(limits))).collect()
}

// === impl HostLimitsFile ===

impl HostLimitsFile {
    /// The limits that follow over `defaults`.
    pub(super) fn check(&self, defaults: GuestLimits) -> Result<GuestLimits, Problem> {
        let limits = self.0.over(defaults).under("limits")?;
        if limits.log_burst == 0 && limits.log_lines_per_second > 0 {
            return Err(Problem::new(
                "limits.log-burst",
                "must be above zero, or no line is ever written",
            ));
        }
        Ok(limits)
    }
}

impl<'de> Deserialize<'de> for HostLimitsFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let limits = LimitsVisitor { keys: &KEYS };
        deserializer.deserialize_map(limits).map(Self)
    }
}

// === impl LimitsFile ===

impl LimitsFile {
    /// These keys, and those of `under` that are not set here.
    pub(super) fn laid_over(&self, under: &Self) -> Self {
        let mut all = under.clone();
        all.0.extend(&self.0);
        all
    }

    /// A plugin's own limits over the general ones, or the host's ceilings over the default ones.
    /// Problems are named by key, without the section.
    pub(super) fn over(&self, general: GuestLimits) -> Result<GuestLimits, Problem> {
        let mut limits = general;
        for row in &ROWS {
            if let Some(asked) = self.0.get(row.key) {
                row.set(&mut limits, *asked);
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

    /// Refuses what a manifest may not ask for, unless the operator's `section` sets it. What every
    /// plugin gets is never too much.
    pub(super) fn refuse_beyond(
        &self,
        section: &Self,
        ceilings: &GuestLimits,
        general: &GuestLimits,
    ) -> Result<(), Problem> {
        for row in &ROWS {
            let most = row.amount(ceilings).max(row.amount(general));
            let is_beyond = self.0.get(row.key).is_some_and(|asked| *asked > most);
            if is_beyond && !section.0.contains_key(row.key) {
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

impl<'de> Deserialize<'de> for LimitsFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(LimitsVisitor {
            keys: &KEYS[..OF_PLUGINS],
        })
    }
}

/// Reads the limits of a table.
struct LimitsVisitor {
    /// The keys that may be set.
    keys: &'static [&'static str],
}

impl<'de> Visitor<'de> for LimitsVisitor {
    type Value = LimitsFile;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(section::EXPECTED)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<LimitsFile, A::Error> {
        let mut asked = BTreeMap::new();
        while let Some(key) = map.next_key::<String>()? {
            let known = ROWS
                .iter()
                .find(|row| row.key == key && self.keys.contains(&row.key));
            let row = known.ok_or_else(|| A::Error::unknown_field(&key, self.keys))?;
            asked.insert(row.key, row.read(&mut map)?);
        }
        Ok(LimitsFile(asked))
    }
}

// === impl Row ===

impl Row {
    /// Reads the value of its key.
    fn read<'de, A: MapAccess<'de>>(&self, map: &mut A) -> Result<Amount, A::Error> {
        Ok(match (self.bound)(&mut GuestLimits::default()) {
            Bound::Bytes(_) => map.next_value::<size::Bounded>()?.0.as_u64(),
            Bound::Count(_) => map.next_value::<usize>()? as Amount,
            Bound::Lines(_) => map.next_value::<u32>()?.into(),
            Bound::Time(_) => {
                let time: Bounded = map.next_value()?;
                nanoseconds(time.0)
            }
        })
    }

    fn amount(&self, limits: &GuestLimits) -> Amount {
        let mut limits = *limits;
        match (self.bound)(&mut limits) {
            Bound::Bytes(count) | Bound::Count(count) => *count as Amount,
            Bound::Lines(lines) => (*lines).into(),
            Bound::Time(time) => nanoseconds(*time),
        }
    }

    fn set(&self, limits: &mut GuestLimits, amount: Amount) {
        match (self.bound)(limits) {
            Bound::Bytes(count) | Bound::Count(count) => {
                *count = usize::try_from(amount).unwrap_or(usize::MAX);
            }
            Bound::Lines(lines) => *lines = u32::try_from(amount).unwrap_or(u32::MAX),
            Bound::Time(time) => *time = Duration::from_nanos(amount),
        }
    }

    fn shown(&self, limits: &GuestLimits) -> String {
        let mut limits = *limits;
        match (self.bound)(&mut limits) {
            Bound::Bytes(size) => ByteSize(*size as Amount).to_string(),
            Bound::Count(count) => count.to_string(),
            Bound::Lines(lines) => lines.to_string(),
            Bound::Time(time) => humantime::format_duration(*time).to_string(),
        }
    }
}

/// A time of five centuries or more counts as the longest that fits.
fn nanoseconds(time: Duration) -> Amount {
    Amount::try_from(time.as_nanos()).unwrap_or(Amount::MAX)
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
        for row in &ROWS[..OF_PLUGINS] {
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
                "ceilings.process-deadline: must be at least 10ms",
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
                "[host]\ncode-memory = \"511MiB\"",
                "",
                "host.code-memory: must be at least twice compile.code",
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
