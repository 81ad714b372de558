//! What hosts report of their load, and what the leader makes of it, as maps in rows that are
//! written anyway. Names are short: every host reads these rows each second.

use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use shardmill_core::scaling::{Bound, Figure, HostLoad, ScalingPolicy};
use shardmill_core::stream::ShardId;
use shardmill_core::text::shortened;

use super::attributes::{Item, number, text};
use super::row::{for_people, string, unsigned};

const SHARDS: &str = "shards";
const CORES: &str = "coresMilli";
const PROCESS: &str = "processMilli";
const USED: &str = "usedMilli";
const BUSY: &str = "busyMilli";
const RECORDS: &str = "recordsMilli";
const ARRIVING: &str = "arrivingMilli";
const BACKLOG: &str = "backlog";
const LAG: &str = "lagMillis";
const STEADY: &str = "steadyMilli";
const NEEDED: &str = "neededMilli";
const HEAVIEST: &str = "heaviestMilli";
const WORST: &str = "worst";
/// Shards for which more hosts would do nothing; each absent if there are none.
const PLUGIN: &str = "byPlugin";
const SINK: &str = "bySink";
const READING: &str = "byReading";
const BLOCKED: &str = "blocked";
const PAUSED: &str = "paused";

const WANTED: &str = "wanted";
const UNDAMPED: &str = "undamped";
const LOAD: &str = "loadMilli";
const MIN: &str = "min";
const MAX: &str = "max";
const CATCH_UP: &str = "catchUpMillis";
const SETTLE: &str = "settleMillis";
const WHY: &str = "why";

/// Far more hosts than a fleet has: what a row says beyond is nonsense.
const HOSTS_MAX: usize = 1_000_000;

pub(super) fn encode_load(load: &HostLoad) -> AttributeValue {
    let mut item = Item::from([
        (SHARDS.to_owned(), number(load.shards)),
        (CORES.to_owned(), number(load.cores_milli)),
        (PROCESS.to_owned(), number(load.process_milli)),
        (USED.to_owned(), number(load.used_milli)),
        (BUSY.to_owned(), number(load.busy_milli)),
        (RECORDS.to_owned(), number(load.records_milli)),
        (ARRIVING.to_owned(), number(load.arriving_milli)),
        (BACKLOG.to_owned(), number(load.backlog)),
        (LAG.to_owned(), number(load.lag_ms)),
        (STEADY.to_owned(), number(load.steady_milli)),
        (NEEDED.to_owned(), number(load.needed_milli)),
        (HEAVIEST.to_owned(), number(load.heaviest_milli)),
    ]);
    for (name, count) in bounds(&load.bound) {
        if count > 0 {
            item.insert(name.to_owned(), number(count));
        }
    }
    if let Some(shard) = &load.worst {
        item.insert(WORST.to_owned(), text(shard.as_str()));
    }
    AttributeValue::M(item)
}

