//! The key `plugins`, which may name sources besides a folder, and the section `[pull]`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};
use shardmill_core::artifact::{ArtifactRef, is_loopback};
use shardmill_core::plugin::{PluginName, SecretSource};
use shardmill_sources::Login;

use super::duration;
use super::floor;
use super::problem::{At, Problem};
use super::section;
use super::settings::{PullConfig, SourceConfig};
use super::sinks::check_url;

/// The folder of plugins, unless the file names another.
const DEFAULT_FOLDER: &str = "plugins";
/// Soon enough for a deploy by a tag, and some thousand cheap requests a day.
const EVERY_DEFAULT: Duration = Duration::from_mins(1);
/// A component of the largest size over a slow link.
const TIMEOUT_DEFAULT: Duration = Duration::from_mins(1);

/// The folder, or a list with at most one folder in it, and sources.
#[derive(Debug)]
pub(super) struct PluginsFile(Vec<String>);

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct PullFile {
    #[serde(default, deserialize_with = "duration::optional")]
    every: Option<Duration>,
    #[serde(default, deserialize_with = "duration::optional")]
    timeout: Option<Duration>,
    #[serde(default)]
    insecure: BTreeSet<String>,
    s3_endpoint: Option<String>,
    #[serde(default, deserialize_with = "section::by_name")]
    registries: BTreeMap<String, RegistryFile>,
}

/// `[pull.registries.HOST]`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct RegistryFile {
    user: String,
    file: Option<PathBuf>,
    env: Option<String>,
}

/// What `plugins` names.
#[derive(Debug)]
pub(super) struct Named {
    pub(super) folder: PathBuf,
    pub(super) sources: Vec<SourceConfig>,
}

impl Default for PluginsFile {
    fn default() -> Self {
        Self(vec![DEFAULT_FOLDER.to_owned()])
    }
}

impl<'de> Deserialize<'de> for PluginsFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PluginsVisitor)
    }
}

struct PluginsVisitor;

impl<'de> Visitor<'de> for PluginsVisitor {
    type Value = PluginsFile;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a folder, or a list of sources")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<PluginsFile, E> {
        Ok(PluginsFile(vec![text.to_owned()]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<PluginsFile, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = list.next_element()? {
            entries.push(entry);
        }
        Ok(PluginsFile(entries))
    }
}

impl PluginsFile {
    /// Relative paths are relative to `folder`. There may be `sources_max` sources.
    pub(super) fn check(
        self,
        folder: &Path,
        pull: &PullConfig,
        sources_max: usize,
    ) -> Result<Named, Problem> {
        self.named(folder, pull, sources_max).at("plugins")
    }

