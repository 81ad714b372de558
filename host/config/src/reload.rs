//! What a running host can take over from a changed file. Everything or nothing: half of a change
//! may name what only the other half makes, such as a sink.

use std::path::Path;

use super::config::Config;
use super::error::ConfigError;

/// What plugins are served with. A change of it restarts those that it concerns, each between two
/// batches. All else belongs to the process: what it is connected to, what it listens on, what its
/// engine and its sinks were made with.
const OF_PLUGINS: [&str; 8] = [
    "plugin",
    "batch",
    "checkpoint",
    "retry",
    "failure",
    "rollout",
    "ceilings",
    "secrets",
];

/// What a changed file means for a host that runs.
#[derive(Debug)]
pub enum Reload {
    /// It says what it said before.
    Unchanged,
    /// The host can go on with this.
    Changed {
        /// The settings from now on.
        config: Box<Config>,
        /// The keys that have other values, or that are new or gone.
        keys: Vec<String>,
    },
    /// Some of what changed belongs to the process. Nothing is taken over.
    NeedsRestart {
        /// Those keys.
        keys: Vec<String>,
    },
}

impl Config {
    /// Reads the file again that this was read from, with the same environment.
    ///
    /// # Errors
    /// The file cannot be read, or has mistakes; then the host goes on as it is.
    pub fn reload(&self, path: &Path) -> Result<Reload, ConfigError> {
        let read = Self::load(path)?;
        let keys = self.written.differences(&read.written);
        let mut others = self.sections_that_decide(&read);
        others.extend(keys.iter().filter(|key| !is_of_plugins(key)).cloned());
        if !others.is_empty() {
            return Ok(Reload::NeedsRestart { keys: others });
        }
        if keys.is_empty() {
            return Ok(Reload::Unchanged);
        }
        Ok(Reload::Changed {
            config: Box::new(self.with_settings_of(read)),
            keys,
        })
    }

    /// With `host.only-listed` the folder was made for the plugins that had a section: those whose
    /// sections are new or gone.
    fn sections_that_decide(&self, read: &Self) -> Vec<String> {
        if !self.host.only_listed {
            return Vec::new();
        }
        let (before, now) = (self.plugins_with_sections(), read.plugins_with_sections());
        let changed = before.symmetric_difference(&now);
        changed.map(|name| format!("plugin.{name}")).collect()
    }

    /// The same host with what the other says of plugins.
    fn with_settings_of(&self, read: Self) -> Self {
        Self {
            retrieval: read.retrieval,
            batches: read.batches,
            checkpoints: read.checkpoints,
            retry: read.retry,
            failure: read.failure,
            ceilings: read.ceilings,
            secrets: read.secrets,
            rollout: read.rollout,
            sections: read.sections,
            written: read.written,
            ..self.clone()
        }
    }
}

/// Whether a key is one of those. Which components are loaded is decided by the folder, which was
/// made for that when the host started.
fn is_of_plugins(key: &str) -> bool {
    let mut parts = key.split('.');
    let section = parts.next().unwrap_or(key);
    let is_integrity = section == "plugin" && parts.nth(1) == Some("integrity");
    OF_PLUGINS.contains(&section) && !is_integrity
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "stream = \"orders\"\n[batch]\nrecords = 100\n[host]\ndrain-limit = \"20s\"\n\
        [plugin.orders.config]\nlimit = \"5\"\n[sinks.out]\ntype = \"stdout\"\n";

    /// What becomes of a host that was started with [`FILE`] and is to read `text`.
    fn reloaded(text: &str) -> Result<Reload, ConfigError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shardmill.toml");
        std::fs::write(&path, FILE).unwrap();
        let config = Config::load(&path).unwrap();
        std::fs::write(&path, text).unwrap();
        config.reload(&path)
    }

    #[test]
    fn what_plugins_are_served_with_is_taken_over_and_named() {
        let text = FILE.replace("100", "50").replace("\"5\"", "\"6\"");
        let Reload::Changed { config, keys } = reloaded(&text).unwrap() else {
            panic!("not taken over");
        };
        assert_eq!(keys, ["batch.records", "plugin.orders.config.limit"]);
        assert_eq!(config.batches.records, 50);
        let name = shardmill_core::plugin::PluginName::new("orders").unwrap();
        let plugin = config.of_plugin(&name, None).unwrap();
        assert_eq!(plugin.config["limit"], "6");
        assert_eq!(plugin.batches.records, 50);
    }

    #[test]
    fn a_comment_changes_nothing_and_a_section_that_is_gone_counts() {
        let commented = format!("# why\n{FILE}\n");
        assert!(matches!(reloaded(&commented), Ok(Reload::Unchanged)));
        let without = FILE.replace("[plugin.orders.config]\nlimit = \"5\"\n", "");
        let Ok(Reload::Changed { keys, .. }) = reloaded(&without) else {
            panic!("not taken over");
        };
        assert_eq!(keys, ["plugin.orders.config.limit"]);
    }

    #[test]
    fn what_belongs_to_the_process_is_named_and_then_nothing_is_taken_over() {
        for (from, to, key) in [
            ("\"20s\"", "\"30s\"", "host.drain-limit"),
            ("\"orders\"\n[batch]", "\"other\"\n[batch]", "stream"),
            (
                "type = \"stdout\"",
                "type = \"stdout\"\nformat = \"envelope\"",
                "sinks.out.format",
            ),
            (
                "[sinks.out]",
                "[plugin.orders.integrity]\nallowed-digests = [\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"]\n[sinks.out]",
                "plugin.orders.integrity.allowed-digests",
            ),
            (
                "[host]",
                "[aws]\nregion = \"eu-west-1\"\n[host]",
                "aws.region",
            ),
        ] {
            let text = FILE.replace(from, to).replace("100", "50");
            match reloaded(&text).unwrap() {
                Reload::NeedsRestart { keys } => assert_eq!(keys, [key]),
                other => panic!("{key}: {other:?}"),
            }
        }
    }

    #[test]
    fn the_plugins_that_may_be_loaded_at_all_are_those_of_the_start() {
        let listed = FILE.replace("[host]", "[host]\nonly-listed = true");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shardmill.toml");
        std::fs::write(&path, &listed).unwrap();
        let config = Config::load(&path).unwrap();
        std::fs::write(&path, format!("{listed}[plugin.refunds]\n")).unwrap();
        let Reload::NeedsRestart { keys } = config.reload(&path).unwrap() else {
            panic!("taken over");
        };
        assert!(keys.contains(&"plugin.refunds".to_owned()), "{keys:?}");
    }

    #[test]
    fn a_file_with_mistakes_is_refused_with_its_lines() {
        let told = reloaded(&FILE.replace("100", "\"many\"")).unwrap_err();
        assert!(told.to_string().contains("line 3"), "{told}");
    }
}
