//! The section `[tick]` of a plugin.

use std::time::Duration;

use serde::Deserialize;
use shardmill_core::pipeline::{Parallelism, TickInterval};

use super::duration;
use super::problem::Problem;

const KEY: &str = "tick.every";

#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct TickFile {
    #[serde(default, deserialize_with = "duration::optional")]
    every: Option<Duration>,
}

impl TickFile {
    /// These keys, and those of `under` that are not set here.
    pub(super) fn laid_over(self, under: Self) -> Self {
        Self {
            every: self.every.or(under.every),
        }
    }

    /// The interval, for a plugin with so many instances for a shard.
    pub(super) fn check(self, parallelism: Parallelism) -> Result<TickInterval, Problem> {
        let Some(every) = self.every else {
            return Ok(TickInterval::default());
        };
        if parallelism.is_parallel() {
            let message = "a tick is about all records of a shard, which no one of several \
                instances has: remove this, or parallelism";
            return Err(Problem::new(KEY, message));
        }
        TickInterval::new(every).ok_or_else(|| {
            let (least, most) = (TickInterval::MIN, TickInterval::MAX);
            let message = format!(
                "must be between {least:?} and {most:?}: each tick may cost a write to the \
                    table, and a longer wait would begin again with each move of the lease"
            );
            Problem::new(KEY, message)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use shardmill_core::plugin::PluginName;

    use crate::Config;

    /// The interval of plugin `abc` on a host with this configuration.
    fn of_abc(config: &str) -> Result<Duration, String> {
        let config = Config::parse(&format!("stream = \"s\"\n{config}"), Path::new("."))?;
        let settings = config.of_plugin(&PluginName::new("abc").unwrap(), None)?;
        Ok(settings.tick.get())
    }

    #[test]
    fn a_plugin_ticks_every_ten_seconds_or_as_it_says_from_a_second_to_an_hour() {
        assert_eq!(of_abc(""), Ok(Duration::from_secs(10)));
        for (text, seconds) in [("1s", 1), ("90s", 90), ("1h", 3_600)] {
            let set = format!("[plugin.abc.tick]\nevery = \"{text}\"\n");
            assert_eq!(of_abc(&set), Ok(Duration::from_secs(seconds)));
        }
        for text in ["0s", "999ms", "61m"] {
            let set = format!("[plugin.abc.tick]\nevery = \"{text}\"\n");
            let refused = of_abc(&set).unwrap_err();
            assert!(
                refused.contains("tick.every: must be between 1s and"),
                "{refused}"
            );
        }
    }

    #[test]
    fn ticks_are_refused_where_several_instances_share_a_shard() {
        let set = "[plugin.abc]\nparallelism = 2\n[plugin.abc.failure]\norder = \"key\"\n\
            [plugin.abc.tick]\nevery = \"5s\"\n";
        let refused = of_abc(set).unwrap_err();
        assert!(
            refused.contains("tick.every: a tick is about all records"),
            "{refused}"
        );
        let unset = set.split("[plugin.abc.tick]").next().unwrap();
        assert!(of_abc(unset).is_ok(), "most plugins want no ticks");
    }
}
