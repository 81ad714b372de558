//! The sections `[failure]` and `[plugin.NAME.failure]`.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use shardmill_core::pipeline::{FailurePolicy, GiveUp, Order, PolicyProblem};
use shardmill_sinks::SinkOptions;

use super::duration;
use super::problem::{At, Problem};
use super::sinks::refuse_unknown_sink;

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct FailureFile {
    attempts: Option<u32>,
    unavailable_attempts: Option<u32>,
    misconfigured_attempts: Option<u32>,
    #[serde(default, deserialize_with = "duration::optional")]
    max_age: Option<Duration>,
    bisect: Option<bool>,
    on_exhausted: Option<OnExhausted>,
    dead_letter: Option<String>,
    order: Option<OrderWord>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum OnExhausted {
    DeadLetter,
    Skip,
    Halt,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum OrderWord {
    #[default]
    Shard,
    Key,
}

impl FailureFile {
    /// These keys, and those of `under` that are not set here.
    pub(super) fn laid_over(self, under: Self) -> Self {
        Self {
            attempts: self.attempts.or(under.attempts),
            unavailable_attempts: self.unavailable_attempts.or(under.unavailable_attempts),
            misconfigured_attempts: self.misconfigured_attempts.or(under.misconfigured_attempts),
            max_age: self.max_age.or(under.max_age),
            bisect: self.bisect.or(under.bisect),
            on_exhausted: self.on_exhausted.or(under.on_exhausted),
            dead_letter: self.dead_letter.or(under.dead_letter),
            order: self.order.or(under.order),
        }
    }

    /// The sink that it names.
    pub(super) fn dead_letter(&self) -> Option<&str> {
        self.dead_letter.as_deref()
    }

    /// The policy that the section sets.
    pub(super) fn check(
        self,
        sinks: &BTreeMap<String, SinkOptions>,
    ) -> Result<FailurePolicy, Problem> {
        let then = self.give_up()?;
        let order = match self.order.unwrap_or_default() {
            OrderWord::Shard => Order::Shard,
            OrderWord::Key => Order::Key,
        };
        let policy = FailurePolicy {
            attempts: self.attempts,
            unavailable_attempts: self.unavailable_attempts,
            misconfigured_attempts: self.misconfigured_attempts,
            max_age: self.max_age,
            // Without bisecting, one bad record would take its whole batch with it; only the bad
            // record should be given up.
            bisect: self.bisect.unwrap_or(then.is_some() || order == Order::Key),
            then,
            order,
        };
        if let Some(PolicyProblem { key, problem }) = policy.problem() {
            return Err(Problem::new(format!("failure.{key}"), problem));
        }
        if let Some(GiveUp::DeadLetter(sink)) = &policy.then {
            refuse_unknown_sink(sink, sinks).at("failure.dead-letter")?;
        }
        Ok(policy)
    }

    /// What happens to a record once its attempts are used up.
    fn give_up(&self) -> Result<Option<GiveUp>, Problem> {
        match (self.on_exhausted, &self.dead_letter) {
            (Some(OnExhausted::DeadLetter), Some(sink)) => {
                Ok(Some(GiveUp::DeadLetter(sink.clone())))
            }
            (Some(OnExhausted::DeadLetter), None) => Err(Problem::new(
                "failure.on-exhausted",
                "\"dead-letter\" needs the name of a sink: set dead-letter as well",
            )),
            (Some(OnExhausted::Skip | OnExhausted::Halt) | None, Some(_)) => Err(Problem::new(
                "failure.dead-letter",
                "is only used with on-exhausted = \"dead-letter\": set that, or remove this",
            )),
            (Some(OnExhausted::Skip), None) => Ok(Some(GiveUp::Skip)),
            (Some(OnExhausted::Halt), None) => Ok(Some(GiveUp::Halt)),
            (None, None) => Ok(None),
        }
    }
}

impl From<FailurePolicy> for FailureFile {
    fn from(policy: FailurePolicy) -> Self {
        let (on_exhausted, dead_letter) = match policy.then {
            Some(GiveUp::DeadLetter(sink)) => (Some(OnExhausted::DeadLetter), Some(sink)),
            Some(GiveUp::Skip) => (Some(OnExhausted::Skip), None),
            Some(GiveUp::Halt) => (Some(OnExhausted::Halt), None),
            None => (None, None),
        };
        Self {
            attempts: policy.attempts,
            unavailable_attempts: policy.unavailable_attempts,
            misconfigured_attempts: policy.misconfigured_attempts,
            max_age: policy.max_age,
            bisect: Some(policy.bisect),
            on_exhausted,
            dead_letter,
            order: Some(match policy.order {
                Order::Shard => OrderWord::Shard,
                Order::Key => OrderWord::Key,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use shardmill_core::plugin::PluginName;

    use super::*;
    use crate::Config;

    fn parsed(text: &str) -> Result<Config, String> {
        Config::parse(&format!("stream = \"s\"\n{text}"), Path::new("."))
    }

    #[test]
    fn what_is_not_said_retries_for_ever_in_the_order_of_the_shard() {
        assert_eq!(parsed("").unwrap().failure, FailurePolicy::default());
        assert_eq!(
            parsed("[failure]\n").unwrap().failure,
            FailurePolicy::default()
        );
    }

    #[test]
    fn a_plugins_section_stands_in_place_of_the_hosts() {
        let text = "[failure]\nattempts = 5\nmax-age = \"1h\"\non-exhausted = \"skip\"\n\
                    [plugin.abc.failure]\norder = \"key\"\n[plugin.def]\napplication = \"xyz\"\n";
        let config = parsed(text).unwrap();
        let host = FailurePolicy {
            attempts: Some(5),
            max_age: Some(Duration::from_hours(1)),
            bisect: true,
            then: Some(GiveUp::Skip),
            order: Order::Shard,
            ..FailurePolicy::default()
        };
        assert_eq!(config.failure, host);
        let own = FailurePolicy {
            bisect: true,
            order: Order::Key,
            ..FailurePolicy::default()
        };
        let of = |name| {
            config
                .of_plugin(&PluginName::new(name).unwrap(), None)
                .unwrap()
                .failure
        };
        assert_eq!((of("abc"), of("def")), (own, host));
        let halts = parsed("[failure]\nbisect = false\nattempts = 1\non-exhausted = \"halt\"\n")
            .unwrap()
            .failure;
        assert_eq!((halts.bisect, halts.then), (false, Some(GiveUp::Halt)));
    }

    #[test]
    fn contradictions_name_the_line_of_their_own_section_and_the_mend() {
        let earlier = "[failure]\nattempts = 3\non-exhausted = \"skip\"\n";
        for (section, line, mend) in [
            (
                "attempts = 0\non-exhausted = \"skip\"",
                6,
                "plugin.abc.failure.attempts: must be at least 1",
            ),
            (
                "attempts = 3",
                6,
                "plugin.abc.failure.attempts: says when a record is given up, but not what \
                    happens then",
            ),
            (
                "bisect = true\nmax-age = \"1m\"",
                7,
                "plugin.abc.failure.max-age: says when",
            ),
            (
                "max-age = \"0s\"\non-exhausted = \"skip\"",
                6,
                "max-age: must be above zero",
            ),
            (
                "on-exhausted = \"dead-letter\"",
                6,
                "set dead-letter as well",
            ),
            (
                "on-exhausted = \"skip\"\ndead-letter = \"stdout\"",
                7,
                "is only used with on-exhausted",
            ),
            (
                "dead-letter = \"stdout\"",
                6,
                "is only used with on-exhausted",
            ),
            (
                "on-exhausted = \"dead-letter\"\ndead-letter = \"lost\"",
                7,
                "add [sinks.lost]",
            ),
            ("on-exhausted = \"later\"", 6, "unknown value `later`"),
            (
                "unavailable-attempts = 0\non-exhausted = \"skip\"",
                6,
                "unavailable-attempts: must be at least 1",
            ),
            ("misconfigured-attempts = 3", 6, "but not what happens then"),
            ("atempts = 1", 6, "unknown field `atempts`"),
        ] {
            let error = parsed(&format!("{earlier}[plugin.abc.failure]\n{section}\n")).unwrap_err();
            assert!(
                error.contains(&format!("line {line}")) && error.contains(mend),
                "{section}: {error}"
            );
        }
    }
}
