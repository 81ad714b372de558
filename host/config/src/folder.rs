//! What is wrong with the plugins as they lie in the folder, and with what the configuration names
//! outside of itself: told before a host starts, all at once.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use shardmill_core::plugin::{PluginName, SecretSource};
use shardmill_core::stream::{InitialPosition, Utc};
use shardmill_sinks::SinkOptions;

use super::gather::LeftOut;
use super::manifest::Manifest;
use super::rest::Rest;
use super::settings::{Config, PluginConfig, shared_applications};
use crate::files;

/// What `run --check` tells beyond the file itself.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// A host, or a plugin, would not start.
    pub problems: Vec<String>,
    /// Probably not what was meant.
    pub warnings: Vec<String>,
}

impl Rest {
    /// As [`Config::check_around`], without what may follow from the mistakes.
    pub fn check_around(&self, now: Utc) -> Checked {
        self.config.check_without(&self.left_out, now)
    }
}

impl Config {
    /// Looks at the folder of plugins, the environment and the files of secrets. Nothing is loaded,
    /// nobody is asked. `now` is what time people say that it is.
    pub fn check_around(&self, now: Utc) -> Checked {
        self.check_without(&LeftOut::default(), now)
    }

    fn check_without(&self, left_out: &LeftOut, now: Utc) -> Checked {
        let mut checked = Checked::default();
        self.check_environment(&mut checked);
        if left_out.has("plugins") {
            // Nobody knows where the folder is.
            return checked;
        }
        if self.plugins.is_dir() {
            self.check_plugins(left_out, now, &mut checked);
        } else {
            checked.problems.push(self.no_plugins_folder());
        }
        checked
    }

    /// What to do where the folder of plugins is not there.
    pub fn no_plugins_folder(&self) -> String {
        let meant = files::folder_beside(&self.plugins)
            .map_or_else(String::new, |meant| format!("; did you mean {meant}?"));
        format!(
            "there is no plugins folder {}: create it, or set `plugins`{meant}",
            self.plugins.display()
        )
    }

    /// The settings of the plugins whose components lie in the folder. What cannot be read is left
    /// to others to tell.
    pub fn plugins_to_serve(&self) -> Vec<PluginConfig> {
        let components = self.components();
        let settings = components.iter().filter_map(|name| {
            let name = PluginName::new(name).ok()?;
            let manifest = Manifest::read(&Manifest::path_in(&self.plugins, &name)).ok()?;
            self.of_plugin(&name, manifest.as_ref()).ok()
        });
        settings.collect()
    }

    /// The settings of each plugin that lies in the folder, is configured here or has a manifest
    /// there, by name. Names that no plugin can have are left to others to tell.
    ///
    /// # Errors
    /// The settings of one cannot be used.
    pub fn all_plugins(&self) -> Result<BTreeMap<String, PluginConfig>, String> {
        let mut plugins = self.settings_of_plugins()?;
        let components = self.components().into_iter();
        for name in components.filter_map(|name| PluginName::new(&name).ok()) {
            if !plugins.contains_key(name.as_str()) {
                // Without a manifest: those have their settings already.
                let plugin = self.of_plugin(&name, None)?;
                plugins.insert(name.as_str().to_owned(), plugin);
            }
        }
        Ok(plugins)
    }

    /// The names of the components in the folder, whether they can name plugins or not.
    pub(super) fn components(&self) -> BTreeSet<String> {
        self.names_in_folder("wasm")
    }

    fn check_plugins(&self, left_out: &LeftOut, now: Utc, checked: &mut Checked) {
        checked.warnings.extend(self.unheeded_files());
        let components = self.components();
        for name in self
            .plugin
            .keys()
            .filter(|name| !components.contains(*name))
        {
            let warning = format!(
                "[plugin.{name}] is set, but there is no {name}.wasm in the plugins folder"
            );
            checked.warnings.push(warning);
        }
        let mut settings = BTreeMap::new();
        // Under dot names editors and copy tools write first.
        for name in components.iter().filter(|name| !name.starts_with('.')) {
            let name = match PluginName::new(name) {
                Ok(name) => name,
                Err(error) => {
                    checked
                        .problems
                        .push(format!("a component is not loaded: {error}"));
                    continue;
                }
            };
            let manifest = Manifest::read(&Manifest::path_in(&self.plugins, &name))
                .map_err(|error| error.to_string());
            let own = manifest
                .and_then(|manifest| self.of_plugin_without(left_out, &name, manifest.as_ref()));
            match own {
                Ok(Some(own)) => {
                    check_positions(&name, &own, now, checked);
                    settings.insert(name.to_string(), own);
                }
                Ok(None) => {}
                Err(problem) => checked.problems.push(problem),
            }
        }
        if left_out.has("application") {
            return;
        }
        let shared = shared_applications(&settings);
        checked
            .problems
            .extend(shared.into_iter().map(|one| one.told));
    }

