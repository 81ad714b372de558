//! The section `[shadow]` of a plugin: how a version runs in its shadow.

use serde::Deserialize;
use shardmill_core::shadow::ShadowPolicy;

use super::problem::Problem;

#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct ShadowFile {
    share: Option<f64>,
    http: Option<bool>,
    promote_after: Option<u64>,
    differences_max: Option<u64>,
    drop_after: Option<u64>,
}

impl ShadowFile {
    /// These keys, and those of `under` that are not set here.
    pub(super) fn laid_over(self, under: Self) -> Self {
        Self {
            share: self.share.or(under.share),
            http: self.http.or(under.http),
            promote_after: self.promote_after.or(under.promote_after),
            differences_max: self.differences_max.or(under.differences_max),
            drop_after: self.drop_after.or(under.drop_after),
        }
    }

    pub(super) fn check(self) -> Result<ShadowPolicy, Problem> {
        let standard = ShadowPolicy::default();
        let policy = ShadowPolicy {
            share: self.share.unwrap_or(standard.share),
            may_send_http: self.http.unwrap_or(standard.may_send_http),
            promote_after: self.promote_after,
            differences_max: self.differences_max.unwrap_or(standard.differences_max),
            drop_after: self.drop_after,
        };
        if !(policy.share > 0.0 && policy.share <= 1.0) {
            let message = "must be above 0 and at most 1: the part of the shards that it runs on";
            return Err(Problem::new("shadow.share", message));
        }
        if policy.promote_after == Some(0) {
            let message = "must be at least 1: remove it to leave that to an operator";
            return Err(Problem::new("shadow.promote-after", message));
        }
        if policy
            .drop_after
            .is_some_and(|most| most <= policy.differences_max)
        {
            let message = "must be more than shadow.differences-max, with which a version may still \
                be promoted; remove it to leave that to an operator";
            return Err(Problem::new("shadow.drop-after", message));
        }
        Ok(policy)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use shardmill_core::plugin::PluginName;
    use shardmill_core::shadow::ShadowPolicy;

    use crate::{Config, Manifest};

    /// The policy of plugin `abc` with this section, and this manifest.
    fn of_abc(section: &str, manifest: &str) -> Result<ShadowPolicy, String> {
        let text = format!("stream = \"s\"\n[plugin.abc.shadow]\n{section}\n");
        let config = Config::parse(&text, Path::new("."))?;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("abc.toml");
        std::fs::write(&file, manifest).unwrap();
        let manifest = Manifest::read(&file).map_err(|error| error.to_string())?;
        let settings = config.of_plugin(&PluginName::new("abc").unwrap(), manifest.as_ref())?;
        Ok(settings.shadow)
    }

    #[test]
    fn a_section_stands_over_the_manifest_key_by_key() {
        assert_eq!(of_abc("", ""), Ok(ShadowPolicy::default()));
        let section = "share = 0.5\ndrop-after = 9";
        let manifest = "[shadow]\nshare = 1.0\nhttp = true\npromote-after = 7\ndifferences-max = 3";
        let expected = ShadowPolicy {
            share: 0.5,
            may_send_http: true,
            promote_after: Some(7),
            differences_max: 3,
            drop_after: Some(9),
        };
        assert_eq!(of_abc(section, manifest), Ok(expected));
    }

    #[test]
    fn what_cannot_work_is_refused_and_says_why() {
        for (section, expected) in [
            ("share = 0.0", "shadow.share: must be above 0"),
            ("share = 1.5", "shadow.share: must be above 0"),
            ("share = nan", "shadow.share: must be above 0"),
            (
                "promote-after = 0",
                "shadow.promote-after: must be at least 1",
            ),
            ("drop-after = 0", "shadow.drop-after: must be more than"),
            (
                "drop-after = 5\ndifferences-max = 5",
                "shadow.drop-after: must be more than",
            ),
        ] {
            let refused = of_abc(section, "").unwrap_err();
            assert!(refused.contains(expected), "{section}: {refused}");
        }
    }
}