fn bounds(bound: &Bound) -> [(&'static str, u64); 5] {
    [
        (PLUGIN, bound.plugin),
        (SINK, bound.sink),
        (READING, bound.reading),
        (BLOCKED, bound.blocked),
        (PAUSED, bound.paused),
    ]
}

/// `None` for one that cannot be read, as of a host of another version: a load that is not known
/// must not make the host's whole row unreadable, since that row holds its leases.
pub(super) fn decode_load(value: &AttributeValue) -> Option<HostLoad> {
    let item = value.as_m().ok()?;
    let of = |name| unsigned(item, name).ok();
    let count = |name| unsigned(item, name).unwrap_or_default();
    Some(HostLoad {
        shards: of(SHARDS)?,
        cores_milli: of(CORES)?,
        process_milli: of(PROCESS)?,
        used_milli: of(USED)?,
        busy_milli: of(BUSY)?,
        records_milli: of(RECORDS)?,
        arriving_milli: of(ARRIVING)?,
        backlog: of(BACKLOG)?,
        lag_ms: of(LAG)?,
        steady_milli: of(STEADY)?,
        needed_milli: of(NEEDED)?,
        heaviest_milli: of(HEAVIEST)?,
        bound: Bound {
            plugin: count(PLUGIN),
            sink: count(SINK),
            reading: count(READING),
            blocked: count(BLOCKED),
            paused: count(PAUSED),
        },
        worst: string(item, WORST)
            .ok()
            .and_then(|id| ShardId::new(id).ok()),
    })
}

pub(super) fn encode_figure(figure: &Figure) -> AttributeValue {
    let policy = &figure.policy;
    let mut item = Item::from([
        (WANTED.to_owned(), number(figure.wanted as u64)),
        (LOAD.to_owned(), number(figure.load_milli)),
        (SHARDS.to_owned(), number(figure.shards as u64)),
        (MIN.to_owned(), number(policy.hosts_min as u64)),
        (CATCH_UP.to_owned(), number(millis(policy.catch_up))),
        (SETTLE.to_owned(), number(millis(policy.settle))),
        (
            WHY.to_owned(),
            text(&shortened(&figure.why, Figure::WHY_CHARS_MAX)),
        ),
    ]);
    if policy.hosts_max < usize::MAX {
        item.insert(MAX.to_owned(), number(policy.hosts_max as u64));
    }
    if let Some(undamped) = figure.undamped {
        item.insert(UNDAMPED.to_owned(), number(undamped as u64));
    }
    AttributeValue::M(item)
}

/// `None` for one that cannot be read: then nothing is wanted of anybody.
pub(super) fn decode_figure(value: &AttributeValue) -> Option<Figure> {
    let item = value.as_m().ok()?;
    let hosts = |name| -> Option<usize> {
        let hosts = usize::try_from(unsigned(item, name).ok()?).ok()?;
        (hosts <= HOSTS_MAX).then_some(hosts)
    };
    let time = |name| unsigned(item, name).ok().map(Duration::from_millis);
    Some(Figure {
        wanted: hosts(WANTED)?,
        undamped: hosts(UNDAMPED),
        load_milli: unsigned(item, LOAD).ok()?,
        shards: hosts(SHARDS)?,
        policy: ScalingPolicy {
            hosts_min: hosts(MIN)?,
            hosts_max: hosts(MAX).unwrap_or(usize::MAX),
            catch_up: time(CATCH_UP)?,
            settle: time(SETTLE)?,
        },
        why: for_people(item, WHY).ok()?,
    })
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load() -> HostLoad {
        HostLoad {
            shards: 4,
            cores_milli: 2_000,
            process_milli: 1_900,
            used_milli: 1_500,
            busy_milli: 3_900,
            records_milli: 12_345_678,
            arriving_milli: 23_456_789,
            backlog: 1_000_000,
            lag_ms: 123_456,
            steady_milli: 3_000,
            needed_milli: 4_000,
            heaviest_milli: 900,
            bound: Bound {
                plugin: 1,
                sink: 2,
                reading: 3,
                blocked: 4,
                paused: 5,
            },
            worst: ShardId::new("shardId-000000000001").ok(),
        }
    }

    fn figure() -> Figure {
        Figure {
            wanted: 7,
            undamped: Some(5),
            load_milli: 6_250,
            shards: 16,
            policy: ScalingPolicy {
                hosts_min: 2,
                hosts_max: 9,
                catch_up: Duration::from_secs(90),
                settle: Duration::from_mins(3),
            },
            why: "what arrives needs so many".to_owned(),
        }
    }

    #[test]
    fn loads_and_figures_survive_a_round_trip() {
        for load in [load(), HostLoad::default()] {
            assert_eq!(decode_load(&encode_load(&load)), Some(load));
        }
        let unlimited = Figure {
            undamped: None,
            policy: ScalingPolicy::default(),
            ..figure()
        };
        for figure in [figure(), unlimited] {
            assert_eq!(decode_figure(&encode_figure(&figure)), Some(figure));
        }
    }

    #[test]
    fn what_cannot_be_read_counts_as_unknown_and_never_as_nothing() {
        let without = |value: AttributeValue, name: &str| {
            let mut item = value.as_m().unwrap().clone();
            item.remove(name);
            AttributeValue::M(item)
        };
        for name in [SHARDS, CORES, NEEDED, LAG] {
            assert_eq!(decode_load(&without(encode_load(&load()), name)), None);
        }
        for name in [WANTED, SHARDS, SETTLE] {
            let lacking = without(encode_figure(&figure()), name);
            assert_eq!(decode_figure(&lacking), None, "{name}");
        }
        let mad = Figure {
            wanted: 1 << 40,
            ..figure()
        };
        assert_eq!(decode_figure(&encode_figure(&mad)), None);
        assert_eq!(decode_load(&text("much")), None);
        assert_eq!(decode_figure(&text("many")), None);
    }
}
