//! How the configuration has each plugin's records read.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use shardmill_core::stream::FanOutConsumer;
use shardmill_worker::{FanOut, Retrieval};

use super::problem::{At, Problem};
use super::settings::PluginConfig;

/// How records are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RetrievalMode {
    /// By `GetRecords`.
    #[default]
    Polling,
    /// By enhanced fan-out.
    FanOut,
    /// By enhanced fan-out if `host.fan-out-allowed` is set, else by `GetRecords`.
    Auto,
}

/// A plugin's own setting.
#[derive(Debug, Clone, Copy)]
pub(super) struct OwnRetrieval<'a> {
    pub(super) mode: Option<RetrievalMode>,
    /// The fan-out consumer, by name or ARN.
    pub(super) consumer: Option<&'a str>,
}

/// The defaults for plugins without their own settings.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RetrievalDefaults {
    pub(crate) mode: RetrievalMode,
    /// Whether the last host that leaves an application deregisters its fan-out consumer.
    pub(crate) deregister_on_exit: bool,
    /// Whether `auto` may use fan-out, which costs money.
    pub(crate) is_fan_out_allowed: bool,
}

/// Refuses two plugins that would subscribe to one stream with one consumer.
pub(super) fn refuse_shared_consumers(
    plugins: &BTreeMap<String, PluginConfig>,
) -> Result<(), Problem> {
    let mut seen = BTreeSet::new();
    for (name, plugin) in plugins {
        for one in &plugin.streams {
            let Some(fan_out) = one.retrieval.fan_out() else {
                continue;
            };
            let consumer = fan_out.consumer.to_string();
            let message = format!(
                "two plugins would subscribe to {} with {consumer}: each would take over the \
                    other's subscriptions; give each its own consumer",
                one.stream
            );
            if !seen.insert((&one.stream, consumer)) {
                return Err(Problem::new(format!("plugin.{name}.consumer"), message));
            }
        }
    }
    Ok(())
}

