//! The section `[filter]` of a plugin.

use serde::Deserialize;
use shardmill_filter::Filter;

use super::problem::Problem;

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct FilterFile {
    key_prefix: Option<String>,
    patterns: Vec<String>,
}

impl FilterFile {
    /// The filter that the section sets.
    pub(super) fn check(self) -> Result<Filter, Problem> {
        Filter::new(self.key_prefix, self.patterns)
            .map_err(|problem| Problem::new(format!("filter.{}", problem.key), problem.message))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use shardmill_core::plugin::PluginName;

    use crate::{Config, PluginConfig};

    fn of(filter: &str) -> Result<PluginConfig, String> {
        let text = format!("stream = \"s\"\n[plugin.orders.filter]\n{filter}");
        let config = Config::parse(&text, Path::new("."))?;
        config.of_plugin(&PluginName::new("orders").unwrap(), None)
    }

    #[test]
    fn a_filter_is_read_and_what_it_does_not_know_is_refused_by_name() {
        let text = "key-prefix = \"a\"\npatterns = ['{\"data\": {\"type\": [\"buy\"]}}']";
        let filter = of(text).unwrap().filter.unwrap();
        assert_eq!(filter.key_prefix(), Some("a"));
        assert_eq!(filter.patterns().len(), 1);
        for (text, told) in [
            (
                "",
                "plugin.orders.filter.patterns: is empty: list a pattern, or set key-prefix",
            ),
            (
                "key-prefix = \"\"",
                "plugin.orders.filter.key-prefix: every key begins with",
            ),
            ("pattern = []", "did you mean `patterns`?"),
            (
                "patterns = ['{\"data\": {\"a\": [{\"cidr\": \"10.0.0.0/8\"}]}}']",
                "the operator \"cidr\" is not supported",
            ),
        ] {
            let refused = of(text).unwrap_err();
            assert!(refused.contains(told), "{text}: {refused}");
        }
    }
}
