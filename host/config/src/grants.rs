//! The section `[grants]` of a plugin, and `[ceilings.grants]`: what a manifest may ask for.
//! Nothing unless it is said.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Deserializer, de};
use shardmill_core::pipeline::Order;
use shardmill_core::plugin::{HttpHost, Permissions, PluginName, SecretSource};
use shardmill_sinks::SinkOptions;

use super::limits::LimitsFile;
use super::names::NameCeilingsFile;
use super::problem::{At, Problem, Under};
use super::secrets::is_of_aws;
use super::settings::{Config, PermissionCeilings};

/// Most hosts that a plugin is granted one by one; more is a pattern.
const HOSTS_MAX: usize = 256;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct GrantsFile {
    #[serde(default)]
    http: Vec<String>,
    #[serde(default)]
    env: Vec<String>,
    #[serde(default)]
    secrets: Vec<String>,
    #[serde(default)]
    state: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct GrantCeilingsFile {
    #[serde(default)]
    http: Vec<String>,
    #[serde(default)]
    env: Vec<String>,
    state: Option<bool>,
}

/// The section `[ceilings]`: limits, what a manifest may name, and the section `[ceilings.grants]`
/// within.
#[derive(Debug, Default)]
pub(super) struct CeilingsFile {
    pub(super) limits: LimitsFile,
    pub(super) names: NameCeilingsFile, // Keys of `[ceilings]` itself.
    grants: GrantCeilingsFile,
}

impl<'de> Deserialize<'de> for CeilingsFile {
    /// By hand, since unknown keys are refused, which a flattened section would not do.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let readable = |error: toml::de::Error| de::Error::custom(error.message());
        let mut table = toml::Table::deserialize(deserializer)?;
        let grants = table
            .remove("grants")
            .map(toml::Value::try_into)
            .transpose()
            .map_err(readable)?;
        let names: toml::Table = NameCeilingsFile::KEYS
            .iter()
            .filter_map(|key| table.remove_entry(*key))
            .collect();
        let names = names.try_into().map_err(readable)?;
        Ok(Self {
            limits: table.try_into().map_err(readable)?,
            names,
            grants: grants.unwrap_or_default(),
        })
    }
}

impl CeilingsFile {
    /// Problems are named by key, without the section.
    pub(super) fn check_grants(&self) -> Result<PermissionCeilings, Problem> {
        let GrantCeilingsFile { http, env, state } = &self.grants;
        let check = || {
            Ok(PermissionCeilings {
                http: hosts(http)?,
                env: variables(env)?,
                state: state.unwrap_or(true),
            })
        };
        check().under("grants")
    }
}

impl GrantsFile {
    /// What is asked for, an item a line; for people.
    pub(super) fn lines(&self) -> Vec<String> {
        let items = |kind: &str, items: &[String]| {
            items.iter().map(|item| format!("{kind} {item}")).collect()
        };
        let state = if self.state {
            vec!["state".to_owned()]
        } else {
            Vec::new()
        };
        [
            items("http", &self.http),
            items("env", &self.env),
            items("secret", &self.secrets),
            state,
        ]
        .concat()
    }

    /// What is granted. Problems are named by key, without the section.
    pub(super) fn check(self, order: Order, general: &Config) -> Result<Permissions, Problem> {
        let env = variables(&self.env)?;
        if let Some((variable, whose)) = env
            .iter()
            .find_map(|one| Some((one, holder_of(one, general)?)))
        {
            let message = format!(
                "{variable:?} is the variable of {whose}, which the environment would expose: \
                    grant it as a secret"
            );
            return Err(Problem::new("env", message));
        }
        if self.state && order == Order::Key {
            let message = "cannot be kept with failure.order = \"key\": later records would be \
                counted before earlier ones that wait, so set failure.order = \"shard\"";
            return Err(Problem::new("state", message));
        }
        Ok(Permissions {
            http: hosts(&self.http)?,
            env,
            secrets: self.secrets(general)?,
            state: self.state,
        })
    }

    fn secrets(&self, general: &Config) -> Result<BTreeMap<String, SecretSource>, Problem> {
        let find = |name: &String| {
            if let Some(secret) = general.secrets.get(name) {
                Ok((name.clone(), secret.source.clone()))
            } else {
                let message = format!(
                    "no secret is named {name:?}: add [secrets.{name}] to the host's configuration"
                );
                Err(Problem::new("secrets", message))
            }
        };
        self.secrets.iter().map(find).collect()
    }

    /// Refuses what a manifest may not ask for.
    pub(super) fn refuse_beyond(
        &self,
        plugin: &PluginName,
        general: &Config,
    ) -> Result<(), Problem> {
        let ceilings = &general.grant_ceilings;
        let beyond = |key: &str, what: &str, mend: &str| {
            let message = format!(
                "{what} is more than this host allows a manifest: {mend}, or set it in the host's \
                    section of the plugin"
            );
            Err(Problem::new(key, message))
        };
        for (text, host) in self.http.iter().zip(hosts(&self.http)?) {
            if !ceilings.http.iter().any(|ceiling| ceiling.covers(&host)) {
                return beyond(
                    "http",
                    &format!("{text:?}"),
                    "add it to http under [ceilings.grants]",
                );
            }
        }
        if let Some(name) = self
            .env
            .iter()
            .find(|name| !ceilings.env.contains(*name) && !is_of_aws(name))
        {
            return beyond(
                "env",
                &format!("{name:?}"),
                "add it to env under [ceilings.grants]",
            );
        }
        let may_have = |name: &str| {
            general
                .secrets
                .get(name)
                .is_none_or(|secret| secret.plugins.contains(plugin.as_str()))
        };
        if let Some(name) = self.secrets.iter().find(|name| !may_have(name)) {
            return beyond(
                "secrets",
                &format!("{name:?}"),
                &format!(
                    "add {plugin:?} to plugins under [secrets.{name}]",
                    plugin = plugin.as_str()
                ),
            );
        }
        if self.state && !ceilings.state {
            return beyond("state", "state", "set state = true under [ceilings.grants]");
        }
        Ok(())
    }
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

/// The secret, or the sink, whose value is in a variable.
fn holder_of(variable: &str, general: &Config) -> Option<String> {
    let is_its =
        |source: &SecretSource| matches!(source, SecretSource::Variable(name) if name == variable);
    let secret = general
        .secrets
        .iter()
        .find(|(_, secret)| is_its(&secret.source));
    let sends = |sink: &SinkOptions| match sink {
        SinkOptions::Http(options) => options
            .headers
            .values()
            .any(|header| header.variable() == Some(variable)),
        _ => false,
    };
    let sink = general.sinks.iter().find(|(_, sink)| sends(sink));
    secret
        .map(|(name, _)| format!("the secret {name}"))
        .or_else(|| sink.map(|(name, _)| format!("the sink {name}")))
}

#[cfg(test)]
mod tests;
