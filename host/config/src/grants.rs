//! The section `[grants]` of a plugin: its permissions. And `[ceilings.grants]`: which of them a
//! manifest may ask for. Everything is denied by default.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use shardmill_core::pipeline::Order;
use shardmill_core::plugin::{HttpHost, Permissions, PluginName, SecretSource};
use shardmill_sinks::{HeaderSource, SinkOptions};

use super::problem::{At, Problem};
use super::secrets::is_of_aws;
use super::settings::SecretConfig;

/// Most hosts that a plugin is granted one by one; for more there are patterns.
const HOSTS_MAX: usize = 256;

/// The host's secrets, by name.
type Secrets = BTreeMap<String, SecretConfig>;

/// The section `[grants]` of a plugin or a manifest.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct GrantsFile {
    http: Option<Vec<String>>,
    env: Option<Vec<String>>,
    secrets: Option<Vec<String>>,
    state: Option<bool>,
}

/// The permissions that a manifest may ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PermissionCeilings {
    /// Hosts that cover those it may ask for.
    pub(crate) http: Vec<HttpHost>,
    /// Environment variables that it may ask for.
    pub(crate) env: BTreeSet<String>,
    /// Whether it may ask for state.
    pub(crate) state: bool,
}

/// The section `[ceilings.grants]`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct GrantCeilingsFile {
    #[serde(default)]
    http: Vec<String>,
    #[serde(default)]
    env: Vec<String>,
    state: Option<bool>,
}

impl GrantCeilingsFile {
    /// Problems are named by key, without the section.
    pub(super) fn check(&self) -> Result<PermissionCeilings, Problem> {
        Ok(PermissionCeilings {
            http: hosts(&self.http)?,
            env: variables(&self.env)?,
            state: self.state.unwrap_or(true),
        })
    }
}

impl GrantsFile {
    /// These keys, and those of `under` that are not set here.
    pub(super) fn laid_over(self, under: Self) -> Self {
        Self {
            http: self.http.or(under.http),
            env: self.env.or(under.env),
            secrets: self.secrets.or(under.secrets),
            state: self.state.or(under.state),
        }
    }

    /// The same, asking only for what every host answers alike: for state, and for variables that
    /// no host gives.
    pub(super) fn answered_alike(&self) -> Self {
        let refused = |name: &&String| is_of_aws(name);
        let env = self.env.as_ref();
        Self {
            env: env.map(|names| names.iter().filter(refused).cloned().collect()),
            state: self.state,
            ..Self::default()
        }
    }