    fn named(self, folder: &Path, pull: &PullConfig, sources_max: usize) -> Result<Named, String> {
        let (sources, folders): (Vec<String>, Vec<String>) =
            self.0.into_iter().partition(|entry| is_source(entry));
        if let [one, another, ..] = folders.as_slice() {
            return Err(format!(
                "names two folders, {one:?} and {another:?}: leave one, and write sources such as \
                    \"oci://registry.example.org/team/alerts:1.4\""
            ));
        }
        let own = folders.first().map_or(DEFAULT_FOLDER, String::as_str);
        let named = by_plugin(&sources, pull)?;
        if named.len() > sources_max {
            return Err(format!(
                "names {} sources, and host.plugins-max is {sources_max}: leave some out, or raise it",
                named.len()
            ));
        }
        Ok(Named {
            folder: folder.join(own),
            sources: named.into_values().collect(),
        })
    }
}

/// Whether an entry is meant as a source, right or wrong, and not as a folder.
fn is_source(entry: &str) -> bool {
    ArtifactRef::is_meant(entry)
}

/// The sources, each under the one plugin that it is for.
fn by_plugin(
    entries: &[String],
    pull: &PullConfig,
) -> Result<BTreeMap<PluginName, SourceConfig>, String> {
    let mut named: BTreeMap<PluginName, SourceConfig> = BTreeMap::new();
    for entry in entries {
        let source = source(entry, pull)?;
        let plugin = source.plugin.clone();
        if let Some(other) = named.insert(plugin.clone(), source) {
            return Err(format!(
                "has two sources for the plugin {plugin}, {} and {entry}: give one another name, \
                    such as \"{plugin}-2={entry}\"",
                other.reference
            ));
        }
    }
    Ok(named)
}

/// `REFERENCE`, or `NAME=REFERENCE`.
fn source(entry: &str, pull: &PullConfig) -> Result<SourceConfig, String> {
    let named = entry.split_once('=');
    let named = named.filter(|(name, _)| !ArtifactRef::is_meant(name));
    let (name, text) = match named {
        Some((name, text)) => (Some(name), text),
        None => (None, entry),
    };
    let reference =
        ArtifactRef::parse(text).map_err(|fault| format!("{:?} {fault}", without_secrets(text)))?;
    let plugin = match name {
        Some(name) => PluginName::new(name).map_err(|error| error.to_string())?,
        None => reference.plugin().map_err(|error| {
            format!("{error}; or write the plugin's name before it, as in \"alerts={reference}\"")
        })?,
    };
    if reference.is_plain_http()
        && let Some(host) = reference.host()
        && !is_loopback(host)
        && !pull.insecure.contains(host)
    {
        return Err(format!(
            "{reference} would be fetched without encryption: use https, or list {host:?} under \
                pull.insecure"
        ));
    }
    Ok(SourceConfig { plugin, reference })
}

/// What may be shown of a text that is no reference: nothing before an @, nothing after a question
/// mark.
fn without_secrets(text: &str) -> &str {
    let text = text.split('?').next().unwrap_or(text);
    if text.contains("@sha256:") {
        return text;
    }
    text.rsplit('@').next().unwrap_or(text)
}

impl PullFile {
    /// Relative paths are relative to `folder`.
    pub(super) fn check(self, folder: &Path) -> Result<PullConfig, Problem> {
        if let Some(endpoint) = &self.s3_endpoint {
            check_url(endpoint).at("pull.s3-endpoint")?;
        }
        for host in &self.insecure {
            check_host(host).at("pull.insecure")?;
        }
        let timeout = self.timeout.unwrap_or(TIMEOUT_DEFAULT);
        if timeout.is_zero() {
            return Err(Problem::new("pull.timeout", "must be above zero"));
        }
        let mut logins = BTreeMap::new();
        for (host, registry) in self.registries {
            let login = registry.check(&host, folder)?;
            logins.insert(host, login);
        }
        Ok(PullConfig {
            every: floor::PULL_EVERY.check(self.every, EVERY_DEFAULT)?,
            timeout,
            insecure: self.insecure,
            s3_endpoint: self.s3_endpoint,
            logins,
        })
    }
}

impl RegistryFile {
    fn check(self, host: &str, folder: &Path) -> Result<Login, Problem> {
        let key = format!("pull.registries.{host}");
        check_host(host).at(&key)?;
        let password = match (self.file, self.env) {
            (Some(file), None) => SecretSource::File(folder.join(file)),
            (None, Some(name)) if !name.is_empty() => SecretSource::Variable(name),
            _ => {
                let message = "say either file or env, where the password is kept";
                return Err(Problem::new(key, message));
            }
        };
        Ok(Login {
            user: self.user,
            password,
        })
    }
}

/// A host as references name it, with its port.
fn check_host(host: &str) -> Result<(), String> {
    let probe = format!("oci://{host}/a:1");
    let parsed = ArtifactRef::parse(&probe);
    if parsed.is_ok_and(|reference| reference.host() == Some(host)) {
        return Ok(());
    }
    Err(format!(
        "{host:?} is no host such as \"registry.example.org\" or \"registry.internal:5000\""
    ))
}

#[cfg(test)]
mod tests {
    use crate::Config;
    use std::path::Path;

    fn parse(text: &str) -> Result<Config, String> {
        Config::parse(&format!("stream = \"s\"\n{text}"), Path::new("/etc/mill"))
    }

    fn sources(text: &str) -> Vec<(String, String)> {
        let config = parse(text).unwrap();
        let sources = config.sources.iter();
        sources
            .map(|source| (source.plugin.to_string(), source.reference.as_text()))
            .collect()
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        let owned = pairs.iter();
        owned
            .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
            .collect()
    }

