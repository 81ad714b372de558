//! The section `[integrity]`: which components are loaded at all.

use serde::Deserialize;
use shardmill_core::plugin::PluginDigest;
use shardmill_wasm::{IntegrityRules, PublicKey};

use super::problem::{At, Problem};

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct IntegrityFile {
    allowed_digests: Option<Vec<String>>,
    require_signature: Option<bool>,
    keys: Option<Vec<String>>,
    accept_bare_signatures: Option<bool>,
    version_min: Option<u64>,
}

impl IntegrityFile {
    /// A plugin's own keys over the general ones.
    pub(super) fn check(&self, general: &IntegrityRules) -> Result<IntegrityRules, Problem> {
        let rules = self.over(general)?;
        if rules.require_signature && rules.keys.is_empty() {
            let message = "needs keys to check signatures with: set keys as well";
            return Err(Problem::new("integrity.require-signature", message));
        }
        if self.version_min.is_some() && !rules.require_signature {
            let message = "is checked only with a signature, which names the version: set \
                require-signature as well";
            return Err(Problem::new("integrity.version-min", message));
        }
        Ok(rules)
    }

    fn over(&self, general: &IntegrityRules) -> Result<IntegrityRules, Problem> {
        let mut rules = general.clone();
        if let Some(texts) = &self.allowed_digests {
            rules.allowed_digests = Some(digests(texts)?);
        }
        if let Some(texts) = &self.keys {
            rules.keys = public_keys(texts)?;
        }
        rules.require_signature = self.require_signature.unwrap_or(rules.require_signature);
        rules.accept_bare_signatures = self
            .accept_bare_signatures
            .unwrap_or(rules.accept_bare_signatures);
        rules.version_min = self.version_min.unwrap_or(rules.version_min);
        Ok(rules)
    }
}

fn digests(texts: &[String]) -> Result<Vec<PluginDigest>, Problem> {
    let help = "`shardmill check` prints a component's digest, as `sha256sum` does";
    let mut digests = Vec::new();
    for text in texts {
        let digest = PluginDigest::from_hex(text).ok_or_else(|| {
            let message = format!("{text:?} is not the 64 hex digits of a SHA-256: {help}");
            Problem::new("integrity.allowed-digests", message)
        });
        digests.push(digest?);
    }
    Ok(digests)
}

fn public_keys(texts: &[String]) -> Result<Vec<PublicKey>, Problem> {
    let keys = texts
        .iter()
        .map(|text| PublicKey::parse(text).at("integrity.keys"));
    keys.collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::Config;

    const KEY: &str = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";

    fn parsed(text: &str) -> Result<Config, String> {
        Config::parse(&format!("stream = \"s\"\n{text}"), Path::new("."))
    }

    #[test]
    fn a_plugins_rules_stand_over_the_hosts_key_by_key() {
        let digest = "ab".repeat(32);
        let text = format!(
            "[integrity]\nrequire-signature = true\nkeys = [{KEY:?}]\n\
             [plugin.abc.integrity]\nallowed-digests = [{digest:?}]\n\
             [plugin.def.integrity]\nrequire-signature = false\n"
        );
        let config = parsed(&text).unwrap();
        let own = config.sections.integrity;
        assert_eq!(own["abc"].allowed_digests.as_ref().map(Vec::len), Some(1));
        assert!(own["abc"].require_signature && own["abc"].keys.len() == 1);
        assert!(!own["def"].require_signature && own["def"].allowed_digests.is_none());
    }

    #[test]
    fn rules_that_cannot_work_are_refused_with_their_line_and_mend() {
        for (text, expected) in [
            (
                "[integrity]\nrequire-signature = true",
                "line 3: integrity.require-signature: needs keys",
            ),
            (
                "[integrity]\nkeys = [\"abc\"]",
                "line 3: integrity.keys: \"abc\" is not an ed25519 public key",
            ),
            (
                "[integrity]\nallowed-digests = [\"abc\"]",
                "line 3: integrity.allowed-digests: \"abc\" is not the 64",
            ),
            (
                "[integrity]\nversion-min = 3",
                "line 3: integrity.version-min: is checked only with a signature",
            ),
            (
                "[plugin.abc.integrity]\nkeys = [\"abc\"]",
                "line 3: plugin.abc.integrity.keys",
            ),
        ] {
            let error = parsed(text).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
