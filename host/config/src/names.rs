//! What a manifest may name under `[ceilings]`: streams, applications and sinks of the host, and
//! its own sections `[failure]` and `[rollout]`.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use shardmill_core::plugin::PluginName;
use shardmill_core::stream::StreamRef;
use shardmill_sinks::SinkOptions;

use super::problem::{At, Problem};
use super::sinks::refuse_unknown_sink;

/// What a manifest may name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NameCeilings {
    streams: Vec<NamePattern>,
    applications: Vec<NamePattern>,
    /// The sinks of plugins whose section in the host's configuration names none; `None` is all.
    pub(super) sinks: Option<BTreeSet<String>>,
    is_failure_allowed: bool,
    is_rollout_allowed: bool,
}

/// These keys of the section `[ceilings]`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct NameCeilingsFile {
    #[serde(default)]
    streams: Vec<String>,
    #[serde(default)]
    applications: Vec<String>,
    sinks: Option<Vec<String>>,
    failure: Option<bool>,
    rollout: Option<bool>,
}

/// A name, or with `*` at its end, every name with that beginning. Only a pattern that begins with
/// `arn:` covers ARNs: a pattern without an account is meant for this host's account.
#[derive(Debug, Clone, PartialEq, Eq)]
enum NamePattern {
    Whole(String),
    Beginning(String),
}

const ARN: &str = "arn:";

impl NamePattern {
    fn parse(text: &str) -> Result<Self, String> {
        let (name, is_beginning) = text
            .strip_suffix('*')
            .map_or((text, false), |beginning| (beginning, true));
        if name.contains('*') || text.is_empty() {
            return Err(format!(
                "{text:?} is not a pattern: give a name, or the start of one followed by *"
            ));
        }
        Ok(if is_beginning {
            Self::Beginning(name.to_owned())
        } else {
            Self::Whole(name.to_owned())
        })
    }

    fn covers(&self, text: &str) -> bool {
        match self {
            Self::Whole(name) => name == text,
            Self::Beginning(name) => {
                text.starts_with(name) && name.starts_with(ARN) == text.starts_with(ARN)
            }
        }
    }
}

impl NameCeilingsFile {
    pub(super) const KEYS: [&'static str; 5] =
        ["streams", "applications", "sinks", "failure", "rollout"];

    /// Problems are named by key, without the section.
    pub(super) fn check(
        &self,
        sinks: &BTreeMap<String, SinkOptions>,
    ) -> Result<NameCeilings, Problem> {
        let own: Option<BTreeSet<String>> = self
            .sinks
            .as_ref()
            .map(|names| names.iter().cloned().collect());
        for name in own.iter().flatten() {
            refuse_unknown_sink(name, sinks).at("sinks")?;
        }
        Ok(NameCeilings {
            streams: patterns("streams", &self.streams)?,
            applications: patterns("applications", &self.applications)?,
            sinks: own,
            is_failure_allowed: self.failure.unwrap_or(true),
            is_rollout_allowed: self.rollout.unwrap_or(true),
        })
    }
}

fn patterns(key: &str, texts: &[String]) -> Result<Vec<NamePattern>, Problem> {
    texts
        .iter()
        .map(|text| NamePattern::parse(text).at(key))
        .collect()
}

/// What a manifest names that the operator's section of the plugin does not.
#[derive(Debug)]
pub(super) struct Named<'a> {
    pub(super) plugin: &'a PluginName,
    pub(super) application: Option<&'a str>,
    pub(super) consumer: Option<&'a str>,
    pub(super) stream: Option<&'a str>,
    pub(super) streams: Vec<&'a str>,
    pub(super) sinks: &'a [String],
    pub(super) dead_letter: Option<&'a str>,
    pub(super) has_failure: bool,
    pub(super) has_rollout: bool,
}

impl<'a> Named<'a> {
    /// A manifest that names nothing.
    pub(super) fn nothing(plugin: &'a PluginName) -> Self {
        Self {
            plugin,
            application: None,
            consumer: None,
            stream: None,
            streams: Vec::new(),
            sinks: &[],
            dead_letter: None,
            has_failure: false,
            has_rollout: false,
        }
    }
}

