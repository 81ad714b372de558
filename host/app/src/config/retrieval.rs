//! How each plugin's records are read, as far as the configuration says.

use std::collections::BTreeSet;

use serde::Deserialize;
use shardmill_core::stream::FanOutConsumer;
use shardmill_worker::{FanOut, Retrieval};

use super::file::Problem;
use super::{Config, PluginConfig};

/// How records are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RetrievalMode {
    /// By `GetRecords`.
    #[default]
    Polling,
    /// By enhanced fan-out.
    FanOut,
    /// By enhanced fan-out if `host.fan-out-allowed` says so, by `GetRecords` if not.
    Auto,
}

impl Config {
    /// How `plugin` is to be read.
    pub(crate) fn retrieval(&self, plugin: &str) -> Result<Retrieval, Problem> {
        let own = self.plugin.get(plugin).cloned().unwrap_or_default();
        let mode = own.retrieval.unwrap_or(self.retrieval);
        if mode == RetrievalMode::Polling {
            if own.consumer.is_some() {
                let message =
                    "is set, but the plugin is read by polling: set retrieval to \"fan-out\" or \"auto\", or remove it";
                return Err(Problem::new("plugin.consumer", message));
            }
            return Ok(Retrieval::Polling);
        }
        let fan_out = FanOut { consumer: consumer(plugin, &own)?, deregister_on_exit: self.deregister_on_exit };
        Ok(match mode {
            RetrievalMode::Auto => Retrieval::Auto { is_fan_out_allowed: self.host.is_fan_out_allowed, fan_out },
            RetrievalMode::Polling | RetrievalMode::FanOut => Retrieval::FanOut(fan_out),
        })
    }

    /// Refuses what cannot work, before anything is started.
    pub(super) fn check_retrieval(&self) -> Result<(), Problem> {
        let mut seen = BTreeSet::new();
        for name in self.plugin.keys() {
            if let Some(fan_out) = self.retrieval(name)?.fan_out()
                && !seen.insert(fan_out.consumer.to_string())
            {
                let message = format!(
                    "two plugins would subscribe with {}: each would take over the other's subscriptions; give each a \
                     consumer of its own",
                    fan_out.consumer
                );
                return Err(Problem::new("plugin.consumer", message));
            }
        }
        Ok(())
    }
}

/// A consumer for each application, named as the KCL names it.
fn consumer(plugin: &str, own: &PluginConfig) -> Result<FanOutConsumer, Problem> {
    let name = own.consumer.as_deref().or(own.application.as_deref()).unwrap_or(plugin);
    FanOutConsumer::parse(name).map_err(|problem| Problem::new("plugin.consumer", problem))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn parse(text: &str) -> Result<Config, String> {
        Config::parse(&format!("stream = \"orders\"\n{text}"), Path::new("."))
    }

    #[test]
    fn nothing_is_subscribed_to_unless_the_configuration_says_so() {
        assert_eq!(parse("").unwrap().retrieval("billing").unwrap(), Retrieval::Polling);
        let auto = parse("[reads]\nretrieval = \"auto\"").unwrap().retrieval("billing").unwrap();
        assert_eq!(auto.fan_out(), None, "auto spends nothing without being allowed to");
        let allowed = parse("[reads]\nretrieval = \"auto\"\n[host]\nfan-out-allowed = true").unwrap();
        assert_eq!(allowed.retrieval("billing").unwrap().fan_out().unwrap().consumer.to_string(), "billing");
    }

    #[test]
    fn a_plugin_has_a_retrieval_and_a_consumer_of_its_own() {
        let arn = "arn:aws:kinesis:us-east-1:123456789012:stream/orders/consumer/theirs:1";
        let config = parse(&format!(
            "[reads]\nderegister-on-exit = true\n[plugin.billing]\nretrieval = \"fan-out\"\nconsumer = \"{arn}\"\n\
             [plugin.fraud]\nretrieval = \"fan-out\"\napplication = \"fraud-check\""
        ))
        .unwrap();
        let consumer = |plugin: &str| config.retrieval(plugin).unwrap().fan_out().unwrap().clone();
        assert_eq!(consumer("billing").consumer.to_string(), arn);
        assert_eq!(consumer("fraud").consumer.to_string(), "fraud-check");
        assert!(consumer("fraud").deregister_on_exit);
        assert_eq!(config.retrieval("another").unwrap(), Retrieval::Polling);
    }

    #[test]
    fn what_cannot_work_is_refused_with_its_line_and_the_mend() {
        for (text, expected) in [
            ("[plugin.billing]\nconsumer = \"billing\"", "line 3: plugin.consumer: is set, but"),
            ("[plugin.billing]\nretrieval = \"fan-out\"\nconsumer = \"arn:aws:sqs\"", "is not a consumer's ARN"),
            ("[plugin.billing]\nretrieval = \"fan-out\"\nconsumer = \"a b\"", "letters, digits"),
            (
                "[reads]\nretrieval = \"fan-out\"\n[plugin.one]\nconsumer = \"two\"\n[plugin.two]",
                "two plugins would subscribe with two",
            ),
            ("[reads]\nretrieval = \"fanout\"", "unknown variant"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