    /// Files that look like components to people only.
    fn unheeded_files(&self) -> Vec<String> {
        let files = std::fs::read_dir(&self.plugins)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path());
        let is_almost = |path: &PathBuf| {
            path.extension()
                .is_some_and(|found| found != "wasm" && found.eq_ignore_ascii_case("wasm"))
        };
        let told = |path: PathBuf| {
            format!(
                "{} is not loaded: a component's name ends in .wasm",
                path.display()
            )
        };
        files.filter(is_almost).map(told).collect()
    }

    fn names_in_folder(&self, extension: &str) -> BTreeSet<String> {
        let files = std::fs::read_dir(&self.plugins)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path());
        let matching =
            files.filter(|path| path.extension().is_some_and(|found| found == extension));
        matching
            .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
            .collect()
    }

    fn check_environment(&self, checked: &mut Checked) {
        for (name, sink) in &self.sinks {
            let SinkOptions::Http(options) = sink else {
                continue;
            };
            for header in options.headers.values() {
                let key = format!("sinks.{name}.headers");
                if let Some(variable) = header.variable() {
                    checked.problems.extend(unset(&key, variable));
                }
                if let Some(path) = header.file() {
                    checked.problems.extend(unreadable(&key, path));
                }
            }
        }
        let token = self
            .host
            .admin_token
            .iter()
            .map(|source| ("host.admin-token".to_owned(), source));
        let secrets = self
            .secrets
            .iter()
            .map(|(name, secret)| (format!("secrets.{name}"), &secret.source));
        for (key, source) in secrets.chain(token) {
            checked.problems.extend(match source {
                SecretSource::Variable(name) => unset(&key, name),
                SecretSource::File(path) => unreadable(&key, path),
            });
        }
    }
}

fn unset(key: &str, variable: &str) -> Option<String> {
    let is_set = std::env::var_os(variable).is_some();
    (!is_set).then(|| format!("{key}: the variable {variable} is not set"))
}

fn unreadable(key: &str, path: &Path) -> Option<String> {
    let error = files::open(path).err()?;
    Some(format!("{key}: cannot read {}: {error}", path.display()))
}

