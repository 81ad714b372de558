//! The section `[recordings]`: what is kept of batches that failed.

use std::collections::BTreeSet;
use std::time::Duration;

use bytesize::ByteSize;
use serde::Deserialize;
use shardmill_core::plugin::PluginName;

use super::duration;
use super::problem::{At, Problem};
use super::settings::RecordingsConfig;
use super::size;
use super::units::to_usize;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct RecordingsFile {
    enabled: Option<bool>,
    #[serde(default, deserialize_with = "size::optional")]
    memory: Option<ByteSize>,
    #[serde(default, deserialize_with = "size::optional")]
    instance_memory: Option<ByteSize>,
    #[serde(default, deserialize_with = "size::optional")]
    disk: Option<ByteSize>,
    #[serde(default, deserialize_with = "duration::optional")]
    keep_for: Option<Duration>,
    #[serde(default)]
    except: BTreeSet<String>,
}

/// Eight instances at their limit, or a thousand that have 32 KiB each.
const MEMORY: usize = 32 << 20;
/// As much as the largest batch, unless the operator makes batches larger: what a busy shard is
/// given between two checkpoints takes some MiB.
const INSTANCE_MEMORY: usize = 4 << 20;
/// Some 30 batches of the largest size with their run-ups, or as many small ones as are kept.
const DISK: u64 = 256 << 20;
/// The largest record, as it is written.
const DISK_MIN: u64 = 16 << 20;
/// What fails on a Friday evening is looked at on Monday.
const KEEP_FOR: Duration = Duration::from_hours(72);

impl RecordingsFile {
    pub(super) fn check(self) -> Result<RecordingsConfig, Problem> {
        let config = RecordingsConfig {
            is_enabled: self.enabled.unwrap_or(true),
            memory_bytes: self.memory.map_or(MEMORY, to_usize),
            instance_memory_bytes: self.instance_memory.map_or(INSTANCE_MEMORY, to_usize),
            disk_bytes: self.disk.map_or(DISK, |size| size.as_u64()),
            keep_for: self.keep_for.unwrap_or(KEEP_FOR),
            except: self.except,
        };
        for name in &config.except {
            PluginName::new(name).at("recordings.except")?;
        }
        if config.disk_bytes < DISK_MIN {
            let message = "must be at least 16MiB, which the largest record takes; to keep \
                nothing, set recordings.enabled = false";
            return Err(Problem::new("recordings.disk", message));
        }
        if config.keep_for.is_zero() {
            let message = "must be above zero; to keep nothing, set recordings.enabled = false";
            return Err(Problem::new("recordings.keep-for", message));
        }
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::Config;

    fn recordings(section: &str) -> Result<RecordingsConfig, String> {
        Ok(Config::parse(&format!("[recordings]\n{section}"), Path::new("."))?.recordings)
    }

    #[test]
    fn batches_that_fail_are_kept_unless_the_operator_says_otherwise() {
        let usual = recordings("").unwrap();
        assert!(usual.is_enabled);
        assert_eq!(usual.keep_for, Duration::from_hours(72));
        let own = recordings(
            "enabled = false\nmemory = \"1MiB\"\ninstance-memory = \"64KiB\"\ndisk = \"1GiB\"\n\
             keep-for = \"1h\"\nexcept = [\"payments\"]",
        );
        let expected = RecordingsConfig {
            is_enabled: false,
            memory_bytes: 1 << 20,
            instance_memory_bytes: 64 << 10,
            disk_bytes: 1 << 30,
            keep_for: Duration::from_hours(1),
            except: ["payments".to_owned()].into(),
        };
        assert_eq!(own.unwrap(), expected);
    }

    #[test]
    fn limits_under_which_nothing_could_be_kept_are_refused_with_the_way_to_keep_nothing() {
        for (section, key) in [
            ("disk = \"1MiB\"", "line 2: recordings.disk"),
            ("keep-for = \"0s\"", "line 2: recordings.keep-for"),
        ] {
            let told = recordings(section).unwrap_err();
            assert!(
                told.contains(key) && told.contains("recordings.enabled = false"),
                "{told}"
            );
        }
        let name = recordings("except = [\"a b\"]").unwrap_err();
        assert!(name.contains("line 2: recordings.except"), "{name}");
        assert!(
            recordings("size = 1")
                .unwrap_err()
                .contains("unknown field `size`")
        );
    }
}