impl NameCeilings {
    /// Allows any stream, for cases where only a plugin's own records can come to harm.
    pub(super) fn allow_any_stream(&mut self) {
        self.streams = vec![
            NamePattern::Beginning(String::new()),
            NamePattern::Beginning(ARN.to_owned()),
        ];
    }

    /// Refuses what a manifest may not name.
    pub(super) fn refuse_beyond(
        &self,
        named: &Named<'_>,
        general: Option<&StreamRef>,
    ) -> Result<(), Problem> {
        self.refuse_streams(named, general)?;
        self.refuse_applications(named)?;
        self.refuse_sinks(named)?;
        for (section, is_there, is_allowed) in [
            ("failure", named.has_failure, self.is_failure_allowed),
            ("rollout", named.has_rollout, self.is_rollout_allowed),
        ] {
            if is_there && !is_allowed {
                let mend = format!("remove {section} = false there");
                return Err(beyond(section, "this section", &mend, named.plugin));
            }
        }
        Ok(())
    }

    /// A plugin that names a stream reads it, and the host's role may be allowed to read more
    /// streams than were meant for a plugin.
    fn refuse_streams(&self, named: &Named<'_>, of_all: Option<&StreamRef>) -> Result<(), Problem> {
        let of_all = of_all.map(ToString::to_string);
        let is_allowed = |text: &str| {
            of_all.as_deref() == Some(text)
                || self.streams.iter().any(|pattern| pattern.covers(text))
        };
        let single = named.stream.map(|text| ("stream", text));
        let several = named.streams.iter().map(|text| ("streams", *text));
        for (key, text) in single.into_iter().chain(several) {
            if !is_allowed(text) {
                let what = format!("stream {text:?}");
                return Err(beyond(
                    key,
                    &what,
                    &format!("add {text:?} to streams"),
                    named.plugin,
                ));
            }
        }
        Ok(())
    }

    /// A plugin that names an application takes its leases, moves its checkpoints, and takes its
    /// records from the plugin that read them before. The same goes for the subscriptions of a
    /// consumer.
    fn refuse_applications(&self, named: &Named<'_>) -> Result<(), Problem> {
        let own = named.plugin.as_str();
        let is_own = |text: &str| {
            let rest = text.strip_prefix(own);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        for (key, text) in [
            ("application", named.application),
            ("consumer", named.consumer),
        ] {
            let Some(text) = text else { continue };
            if !is_own(text) && !self.applications.iter().any(|pattern| pattern.covers(text)) {
                let what =
                    format!("{text:?}, which is not {own:?} and does not begin with \"{own}.\",");
                return Err(beyond(
                    key,
                    &what,
                    &format!("add {text:?} to applications"),
                    named.plugin,
                ));
            }
        }
        Ok(())
    }

    fn refuse_sinks(&self, named: &Named<'_>) -> Result<(), Problem> {
        let Some(allowed) = &self.sinks else {
            return Ok(());
        };
        let emitted = named.sinks.iter().map(|name| ("sinks", name.as_str()));
        let dead_letter = named.dead_letter.map(|name| ("failure.dead-letter", name));
        for (key, name) in emitted.chain(dead_letter) {
            if !allowed.contains(name) {
                let what = format!("sink {name:?}");
                return Err(beyond(
                    key,
                    &what,
                    &format!("add {name:?} to sinks"),
                    named.plugin,
                ));
            }
        }
        Ok(())
    }
}

/// Says what is too much, and names both places where the operator may allow it.
fn beyond(key: &str, what: &str, mend: &str, plugin: &PluginName) -> Problem {
    let message = format!(
        "{what} is more than this host allows a manifest: {mend} under [ceilings] in the host's \
            shardmill.toml, or set {key} there under [plugin.{plugin}]"
    );
    Problem::new(key, message)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{Config, Manifest, PluginConfig};

    fn settings(config: &str, manifest: &str) -> Result<PluginConfig, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("alerts.toml");
        std::fs::write(&path, manifest).unwrap();
        let manifest = Manifest::read(&path).map_err(|error| error.to_string())?;
        let config = Config::parse(&format!("stream = \"orders\"\n{config}"), Path::new("."))?;
        config.of_plugin(&PluginName::new("alerts").unwrap(), manifest.as_ref())
    }

