//! The sections `[secrets.NAME]`: where a secret is kept, and which plugins may ask for it. Values
//! are never read here.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use shardmill_core::plugin::{PluginName, SecretSource};

use super::problem::{At, Problem, Under};
use super::settings::SecretConfig;

/// Longest name of a secret.
const NAME_MAX: usize = 64;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct SecretFile {
    file: Option<PathBuf>,
    env: Option<String>,
    #[serde(default)]
    plugins: Vec<String>,
}

/// Relative paths are relative to `folder`.
pub(super) fn check_secrets(
    secrets: BTreeMap<String, SecretFile>,
    folder: &Path,
) -> Result<BTreeMap<String, SecretConfig>, Problem> {
    let mut checked = BTreeMap::new();
    for (name, secret) in secrets {
        let section = format!("secrets.{name}");
        if !is_name(&name) {
            let rule = format!("a secret's name has 1 to {NAME_MAX} letters, digits, '_' and '-'");
            return Err(Problem::new(section, rule));
        }
        checked.insert(name, secret.check(folder).under(&section)?);
    }
    Ok(checked)
}

fn is_name(name: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    (1..=NAME_MAX).contains(&name.len()) && name.chars().all(is_allowed)
}

/// Whether an environment variable holds the host's own AWS credentials, or says where to get them.
/// The region is harmless.
pub(super) fn is_of_aws(variable: &str) -> bool {
    variable.starts_with("AWS_") && !["AWS_REGION", "AWS_DEFAULT_REGION"].contains(&variable)
}

impl SecretFile {
    fn check(self, folder: &Path) -> Result<SecretConfig, Problem> {
        for name in &self.plugins {
            PluginName::new(name).at("plugins")?;
        }
        Ok(SecretConfig {
            source: source(self.file, self.env, folder)?,
            plugins: self.plugins.into_iter().collect(),
        })
    }
}

/// Where the secret is kept. Exactly one of `file` and `variable` must be set.
fn source(
    file: Option<PathBuf>,
    variable: Option<String>,
    folder: &Path,
) -> Result<SecretSource, Problem> {
    let (key, message) = match (file, variable) {
        (Some(file), None) => return Ok(SecretSource::File(folder.join(file))),
        (None, Some(variable)) if is_of_aws(&variable) => (
            "env",
            "no plugin may use the host's own AWS credentials; create separate ones for it",
        ),
        (None, Some(variable)) if variable.is_empty() => {
            ("env", "must name a variable of the environment")
        }
        (None, Some(variable)) => return Ok(SecretSource::Variable(variable)),
        (None, None) => (
            "file",
            "is missing: say where the secret is with file or env",
        ),
        (Some(_), Some(_)) => ("env", "contradicts file: a secret is kept in one place"),
    };
    Err(Problem::new(key, message))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::Config;

    fn secrets(text: &str) -> Result<BTreeMap<String, SecretConfig>, String> {
        Config::parse(&format!("stream = \"s\"\n{text}"), Path::new("/etc/mill"))
            .map(|config| config.secrets)
    }

    #[test]
    fn a_secret_is_in_a_file_or_in_the_environment_of_the_host() {
        let found = secrets(
            "[secrets.api]\nfile = \"keys/api\"\nplugins = [\"alerts\", \
                \"orders\"]\n[secrets.db]\nenv = \"DB_TOKEN\"",
        )
        .unwrap();
        assert_eq!(
            found["api"].source,
            SecretSource::File("/etc/mill/keys/api".into())
        );
        assert_eq!(
            found["api"].plugins,
            BTreeSet::from(["alerts".to_owned(), "orders".to_owned()])
        );
        assert_eq!(
            found["db"].source,
            SecretSource::Variable("DB_TOKEN".to_owned())
        );
    }

    #[test]
    fn a_secret_that_cannot_work_is_refused_with_its_line() {
        for (text, expected) in [
            ("[secrets.api]", "line 2: secrets.api.file: is missing"),
            (
                "[secrets.api]\nfile = \"a\"\nenv = \"B\"",
                "line 4: secrets.api.env: contradicts file",
            ),
            (
                "[secrets.api]\nenv = \"AWS_SECRET_ACCESS_KEY\"",
                "line 3: secrets.api.env: no plugin may use the host's own AWS",
            ),
            (
                "[secrets.api]\nenv = \"\"",
                "line 3: secrets.api.env: must name",
            ),
            (
                "[secrets.api]\nenv = \"B\"\nplugins = [\"a b\"]",
                "line 4: secrets.api.plugins",
            ),
            ("[secrets.\"a b\"]\nenv = \"B\"", "a secret's name has"),
            (
                "[secrets.api]\nvalue = \"hush hush\"",
                "unknown field `value`",
            ),
        ] {
            let error = secrets(text).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