impl OwnRetrieval<'_> {
    /// How the stream is read whose leases are kept under `application`; `is_only` if the plugin
    /// has no others.
    pub(super) fn check(
        self,
        application: &str,
        is_only: bool,
        general: RetrievalDefaults,
    ) -> Result<Retrieval, Problem> {
        let mode = self.mode.unwrap_or(general.mode);
        if mode == RetrievalMode::Polling {
            // A plugin that asks for polling means it, even if a consumer is left from earlier.
            if self.consumer.is_some() && self.mode.is_none() {
                let message = "is set, but the plugin is read by polling: set retrieval to \
                    \"fan-out\" or \"auto\", or remove it";
                return Err(Problem::new("consumer", message));
            }
            return Ok(Retrieval::Polling);
        }
        let consumer = self.consumer(application, is_only)?;
        let fan_out = FanOut {
            consumer,
            deregister_on_exit: general.deregister_on_exit,
        };
        Ok(match mode {
            RetrievalMode::Auto => Retrieval::Auto {
                is_fan_out_allowed: general.is_fan_out_allowed,
                fan_out,
            },
            RetrievalMode::Polling | RetrievalMode::FanOut => Retrieval::FanOut(fan_out),
        })
    }

    /// A consumer for each application, named as the KCL names it.
    fn consumer(self, application: &str, is_only: bool) -> Result<FanOutConsumer, Problem> {
        let consumer = FanOutConsumer::parse(self.consumer.unwrap_or(application));
        let consumer = consumer.at("consumer")?;
        if matches!(consumer, FanOutConsumer::Given(_)) && !is_only {
            let message = "is the ARN of a consumer, which is one stream's, but the plugin reads \
                several: remove it, and each stream gets its own consumer, or use a plugin for each stream";
            return Err(Problem::new("consumer", message));
        }
        Ok(consumer)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use shardmill_core::plugin::PluginName;

    use super::*;
    use crate::{Config, Manifest};

    fn parse(text: &str) -> Result<Config, String> {
        Config::parse(&format!("stream = \"orders\"\n{text}"), Path::new("."))
    }

    fn retrievals(config: &Config, plugin: &str) -> Vec<Retrieval> {
        let settings = config
            .of_plugin(&PluginName::new(plugin).unwrap(), None)
            .unwrap();
        settings
            .streams
            .into_iter()
            .map(|one| one.retrieval)
            .collect()
    }

    fn retrieval(config: &Config, plugin: &str) -> Retrieval {
        retrievals(config, plugin).remove(0)
    }

    #[test]
    fn nothing_is_subscribed_to_unless_the_configuration_says_so() {
        assert_eq!(
            retrieval(&parse("").unwrap(), "billing"),
            Retrieval::Polling
        );
        let auto = retrieval(&parse("[reads]\nretrieval = \"auto\"").unwrap(), "billing");
        assert_eq!(
            auto.fan_out(),
            None,
            "auto spends nothing without being allowed to"
        );
        let allowed =
            parse("[reads]\nretrieval = \"auto\"\n[host]\nfan-out-allowed = true").unwrap();
        assert_eq!(
            retrieval(&allowed, "billing")
                .fan_out()
                .unwrap()
                .consumer
                .to_string(),
            "billing"
        );
    }

    #[test]
    fn a_plugin_has_a_retrieval_and_a_consumer_of_its_own() {
        let arn = "arn:aws:kinesis:us-east-1:123456789012:stream/orders/consumer/theirs:1";
        let config = parse(&format!(
            "[reads]\nderegister-on-exit = true\n[plugin.billing]\nretrieval = \
                \"fan-out\"\nconsumer = \"{arn}\"\n\
             [plugin.fraud]\nretrieval = \"fan-out\"\napplication = \"fraud-check\""
        ))
        .unwrap();
        let consumer = |plugin: &str| retrieval(&config, plugin).fan_out().unwrap().clone();
        assert_eq!(consumer("billing").consumer.to_string(), arn);
        assert_eq!(consumer("fraud").consumer.to_string(), "fraud-check");
        assert!(consumer("fraud").deregister_on_exit);
        assert_eq!(retrieval(&config, "another"), Retrieval::Polling);
    }

    #[test]
    fn each_stream_of_a_plugin_has_a_consumer_of_its_own() {
        let config = parse(
            "[plugin.billing]\nretrieval = \"fan-out\"\nstream = \"orders\"\nstreams = \
                [\"returns\", \"refunds\"]\n\
             [plugin.fraud]\nretrieval = \"fan-out\"\nconsumer = \"billing\"\nstream = \
             \"payments\"",
        )
        .unwrap();
        let consumers = |plugin| -> Vec<_> {
            retrievals(&config, plugin)
                .iter()
                .map(|one| one.fan_out().unwrap().consumer.to_string())
                .collect()
        };
        assert_eq!(
            consumers("billing"),
            ["billing", "billing.returns", "billing.refunds"]
        );
        assert_eq!(
            consumers("fraud"),
            ["billing"],
            "another stream's consumer of the same name is another one"
        );
    }

    #[test]
    fn the_section_wins_over_the_manifest_and_may_go_back_to_polling() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("billing.toml");
        std::fs::write(
            &path,
            "retrieval = \"fan-out\"\nconsumer = \"billing.theirs\"",
        )
        .unwrap();
        let manifest = Manifest::read(&path).unwrap();
        let name = PluginName::new("billing").unwrap();
        let with = |section: &str| {
            let settings = parse(section)
                .unwrap()
                .of_plugin(&name, manifest.as_ref())
                .unwrap();
            settings.streams[0]
                .retrieval
                .fan_out()
                .map(|fan_out| fan_out.consumer.to_string())
        };
        let allowed = "[reads]\nretrieval = \"polling\"\n[host]\nfan-out-allowed = true";
        assert_eq!(
            with(allowed).as_deref(),
            Some("billing.theirs"),
            "over the general setting"
        );
        let ours = "[plugin.billing]\nretrieval = \"auto\"\nconsumer = \
            \"ours\"\n[host]\nfan-out-allowed = true";
        assert_eq!(with(ours).as_deref(), Some("ours"));
        assert_eq!(with("[plugin.billing]\nretrieval = \"polling\""), None);
    }

    #[test]
    fn a_manifest_alone_spends_no_money() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("billing.toml");
        std::fs::write(&path, "stream = \"orders\"\nretrieval = \"fan-out\"").unwrap();
        let manifest = Manifest::read(&path).unwrap();
        let name = PluginName::new("billing").unwrap();
        let with = |text: &str| parse(text).unwrap().of_plugin(&name, manifest.as_ref());
        let refused = with("").unwrap_err();
        assert!(
            refused.contains("billing.toml: line 2: retrieval: a manifest alone may not spend"),
            "{refused}"
        );
        for allowed in [
            "[host]\nfan-out-allowed = true",
            "[reads]\nretrieval = \"fan-out\"",
            "[plugin.billing]\nretrieval = \"fan-out\"",
        ] {
            assert!(
                with(allowed).unwrap().streams[0]
                    .retrieval
                    .fan_out()
                    .is_some(),
                "{allowed}"
            );
        }
    }

    #[test]
    fn what_cannot_work_is_refused_with_its_line_and_the_mend() {
        for (text, expected) in [
            (
                "[plugin.billing]\nconsumer = \"billing\"",
                "line 3: plugin.billing.consumer: is set, but",
            ),
            (
                "[plugin.billing]\nretrieval = \"fan-out\"\nconsumer = \"arn:aws:sqs\"",
                "is not a consumer's ARN",
            ),
            (
                "[plugin.billing]\nretrieval = \"fan-out\"\nconsumer = \"a b\"",
                "letters, digits",
            ),
            (
                "[reads]\nretrieval = \"fan-out\"\n[plugin.one]\nconsumer = \"two\"\n[plugin.two]",
                "two plugins would subscribe to orders with two",
            ),
            ("[reads]\nretrieval = \"fanout\"", "unknown value"),
            (
                "[plugin.billing]\nretrieval = \"fan-out\"\nstreams = [\"one\", \"two\"]\n\
                 consumer = \
                 \"arn:aws:kinesis:us-east-1:123456789012:stream/one/consumer/theirs:1\"",
                "line 5: plugin.billing.consumer: is the ARN of a consumer, which is one stream's",
            ),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
