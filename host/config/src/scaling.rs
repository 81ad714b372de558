//! The section `[scaling]`: how many hosts are wanted.

use std::time::Duration;

use serde::Deserialize;
use shardmill_core::scaling::ScalingPolicy;

use super::duration;
use super::problem::Problem;
use super::settings::ScalingConfig;

/// A thousandth of a core is the least that can be counted.
const CORES_MIN: f64 = 0.001;
/// More than any machine has.
const CORES_MAX: f64 = 100_000.0;

/// As written; that it is there turns it on, unless it says otherwise.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct ScalingFile {
    enabled: Option<bool>,
    hosts_min: Option<usize>,
    hosts_max: Option<usize>,
    #[serde(default, deserialize_with = "duration::optional")]
    catch_up: Option<Duration>,
    #[serde(default, deserialize_with = "duration::optional")]
    settle: Option<Duration>,
    cores: Option<f64>,
}

/// `None` if there is no section, or it is turned off.
pub(super) fn check(section: Option<ScalingFile>) -> Result<Option<ScalingConfig>, Problem> {
    section.map_or(Ok(None), ScalingFile::check)
}

impl ScalingFile {
    fn check(self) -> Result<Option<ScalingConfig>, Problem> {
        let standard = ScalingPolicy::default();
        let policy = ScalingPolicy {
            hosts_min: self.hosts_min.unwrap_or(standard.hosts_min),
            hosts_max: self.hosts_max.unwrap_or(standard.hosts_max),
            catch_up: self.catch_up.unwrap_or(standard.catch_up),
            settle: self.settle.unwrap_or(standard.settle),
        };
        refuse_counts(&policy)?;
        refuse_times(&policy)?;
        // NaN compares as false, so it is refused here too.
        let is_sane = |cores: f64| (CORES_MIN..=CORES_MAX).contains(&cores);
        if self.cores.is_some_and(|cores| !is_sane(cores)) {
            let message = "must be at least 0.001: the cores that this host may count on; remove it \
                to have the system's answer";
            return Err(Problem::new("scaling.cores", message));
        }
        let config = ScalingConfig {
            policy,
            cores: self.cores,
        };
        Ok((self.enabled != Some(false)).then_some(config))
    }
}

fn refuse_counts(policy: &ScalingPolicy) -> Result<(), Problem> {
    if policy.hosts_min == 0 {
        let message = "must be at least 1: without a host nobody sees that one is wanted";
        return Err(Problem::new("scaling.hosts-min", message));
    }
    if policy.hosts_max < policy.hosts_min {
        let message = format!(
            "must be at least scaling.hosts-min, which is {}",
            policy.hosts_min
        );
        return Err(Problem::new("scaling.hosts-max", message));
    }
    Ok(())
}

fn refuse_times(policy: &ScalingPolicy) -> Result<(), Problem> {
    if policy.catch_up < ScalingPolicy::CATCH_UP_MIN {
        let message = "must be at least 30s: a host takes about that long to start, and a load is \
            measured over 20s";
        return Err(Problem::new("scaling.catch-up", message));
    }
    if policy.settle < ScalingPolicy::SETTLE_MIN {
        let message = "must be at least 30s, or hosts come and go with every pause of the load";
        return Err(Problem::new("scaling.settle", message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::Config;

    fn scaling(text: &str) -> Result<Option<ScalingConfig>, String> {
        Ok(Config::parse(text, Path::new("."))?.scaling)
    }

    #[test]
    fn it_is_off_unless_there_is_a_section_that_does_not_turn_it_off() {
        assert_eq!(scaling(""), Ok(None));
        assert_eq!(scaling("[scaling]\nenabled = false"), Ok(None));
        let usual = ScalingConfig {
            policy: ScalingPolicy::default(),
            cores: None,
        };
        assert_eq!(scaling("[scaling]"), Ok(Some(usual)));
        let own = "[scaling]\nhosts-min = 2\nhosts-max = 9\ncatch-up = \"1m\"\nsettle = \"10m\"\n\
            cores = 1.5";
        let expected = ScalingConfig {
            policy: ScalingPolicy {
                hosts_min: 2,
                hosts_max: 9,
                catch_up: Duration::from_mins(1),
                settle: Duration::from_mins(10),
            },
            cores: Some(1.5),
        };
        assert_eq!(scaling(own), Ok(Some(expected)));
    }

    #[test]
    fn what_cannot_work_is_refused_with_its_line() {
        for (section, expected) in [
            (
                "hosts-min = 0",
                "line 2: scaling.hosts-min: must be at least 1",
            ),
            (
                "hosts-max = 0",
                "line 2: scaling.hosts-max: must be at least scaling.hosts-min",
            ),
            (
                "catch-up = \"29s\"",
                "line 2: scaling.catch-up: must be at least 30s",
            ),
            (
                "settle = \"1s\"",
                "line 2: scaling.settle: must be at least 30s",
            ),
            (
                "cores = 0.0",
                "line 2: scaling.cores: must be at least 0.001",
            ),
            (
                "cores = nan",
                "line 2: scaling.cores: must be at least 0.001",
            ),
            ("hosts = 3", "unknown field `hosts`"),
        ] {
            let told = scaling(&format!("[scaling]\n{section}")).unwrap_err();
            assert!(told.contains(expected), "{told}");
        }
    }
}
