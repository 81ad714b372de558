//! The least that a time may be by which the host repeats something, or gives something up. Below
//! it a mistyped unit would be a busy loop, a bill, or a host on which nothing can succeed.

use std::time::Duration;

use super::duration::parse_duration;
use super::problem::Problem;

/// The least that one time may be.
#[derive(Debug, Clone, Copy)]
pub struct Floor {
    /// The key, or the flag.
    name: &'static str,
    millis: u64,
    /// The same for people, with the reason.
    refusal: &'static str,
}

pub(super) const RENEW_EVERY: Floor = Floor {
    name: "leases.renew-every",
    millis: 100,
    refusal: "must be at least 100ms: each heartbeat is a write to DynamoDB for every plugin",
};
pub(super) const SCAN_EVERY: Floor = Floor {
    name: "leases.scan-every",
    millis: 100,
    refusal: "must be at least 100ms: each look is a request to DynamoDB for every plugin",
};
pub(super) const SHARD_SYNC_EVERY: Floor = Floor {
    name: "leases.shard-sync-every",
    millis: 1_000,
    refusal: "must be at least 1s: each listing asks Kinesis for all shards of the stream",
};
pub(super) const IDLE_EVERY: Floor = Floor {
    name: "reads.idle-every",
    millis: 10,
    refusal: "must be at least 10ms: each call to a silent shard counts against its limit",
};
pub(super) const RETRY_BASE: Floor = Floor {
    name: "retry.base",
    millis: 10,
    refusal: "must be at least 10ms: what fails at once would be tried again without a pause",
};
pub(super) const PROCESS_DEADLINE: Floor = Floor {
    name: "process-deadline",
    millis: 10,
    refusal: "must be at least 10ms: calls are stopped by a clock that ticks no faster",
};
pub(super) const INIT_DEADLINE: Floor = Floor {
    name: "init-deadline",
    ..PROCESS_DEADLINE
};
pub(super) const COMPILE_WALL: Floor = Floor {
    name: "compile.wall",
    millis: 1_000,
    refusal: "must be at least 1s: nothing is compiled in less",
};
pub(super) const CANARY_FOR: Floor = Floor {
    name: "rollout.canary-for",
    millis: 1_000,
    refusal: "must be at least 1s, or nothing is seen of the version; to skip trials, set \
        enabled = false",
};
pub(super) const QUARANTINE_FOR: Floor = Floor {
    name: "rollout.quarantine-for",
    millis: 60_000,
    refusal: "must be at least 1m, or a bad version is tried again and again; to never \
        quarantine, set enabled = false",
};
pub(super) const RESCAN_EVERY: Floor = Floor {
    name: "host.rescan-every",
    millis: 100,
    refusal: "must be at least 100ms: each look asks the system about every file of the folder",
};
pub(super) const PULL_EVERY: Floor = Floor {
    name: "pull.every",
    millis: 1_000,
    refusal: "must be at least 1s: each look is a request to the registry for every source",
};
/// The shortest interval for `leases --watch`.
pub const WATCH: Floor = Floor {
    name: "--watch",
    millis: 100,
    refusal: "must be at least 100ms: each look reads the whole table",
};
/// The shortest time limit for `test --timeout`.
pub const TIMEOUT: Floor = Floor {
    name: "--timeout",
    millis: 100,
    refusal: "must be at least 100ms, or the run ends before its first record",
};
/// `doctor --failover-time` and `import --failover-time`.
pub const FAILOVER_TIME: Floor = Floor {
    name: "--failover-time",
    millis: 100,
    refusal: "must be at least 100ms, or workers that are alive count as dead",
};

impl Floor {
    /// The value of a flag.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(self, text: &str) -> Result<Duration, String> {
        let time = parse_duration(text)?;
        if !self.is_met_by(time) {
            return Err(self.refusal.to_owned());
        }
        Ok(time)
    }

    /// The value of a setting, which is refused if it is shorter, or its default.
    pub(super) fn check(
        self,
        set: Option<Duration>,
        default: Duration,
    ) -> Result<Duration, Problem> {
        let time = set.unwrap_or(default);
        if set.is_some() && !self.is_met_by(time) {
            return Err(Problem::new(self.name, self.refusal));
        }
        Ok(time)
    }

    /// In nanoseconds, and why.
    pub(super) const fn in_nanoseconds(self) -> (u64, &'static str) {
        (self.millis * 1_000_000, self.refusal)
    }

    fn is_met_by(self, time: Duration) -> bool {
        time >= Duration::from_millis(self.millis)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OF_SETTINGS: [Floor; 12] = [
        PULL_EVERY,
        RENEW_EVERY,
        SCAN_EVERY,
        SHARD_SYNC_EVERY,
        IDLE_EVERY,
        RETRY_BASE,
        PROCESS_DEADLINE,
        INIT_DEADLINE,
        COMPILE_WALL,
        CANARY_FOR,
        QUARANTINE_FOR,
        RESCAN_EVERY,
    ];

    #[test]
    fn a_floor_holds_and_its_refusal_says_where_it_is() {
        for floor in OF_SETTINGS
            .into_iter()
            .chain([WATCH, TIMEOUT, FAILOVER_TIME])
        {
            let least = Duration::from_millis(floor.millis);
            let text = humantime::format_duration(least).to_string();
            assert_eq!(floor.parse(&text), Ok(least), "{}", floor.name);
            let set = |time| floor.check(Some(time), Duration::MAX);
            assert_eq!(set(least).ok(), Some(least), "{}", floor.name);
            let below = least.saturating_sub(Duration::from_millis(1));
            let below_text = humantime::format_duration(below).to_string();
            let told = floor.parse(&below_text).unwrap_err();
            assert!(
                told.starts_with(&format!("must be at least {text}")),
                "{told}"
            );
            let told = set(below).unwrap_err().to_string();
            assert_eq!(told, format!("{}: {}", floor.name, floor.refusal));
        }
    }

    #[test]
    fn every_floor_of_a_setting_is_in_the_documentation() {
        let docs = include_str!("../../../docs/configuration.md");
        for floor in OF_SETTINGS {
            let key = floor.name.rsplit('.').next().unwrap_or(floor.name);
            let key = format!("`{key}`");
            let is_of_key = |line: &&str| {
                let named = line.split(" | ").next().unwrap_or_default();
                line.starts_with("| ") && named.contains(&key)
            };
            let row = docs.lines().find(is_of_key).unwrap();
            let least = humantime::format_duration(Duration::from_millis(floor.millis));
            assert!(row.contains(&format!("at least {least}")), "{row}");
        }
    }
}
