//! Finds all problems with the plugins in the folder, before a host starts.

use std::collections::{BTreeMap, BTreeSet};

use shardmill_core::plugin::PluginName;
use shardmill_core::stream::{InitialPosition, Utc};

use super::config::Config;
use super::gather::LeftOut;
use super::manifest::Manifest;
use super::rest::Rest;
use super::settings::{PluginConfig, shared_applications};
use crate::files;

/// What `run --check` reports beyond the file itself.
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
    /// Checks the folder of plugins, the environment and the files of secrets, without loading a
    /// plugin or opening a connection. `now` is the wall time.
    pub fn check_around(&self, now: Utc) -> Checked {
        self.check_without(&LeftOut::default(), now)
    }

    fn check_without(&self, left_out: &LeftOut, now: Utc) -> Checked {
        let mut checked = Checked {
            problems: self.problems_of_files_and_variables(),
            warnings: Vec::new(),
        };
        if left_out.has("plugins") {
            // It is not known where the folder is.
            return checked;
        }
        // A host with sources makes the folder itself.
        let is_made = !self.sources.is_empty() && !self.plugins.exists();
        if self.plugins.is_dir() || is_made {
            self.check_plugins(left_out, now, &mut checked);
        } else {
            checked.problems.push(self.no_plugins_folder());
        }
        checked
    }

    /// What to do if the folder of plugins does not exist.
    pub fn no_plugins_folder(&self) -> String {
        let meant = files::folder_beside(&self.plugins)
            .map_or_else(String::new, |meant| format!("; did you mean {meant}?"));
        format!(
            "there is no plugins folder {}: create it, or set `plugins`{meant}",
            self.plugins.display()
        )
    }

    fn check_plugins(&self, left_out: &LeftOut, now: Utc, checked: &mut Checked) {
        checked.warnings.extend(self.unheeded_files());
        let components = self.components();
        self.warn_of_unused_sections(&components, checked);
        let mut plugins = BTreeMap::new();
        // Editors and copy tools first write to names that begin with a dot.
        for name in components.iter().filter(|name| !name.starts_with('.')) {
            match self.check_plugin_file(left_out, name) {
                Ok(Some(plugin)) => {
                    check_positions(name, &plugin, now, checked);
                    plugins.insert(name.clone(), plugin);
                }
                Ok(None) => {}
                Err(problem) => checked.problems.push(problem),
            }
        }
        if !left_out.has("application") {
            let shared = shared_applications(&plugins).into_iter();
            checked.problems.extend(shared.map(|one| one.message));
        }
    }

    /// Sections of plugins that are neither in the folder nor pulled.
    fn warn_of_unused_sections(&self, components: &BTreeSet<String>, checked: &mut Checked) {
        for name in self.sections.by_plugin.keys() {
            let mut sources = self.sources.iter();
            let is_pulled = sources.any(|source| source.plugin.as_str() == name);
            if !components.contains(name) && !is_pulled {
                checked.warnings.push(format!(
                    "[plugin.{name}] is set, but there is no {name}.wasm in the plugins folder"
                ));
            }
        }
    }

    /// The settings of the component of that name, if there are any.
    fn check_plugin_file(
        &self,
        left_out: &LeftOut,
        name: &str,
    ) -> Result<Option<PluginConfig>, String> {
        let name = PluginName::of_file(name)
            .map_err(|error| format!("a component is not loaded: {error}"))?;
        if let Some(plugin) = name.shadowed() {
            return self.check_shadow_file(&plugin).map(|()| None);
        }
        let manifest = Manifest::read(&Manifest::path_in(&self.plugins, &name))
            .map_err(|error| error.to_string())?;
        self.of_plugin_without(left_out, &name, manifest.as_ref())
    }

    /// A version in the shadow has the settings of its plugin, which are checked there.
    fn check_shadow_file(&self, plugin: &PluginName) -> Result<(), String> {
        if self.components().contains(plugin.as_str()) {
            return Ok(());
        }
        Err(format!(
            "{shadow}.wasm runs in the shadow of {plugin}, and there is no {plugin}.wasm: name the \
                file {plugin}.wasm to run it",
            shadow = plugin.shadow()
        ))
    }

    /// Files that look like components only to people.
    fn unheeded_files(&self) -> Vec<String> {
        let mut unheeded = Vec::new();
        for path in self.files_in_folder() {
            let extension = path.extension().unwrap_or_default();
            if path.to_string_lossy().ends_with(".shadow.toml") {
                unheeded.push(format!(
                    "{} is not read: a version in the shadow has the settings of its plugin",
                    path.display()
                ));
            }
            if extension != "wasm" && extension.eq_ignore_ascii_case("wasm") {
                unheeded.push(format!(
                    "{} is not loaded: a component's name ends in .wasm",
                    path.display()
                ));
            }
        }
        unheeded
    }
}

/// Warns of positions in the future: nothing is read until then, and it may be a slip in the year.
fn check_positions(name: &str, plugin: &PluginConfig, now: Utc, checked: &mut Checked) {
    for stream in &plugin.streams {
        if let InitialPosition::AtTimestamp(ms) = stream.initial_position
            && ms > now.0
        {
            checked.warnings.push(format!(
                "plugin {name}: initial-position of {} is in the future, {}: records that arrive \
                    before it are not read",
                stream.stream,
                Utc(ms)
            ));
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
    fn two_plugins_with_one_application_are_reported_before_the_faster_one_gets_it() {
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
    fn a_component_that_cannot_have_its_name_is_reported_and_one_of_anothers_application_too() {
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
    fn a_file_that_only_looks_like_a_component_is_named() {
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
        assert!(told.problems[0].contains("secrets.api: the file "));
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
    fn what_a_host_would_stumble_over_is_reported_all_at_once() {
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
            "secrets.api: the file ",
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