    #[test]
    fn plugins_are_a_folder_or_sources_whose_files_go_into_one() {
        for (text, folder) in [
            ("", "/etc/mill/plugins"),
            ("plugins = \"own\"", "/etc/mill/own"),
            ("plugins = []", "/etc/mill/plugins"),
            ("plugins = [\"/var/own\"]", "/var/own"),
            (
                "plugins = [\"oci://r.example/alerts:1\", \"own\"]",
                "/etc/mill/own",
            ),
        ] {
            assert_eq!(parse(text).unwrap().plugins, Path::new(folder), "{text}");
        }
        assert_eq!(sources("plugins = \"own\""), []);
        assert_eq!(
            sources(
                "plugins = [\"oci://r.example/team/alerts:1\", \"orders=https://x.org/b.wasm?a=b\"]"
            ),
            pairs(&[
                ("alerts", "oci://r.example/team/alerts:1"),
                ("orders", "https://x.org/b.wasm?a=b")
            ])
        );
        assert_eq!(
            sources("plugins = \"s3://bucket/alerts.wasm\""),
            pairs(&[("alerts", "s3://bucket/alerts.wasm")])
        );
        assert_eq!(
            sources(
                "plugins = [\"http://r.internal/a/alerts.wasm\"]\n[pull]\ninsecure = [\"r.internal\"]"
            ),
            pairs(&[("alerts", "http://r.internal/a/alerts.wasm")])
        );
    }

    #[test]
    fn a_source_that_cannot_work_is_refused_with_what_would() {
        for (text, expected) in [
            ("plugins = [\"a\", \"b\"]", "two folders, \"a\" and \"b\""),
            ("plugins = [\"oci://r.example/alerts\"]", "names no version"),
            ("plugins = [\"ftp://x/a.wasm\"]", "begins with none of"),
            (
                "plugins = [\"oci://r.example/alerts:1\", \"https://x.org/alerts.wasm\"]",
                "\"alerts-2=https://x.org/alerts.wasm\"",
            ),
            (
                "plugins = [\"oci://r.example/ab:1\"]",
                "\"alerts=oci://r.example/ab:1\"",
            ),
            (
                "plugins = [\"a b=oci://r.example/alerts:1\"]",
                "\"a b\" cannot name a plugin",
            ),
            ("plugins = [\"http://x.org/alerts.wasm\"]", "pull.insecure"),
            (
                "plugins = [\"https://me:hush@x.org/alerts.wasm\"]",
                "must not contain a user",
            ),
            ("plugins = [1]", "expected a string"),
            ("plugins = 5", "expected a folder, or a list of sources"),
            ("[pull]\nevery = \"1ms\"", "pull.every: must be at least 1s"),
            (
                "[pull]\ntimeout = \"0s\"",
                "pull.timeout: must be above zero",
            ),
            ("[pull]\ninsecure = [\"http://r\"]", "is no host such as"),
            (
                "[pull]\ns3-endpoint = \"here\"",
                "pull.s3-endpoint: not a URL",
            ),
            (
                "[pull.registries.\"r.example\"]\nuser = \"a\"",
                "say either file or env",
            ),
            (
                "[pull.registries.\"r.example\"]\nuser = \"a\"\npassword = \"hush\"",
                "unknown field `password`",
            ),
        ] {
            let told = parse(text).unwrap_err();
            assert!(told.contains(expected), "{text}: {told}");
            assert!(!told.contains("hush"), "{told}");
        }
        let many: Vec<String> = (0..3)
            .map(|n| format!("\"oci://r.example/plugin-{n}:1\""))
            .collect();
        let text = format!("plugins = [{}]\n[host]\nplugins-max = 2", many.join(","));
        assert!(parse(&text).unwrap_err().contains("host.plugins-max is 2"));
    }

    #[test]
    fn a_plugin_with_a_source_is_one_that_the_operator_named() {
        let text = "plugins = [\"oci://r.example/alerts:1\"]\n[host]\nonly-listed = true";
        let config = parse(text).unwrap();
        let name = shardmill_core::plugin::PluginName::new("alerts").unwrap();
        assert!(config.of_plugin(&name, None).is_ok());
        assert!(config.plugins_with_sections().contains(&name));
    }
}