    #[test]
    fn a_manifest_that_names_what_is_anothers_is_refused_with_file_line_and_where_to_allow_it() {
        for (manifest, key, told) in [
            (
                "application = \"victim\"",
                "application",
                "add \"victim\" to applications under [ceilings]",
            ),
            (
                "application = \"alertsx\"",
                "application",
                "add \"alertsx\" to applications",
            ),
            (
                "stream = \"payroll\"",
                "stream",
                "add \"payroll\" to streams under [ceilings]",
            ),
            (
                "streams = [\"payroll\"]",
                "streams",
                "add \"payroll\" to streams",
            ),
            (
                "streams = [{ stream = \"payroll\" }]",
                "streams",
                "or set streams there under [plugin.alerts]",
            ),
            (
                "stream = \"arn:aws:kinesis:eu-west-1:999999999999:stream/orders\"",
                "stream",
                "add \"arn:aws:kinesis:eu-west-1:999999999999:stream/orders\" to streams",
            ),
            (
                "consumer = \"victim\"",
                "consumer",
                "add \"victim\" to applications",
            ),
        ] {
            let refused = settings("", &format!("world = \"0.1\"\n{manifest}\n")).unwrap_err();
            assert!(
                refused.contains(&format!("alerts.toml: line 2: {key}: ")),
                "{refused}"
            );
            assert!(refused.contains(told), "{refused}");
        }
    }

    #[test]
    fn a_manifest_may_name_its_own_and_what_the_operator_allowed() {
        for (config, manifest) in [
            ("", "application = \"alerts\""),
            ("", "application = \"alerts.v2\""),
            (
                "[reads]\nretrieval = \"fan-out\"",
                "consumer = \"alerts.v2\"",
            ),
            ("", "stream = \"orders\""),
            (
                "[ceilings]\nstreams = [\"web-*\"]",
                "streams = [\"web-clicks\", \"web-views\"]",
            ),
            ("[ceilings]\nstreams = [\"*\"]", "stream = \"payroll\""),
            (
                "[ceilings]\nstreams = [\"arn:aws:kinesis:eu-west-1:1*\"]",
                "stream = \"arn:aws:kinesis:eu-west-1:123456789012:stream/clicks\"",
            ),
            (
                "[ceilings]\napplications = [\"team-a-*\"]",
                "application = \"team-a-alerts\"",
            ),
            (
                "[plugin.alerts]\napplication = \"old-name\"",
                "application = \"whatever\"",
            ),
            (
                "[plugin.alerts]\nstream = \"clicks\"",
                "streams = [\"payroll\"]",
            ),
        ] {
            settings(config, manifest)
                .unwrap_or_else(|refused| panic!("{config}: {manifest}: {refused}"));
        }
        let arn = "stream = \"arn:aws:kinesis:eu-west-1:999999999999:stream/payroll\"";
        assert!(
            settings("[ceilings]\nstreams = [\"*\"]", arn).is_err(),
            "another account's is not meant by a star"
        );
    }