    /// What is asked for, one item a line; for people.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (kind, items) in [
            ("http", &self.http),
            ("env", &self.env),
            ("secret", &self.secrets),
        ] {
            lines.extend(items.iter().flatten().map(|item| format!("{kind} {item}")));
        }
        if self.asks_for_state() {
            lines.push("state".to_owned());
        }
        lines
    }

    /// What is granted. Problems are named by key, without the section.
    pub(super) fn check(
        &self,
        order: Order,
        keepers: &Keepers<'_>,
    ) -> Result<Permissions, Problem> {
        let env = variables(self.env.as_deref().unwrap_or_default())?;
        for variable in &env {
            if let Some(whose) = keepers.holder_of(variable) {
                let message = format!(
                    "{variable:?} is the variable of {whose}, which the environment would expose: \
                        grant it as a secret"
                );
                return Err(Problem::new("env", message));
            }
        }
        if self.asks_for_state() && order == Order::Key {
            let message = "cannot be kept with failure.order = \"key\": later records would be \
                counted before earlier ones that wait, so set failure.order = \"shard\"";
            return Err(Problem::new("state", message));
        }
        Ok(Permissions {
            http: hosts(self.http.as_deref().unwrap_or_default())?,
            env,
            secrets: self.secrets(keepers.secrets)?,
            state: self.asks_for_state(),
        })
    }

    fn asks_for_state(&self) -> bool {
        self.state.unwrap_or_default()
    }

    fn secrets(&self, all: &Secrets) -> Result<BTreeMap<String, SecretSource>, Problem> {
        let mut found = BTreeMap::new();
        for name in self.secrets.iter().flatten() {
            let Some(secret) = all.get(name) else {
                let message = format!(
                    "no secret is named {name:?}: add [secrets.{name}] to the host's configuration"
                );
                return Err(Problem::new("secrets", message));
            };
            found.insert(name.clone(), secret.source.clone());
        }
        Ok(found)
    }

    /// Refuses what a manifest may not ask for, unless the operator's `section` sets that key.
    pub(super) fn refuse_beyond(
        &self,
        section: &Self,
        plugin: &PluginName,
        ceilings: &PermissionCeilings,
        secrets: &Secrets,
    ) -> Result<(), Problem> {
        if section.http.is_none() {
            self.refuse_hosts_beyond(ceilings)?;
        }
        if section.env.is_none() {
            self.refuse_variables_beyond(ceilings)?;
        }
        if section.secrets.is_none() {
            self.refuse_secrets_of_others(plugin, secrets)?;
        }
        if section.state.is_none() && self.asks_for_state() && !ceilings.state {
            let fix = "set state = true under [ceilings.grants]";
            return Err(beyond("state", "state", fix));
        }
        Ok(())
    }

    fn refuse_hosts_beyond(&self, ceilings: &PermissionCeilings) -> Result<(), Problem> {
        let texts = self.http.as_deref().unwrap_or_default();
        for (text, host) in texts.iter().zip(hosts(texts)?) {
            if !ceilings.http.iter().any(|ceiling| ceiling.covers(&host)) {
                let fix = "add it to http under [ceilings.grants]";
                return Err(beyond("http", &format!("{text:?}"), fix));
            }
        }
        Ok(())
    }

    fn refuse_variables_beyond(&self, ceilings: &PermissionCeilings) -> Result<(), Problem> {
        for name in self.env.iter().flatten() {
            if !ceilings.env.contains(name) && !is_of_aws(name) {
                let fix = "add it to env under [ceilings.grants]";
                return Err(beyond("env", &format!("{name:?}"), fix));
            }
        }
        Ok(())
    }

    fn refuse_secrets_of_others(
        &self,
        plugin: &PluginName,
        secrets: &Secrets,
    ) -> Result<(), Problem> {
        let plugin = plugin.as_str();
        for name in self.secrets.iter().flatten() {
            let secret = secrets.get(name);
            if secret.is_some_and(|secret| !secret.plugins.contains(plugin)) {
                let fix = format!("add {plugin:?} to plugins under [secrets.{name}]");
                return Err(beyond("secrets", &format!("{name:?}"), &fix));
            }
        }
        Ok(())
    }
}

/// Says what is too much, and names both places where the operator may allow it.
fn beyond(key: &str, what: &str, fix: &str) -> Problem {
    let message = format!(
        "{what} is more than this host allows a manifest: {fix}, or set it in the host's section \
            of the plugin"
    );
    Problem::new(key, message)
}

fn hosts(entries: &[String]) -> Result<Vec<HttpHost>, Problem> {
    if entries.len() > HOSTS_MAX {
        return Err(Problem::new(
            "http",
            format!("must be at most {HOSTS_MAX}: use a pattern such as \"*.example.org\""),
        ));
    }
    entries
        .iter()
        .map(|entry| HttpHost::parse(entry).at("http"))
        .collect()
}

fn variables(names: &[String]) -> Result<BTreeSet<String>, Problem> {
    for name in names {
        if name.is_empty() || name.contains(['=', '\0']) {
            return Err(Problem::new(
                "env",
                format!("{name:?} is not a valid name of an environment variable"),
            ));
        }
        if is_of_aws(name) {
            let message = format!(
                "{name:?} holds the host's own AWS credentials, which no plugin may use; remove it"
            );
            return Err(Problem::new("env", message));
        }
    }
    Ok(names.iter().cloned().collect())
}

/// What of a host may keep a secret in a variable.
pub(super) struct Keepers<'a> {
    pub(super) secrets: &'a Secrets,
    pub(super) sinks: &'a BTreeMap<String, SinkOptions>,
    /// What is sent with traces.
    pub(super) traces: &'a BTreeMap<String, HeaderSource>,
}

impl Keepers<'_> {
    /// Whose value is in `variable`, if somebody's is.
    fn holder_of(&self, variable: &str) -> Option<String> {
        for (name, secret) in self.secrets {
            if matches!(&secret.source, SecretSource::Variable(held) if held == variable) {
                return Some(format!("the secret {name}"));
            }
        }
        for (name, sink) in self.sinks {
            if let SinkOptions::Http(options) = sink
                && is_in(&options.headers, variable)
            {
                return Some(format!("the sink {name}"));
            }
        }
        is_in(self.traces, variable).then(|| "the section [traces]".to_owned())
    }
}

/// Whether the value of a header is in `variable`.
fn is_in(headers: &BTreeMap<String, HeaderSource>, variable: &str) -> bool {
    let mut headers = headers.values();
    headers.any(|header| header.variable() == Some(variable))
}

#[cfg(test)]
mod tests;