/// From a time to come nothing is read until then, and it may be a slip in the year.
fn check_positions(name: &PluginName, plugin: &PluginConfig, now: Utc, checked: &mut Checked) {
    for stream in &plugin.streams {
        match stream.initial_position {
            InitialPosition::AtTimestamp(ms) if ms > now.0 => checked.warnings.push(format!(
                "plugin {name}: initial-position of {} is in the future, {}: records that arrive \
                    before it are not read",
                stream.stream,
                Utc(ms)
            )),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Utc = Utc(1_800_000_000_000);

    fn checked(text: &str, files: &[(&str, &str)]) -> Checked {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("plugins")).unwrap();
        for (name, content) in files {
            std::fs::write(folder.path().join("plugins").join(name), content).unwrap();
        }
        Config::parse(&format!("stream = \"s\"\n{text}"), folder.path())
            .unwrap()
            .check_around(NOW)
    }

    #[test]
    fn two_plugins_with_one_application_are_told_before_the_faster_one_gets_it() {
        let allows = "[ceilings]\napplications = [\"shared\"]\n";
        let shared = "application = \"shared\"";
        let files = [
            ("aaa.wasm", ""),
            ("aaa.toml", shared),
            ("bbb.wasm", ""),
            ("bbb.toml", shared),
        ];
        let told = checked(allows, &files);
        assert_eq!(told.problems.len(), 1, "{told:?}");
        assert!(
            told.problems[0].contains("plugins aaa and bbb both have the application shared"),
            "{told:?}"
        );
        let problem = Config::parse(
            "stream = \"s\"\n[plugin.aaa]\napplication = \"one\"\n[plugin.bbb]\napplication = \"one\"\n",
            std::path::Path::new("."),
        );
        assert!(
            problem
                .unwrap_err()
                .contains("both have the application one"),
            "sections need no folder"
        );
    }

    #[test]
    fn a_component_that_cannot_have_its_name_is_told_and_one_of_anothers_application_too() {
        let files = [
            ("totals-state.wasm", ""),
            ("a b.wasm", ""),
            (".being-copied.wasm", ""),
            ("billing.wasm", ""),
        ];
        let told = checked("[plugin.flights]\napplication = \"billing\"\n", &files).problems;
        assert_eq!(told.len(), 3, "{told:?}");
        assert!(
            told[0].contains("\"a b\" cannot name a plugin: use 3 to 100"),
            "{told:?}"
        );
        assert!(
            told[1].contains("configuration names for plugin flights"),
            "{told:?}"
        );
        assert!(
            told[2].contains("\"totals-state\" cannot name a plugin: it ends in \"-state\""),
            "{told:?}"
        );
    }

    #[test]
    fn a_file_that_only_looks_like_a_component_is_told() {
        let told = checked("", &[("AAA.WASM", ""), ("bbb.wasm", ""), ("ccc.toml", "")]).warnings;
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(
            told[0].contains("AAA.WASM is not loaded: a component's name ends in .wasm"),
            "{told:?}"
        );
    }

    /// What is told around a configuration with mistakes.
    fn around(text: &str, files: &[(&str, &str)]) -> Checked {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("plugins")).unwrap();
        for (name, content) in files {
            std::fs::write(folder.path().join("plugins").join(name), content).unwrap();
        }
        let path = folder.path().join("shardmill.toml");
        std::fs::write(&path, text).unwrap();
        let error = Config::load(&path).unwrap_err();
        error.rest().unwrap().check_around(NOW)
    }

    #[test]
    fn mistakes_of_the_file_hide_none_of_manifests_and_secrets() {
        let files = [
            ("aaa.wasm", ""),
            ("aaa.toml", "[batch]\nrecords = 0\nbites = 1\n"),
            ("bbb.wasm", ""),
            ("bbb.toml", "[batch\n"),
        ];
        let text = "stream = \"s\"\n[leases]\nmax = 0\n[secrets.api]\nfile = \"nowhere\"\n[plugin.ghost]\n";
        let told = around(text, &files);
        assert_eq!(told.problems.len(), 3, "{told:?}");
        assert!(told.problems[0].contains("secrets.api: cannot read"));
        let first = &told.problems[1];
        assert!(first.contains("line 2: batch.records"), "{told:?}");
        assert!(first.contains("line 3: batch.bites"), "{told:?}");
        assert!(told.problems[2].contains("bbb.toml: line 1"), "{told:?}");
        assert_eq!(told.warnings.len(), 1, "{told:?}");
    }

    #[test]
    fn what_may_follow_from_a_mistake_of_the_file_is_no_second_one() {
        for (text, manifest) in [
            ("straem = \"s\"\n", ""),
            ("stream = 5\n", ""),
            ("stream = \"s\"\nplugins = 5\n", "[batch]\nrecords = 0\n"),
            ("stream = \"s\"\nplugns = \"x\"\n", "[batch]\nrecords = 0\n"),
            (
                "stream = \"s\"\n[ceilings]\nmemory = \"much\"\n",
                "[limits]\nmemory = \"4GiB\"\n",
            ),
            (
                "stream = \"s\"\n[ceiling]\nstreams = [\"payroll\"]\n",
                "stream = \"payroll\"\n",
            ),
            (
                "stream = \"s\"\n[ceilings]\nstreams = \"payroll\"\n",
                "stream = \"payroll\"\n",
            ),
            (
                "stream = \"s\"\n[sinks.dead]\ntype = \"file\"\n",
                "[failure]\nattempts = 3\non-exhausted = \"dead-letter\"\ndead-letter = \"dead\"\n",
            ),
        ] {
            let told = around(text, &[("aaa.wasm", ""), ("aaa.toml", manifest)]);
            assert_eq!(told, Checked::default(), "{text}{manifest}");
        }
    }

    #[test]
    fn what_a_host_would_stumble_over_is_told_all_at_once() {
        let text = "[plugin.ghost]\n[sinks.out]\ntype = \"http\"\nurl = \"http://localhost:1\"\n\
                    headers = { a = \"env:SHARDMILL_NOT_SET\" }\n[secrets.api]\nfile = \
                    \"nowhere\"\n";
        let told = checked(
            text,
            &[("aaa.wasm", ""), ("aaa.toml", "stream = \"payroll\"")],
        );
        let all = told.problems.join("\n");
        for part in [
            "SHARDMILL_NOT_SET is not set",
            "secrets.api: cannot read",
            "aaa.toml: line 1: stream",
        ] {
            assert!(all.contains(part), "{part}: {all}");
        }
        assert_eq!(told.warnings.len(), 1, "{told:?}");
        assert!(told.warnings[0].contains("no ghost.wasm"), "{told:?}");
        let folder = tempfile::tempdir().unwrap();
        let missing = Config::parse("stream = \"s\"\nplugins = \"nowhere\"", folder.path())
            .unwrap()
            .check_around(NOW);
        assert!(
            missing.problems[0].contains("there is no plugins folder"),
            "{missing:?}"
        );
        assert_eq!(checked("", &[("aaa.wasm", "")]), Checked::default());
        let far = checked(
            "initial-position = \"2999-01-01T00:00:00Z\"\n",
            &[("aaa.wasm", "")],
        );
        assert!(
            far.problems.is_empty() && far.warnings[0].contains("is in the future, 2999-01-01"),
            "{far:?}"
        );
    }
}