    #[test]
    fn sinks_are_held_to_the_ceiling_whoever_names_none() {
        let sinks = "[ceilings]\nsinks = [\"stdout\"]\n[sinks.billing]\ntype = \"stdout\"\n";
        let own = |config: &str, manifest: &str| {
            settings(config, manifest).map(|settings| settings.sinks)
        };
        let of = |names: &[&str]| {
            Some(
                names
                    .iter()
                    .map(|name| (*name).to_owned())
                    .collect::<BTreeSet<_>>(),
            )
        };
        assert_eq!(own(sinks, ""), Ok(of(&["stdout"])));
        assert_eq!(own(sinks, "sinks = [\"stdout\"]"), Ok(of(&["stdout"])));
        assert_eq!(own("", ""), Ok(None), "all, unless the operator says less");
        let refused = own(sinks, "sinks = [\"billing\"]").unwrap_err();
        assert!(
            refused.contains("line 1: sinks: ") && refused.contains("add \"billing\" to sinks"),
            "{refused}"
        );
        let dead =
            "[failure]\non-exhausted = \"dead-letter\"\nattempts = 1\ndead-letter = \"billing\"";
        let refused = own(sinks, dead).unwrap_err();
        assert!(
            refused.contains("line 4: failure.dead-letter: sink \"billing\""),
            "{refused}"
        );
        let section = format!("{sinks}[plugin.alerts]\nsinks = [\"billing\"]\n");
        assert_eq!(
            own(&section, "sinks = [\"stdout\"]"),
            Ok(of(&["billing"])),
            "the operator's word is free"
        );
    }

    #[test]
    fn an_operator_may_keep_failure_and_rollout_to_himself() {
        let refused =
            settings("[ceilings]\nrollout = false", "[rollout]\nenabled = false").unwrap_err();
        assert!(
            refused.contains("line 1: rollout: this section is more than"),
            "{refused}"
        );
        let skip = "[failure]\nattempts = 1\non-exhausted = \"skip\"";
        assert!(settings("", skip).is_ok());
        assert!(
            settings("[ceilings]\nfailure = false", skip)
                .unwrap_err()
                .contains("failure: this section")
        );
        assert!(settings("[ceilings]\nfailure = false", "[batch]\nrecords = 5").is_ok());
    }

    #[test]
    fn checkpoints_that_cost_more_than_usual_are_the_operators_to_allow() {
        for (manifest, key) in [
            ("records = 99", "checkpoint.records"),
            ("bytes = \"10KiB\"", "checkpoint.bytes"),
            ("age = \"999ms\"", "checkpoint.age"),
        ] {
            let manifest = format!("[checkpoint]\n{manifest}");
            let refused = settings("", &manifest).unwrap_err();
            assert!(
                refused.contains(&format!("line 2: {key}: asks for")),
                "{refused}"
            );
            assert!(refused.contains("[plugin.alerts]"), "{refused}");
            for allowed in [
                "[ceilings]\nfrequent-checkpoints = true",
                "[checkpoint]\nrecords = 1\nbytes = \"1KiB\"\nage = \"10ms\"",
                "[plugin.alerts.checkpoint]\nrecords = 1\nbytes = \"1KiB\"\nage = \"10ms\"",
            ] {
                settings(allowed, &manifest)
                    .unwrap_or_else(|refused| panic!("{allowed}: {manifest}: {refused}"));
            }
        }
        let usual = "[checkpoint]\nrecords = 100\nbytes = \"100KiB\"\nage = \"1s\"";
        assert!(settings("", usual).is_ok());
        let mistyped = settings("[ceilings]\nfrequent-checkpoints = 1", "").unwrap_err();
        assert!(mistyped.contains("expected a boolean"), "{mistyped}");
    }

    #[test]
    fn an_operator_may_keep_the_names_of_plugins_to_himself() {
        let listed = "[host]\nonly-listed = true\n";
        let refused = settings(listed, "").unwrap_err();
        assert!(
            refused.contains("host.only-listed") && refused.contains("[plugin.alerts]"),
            "{refused}"
        );
        assert!(settings(&format!("{listed}[plugin.alerts]"), "").is_ok());
        assert!(settings(&format!("{listed}[plugin.other]"), "").is_err());
    }

    #[test]
    fn ceilings_that_cannot_work_are_refused_with_their_line() {
        for (text, told) in [
            (
                "streams = [\"a*b\"]",
                "line 3: ceilings.streams: \"a*b\" is not a pattern",
            ),
            (
                "sinks = [\"nowhere\"]",
                "line 3: ceilings.sinks: no sink is named \"nowhere\"",
            ),
            ("stream = [\"a\"]", "unknown field `stream`"),
        ] {
            let refused = settings(&format!("[ceilings]\n{text}"), "").unwrap_err();
            assert!(refused.contains(told), "{refused}");
        }
    }
}
