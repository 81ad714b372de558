//! What a fleet asks of AWS, in the units that AWS bills: arithmetic on its size and its settings.
//!
//! Coordination follows decision 19: three hosts watch everything, the others heed. The row sizes
//! come from the fleet benchmark; the tests compare these figures with its counts.

use std::time::Duration;

use crate::fleet::pace::{LEASE_ROW_BYTES, WORKER_ROW_BYTES};

/// Hosts that watch the whole fleet: the leader and its deputies.
const WATCHERS: u32 = 3;
/// A lease's row before its first checkpoint: no digest of a plugin, no times.
const NEW_LEASE_BYTES: f64 = 273.0;
/// An eventually consistent read of this size costs half a unit (DynamoDB).
const READ_UNIT_BYTES: f64 = 4_096.0;
/// A write of this size costs one unit (DynamoDB), and two in a transaction.
const WRITE_UNIT_BYTES: f64 = 1_024.0;
/// An eventually consistent read of one or two rows.
const SMALL_READ: f64 = 0.5;
/// One application: a plugin on one stream.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Load {
    /// Hosts that serve it.
    pub hosts: u32,
    /// Open shards of the stream.
    pub shards: u32,
    /// Leases in the table that hosts scan: those of its other streams too, where one table holds
    /// several.
    pub leases_in_table: u32,
    /// Records a second, over all shards.
    pub records: f64,
    /// Bytes of a record, key and data.
    pub record_bytes: f64,
    /// Bytes of a shard's state, if the plugin keeps state.
    pub state_bytes: Option<f64>,
}

/// The settings that the cost depends on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pace {
    /// How long a lease lasts: `leases.duration`.
    pub lease: Duration,
    /// How often a host sends a heartbeat: `leases.renew-every`.
    pub renew_every: Duration,
    /// How often a host looks at the fleet: `leases.scan-every`.
    pub scan_every: Duration,
    /// Settled records that trigger a checkpoint: `checkpoint.records`.
    pub checkpoint_records: u64,
    /// Settled bytes that trigger a checkpoint: `checkpoint.bytes`.
    pub checkpoint_bytes: u64,
    /// Age of settled records that triggers a checkpoint: `checkpoint.age`.
    pub checkpoint_age: Duration,
}

/// What one kind of request costs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Share {
    /// The kind of request.
    pub what: &'static str,
    /// Units of DynamoDB's reads a second.
    pub reads: f64,
    /// Units of DynamoDB's writes a second.
    pub writes: f64,
    /// The settings and figures that the cost depends on.
    pub why: &'static str,
}

impl Share {
    fn of_reads(what: &'static str, reads: f64, why: &'static str) -> Self {
        Self {
            what,
            reads,
            writes: 0.0,
            why,
        }
    }

    fn of_writes(what: &'static str, writes: f64, why: &'static str) -> Self {
        Self {
            what,
            reads: 0.0,
            writes,
            why,
        }
    }
}

/// What an application costs in DynamoDB while its fleet is settled: no host joins, leaves or dies.
pub fn of_tables(load: Load, pace: Pace) -> Vec<Share> {
    let lease = seconds(pace.lease);
    let hosts = f64::from(load.hosts);
    let watchers = f64::from(load.hosts.min(WATCHERS));
    let heeding = hosts - watchers;
    let looks = 1.0 / seconds(pace.scan_every);
    vec![
        Share::of_writes(
            "heartbeats",
            hosts / seconds(pace.renew_every),
            "hosts / leases.renew-every",
        ),
        Share::of_writes(
            "leading",
            1.0 / seconds(pace.renew_every),
            "one record / leases.renew-every",
        ),
        Share::of_reads(
            "watching leases",
            watchers * units_of_scan(load) / lease,
            "3 hosts scan all leases once in leases.duration",
        ),
        Share::of_reads(
            "watching hosts",
            watchers * units_of_registrations(hosts) * looks,
            "3 hosts read all registrations every leases.scan-every",
        ),
        Share::of_reads(
            "mail",
            heeding * SMALL_READ * looks,
            "every other host reads its mail every leases.scan-every",
        ),
        Share::of_reads(
            "board",
            heeding * SMALL_READ / lease,
            "and the board in leases.duration",
        ),
        of_checkpoints(load, pace),
    ]
}

/// What a look at all leases costs.
fn units_of_scan(load: Load) -> f64 {
    let row = if load.records > 0.0 {
        LEASE_ROW_BYTES as f64
    } else {
        NEW_LEASE_BYTES
    };
    f64::from(load.leases_in_table) * row / READ_UNIT_BYTES * SMALL_READ
}

/// What a look at the registrations of all hosts costs.
fn units_of_registrations(hosts: f64) -> f64 {
    let units = hosts * WORKER_ROW_BYTES as f64 / READ_UNIT_BYTES * SMALL_READ;
    units.max(SMALL_READ)
}

fn of_checkpoints(load: Load, pace: Pace) -> Share {
    let units = load.state_bytes.map_or(1.0, |bytes| {
        2.0 * (1.0 + (bytes / WRITE_UNIT_BYTES).ceil().max(1.0))
    });
    let why = match load.state_bytes {
        None => "shards that get records / [checkpoint]",
        Some(_) => "the same; twice for the transaction, and a unit for each KiB of state",
    };
    Share::of_writes("checkpoints", checkpoints(load, pace) * units, why)
}

/// Checkpoints a second, over all shards. A checkpoint is written when the first of its bounds is
/// reached, and the next period begins with the next record.
pub fn checkpoints(load: Load, pace: Pace) -> f64 {
    let shards = f64::from(load.shards);
    if shards < 1.0 || load.records <= 0.0 {
        return 0.0;
    }
    let of_shard = load.records / shards;
    let by_records = count(pace.checkpoint_records) / of_shard;
    let by_bytes = count(pace.checkpoint_bytes) / (of_shard * load.record_bytes.max(1.0));
    let period = seconds(pace.checkpoint_age).min(by_records).min(by_bytes);
    shards / (period + 1.0 / of_shard)
}

fn seconds(time: Duration) -> f64 {
    time.as_secs_f64().max(0.001)
}

fn count(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACE: Pace = Pace {
        lease: Duration::from_secs(10),
        renew_every: Duration::from_millis(3_600),
        scan_every: Duration::from_secs(1),
        checkpoint_records: 10_000,
        checkpoint_bytes: 16 << 20,
        checkpoint_age: Duration::from_secs(3),
    };

    fn load(hosts: u32, shards: u32, records: f64) -> Load {
        Load {
            hosts,
            shards,
            leases_in_table: shards,
            records,
            record_bytes: 1_000.0,
            state_bytes: None,
        }
    }

    fn sums(load: Load) -> (f64, f64) {
        let shares = of_tables(load, PACE);
        (
            shares.iter().map(|share| share.reads).sum(),
            shares.iter().map(|share| share.writes).sum(),
        )
    }

    #[test]
    fn an_idle_fleet_costs_what_the_benchmark_counted() {
        // Millions of units in an hour with 10,000 leases: docs/benchmarks.md, "Fleets".
        for (hosts, reads, writes) in [
            (1, 0.12, 0.002),
            (16, 0.41, 0.02),
            (64, 0.49, 0.06),
            (256, 0.98, 0.26),
            (1_000, 2.87, 1.00),
        ] {
            let (read, written) = sums(load(hosts, 10_000, 0.0));
            let in_millions = |units: f64| units * 3_600.0 / 1e6;
            let is_near = |units: f64, counted: f64| {
                (in_millions(units) / counted - 1.0).abs() < 0.1
                    || (in_millions(units) - counted).abs() < 0.005
            };
            assert!(
                is_near(read, reads),
                "{hosts} hosts read {}",
                in_millions(read)
            );
            assert!(
                is_near(written, writes),
                "{hosts} hosts write {}",
                in_millions(written)
            );
        }
    }

    #[test]
    fn checkpoints_are_bounded_by_age_records_and_bytes_and_never_more_than_records() {
        let near = |load: Load, expected: f64| {
            let found = checkpoints(load, PACE);
            assert!(
                (found / expected - 1.0).abs() < 0.01,
                "{found} and not {expected}"
            );
        };
        near(load(1, 4, 400_000.0), 4.0 / (0.1 + 0.000_01));
        near(load(1, 4, 4_000.0), 4.0 / (3.0 + 0.001));
        near(load(1, 4, 0.004), 0.004);
        let large = Load {
            record_bytes: 1e6,
            ..load(1, 1, 16.777_216)
        };
        near(large, 1.0 / (1.0 + 1.0 / 16.777_216));
        assert!(checkpoints(load(1, 4, 0.0), PACE).abs() < f64::EPSILON);
        assert!(checkpoints(load(1, 0, 5.0), PACE).abs() < f64::EPSILON);
    }

    #[test]
    fn state_is_paid_twice_and_by_the_kilobyte() {
        let checkpoint = |state_bytes| {
            let shares = of_tables(
                Load {
                    state_bytes,
                    ..load(1, 1, 1_000.0)
                },
                PACE,
            );
            shares.last().map(|share| share.writes).unwrap()
        };
        let plain = checkpoint(None);
        assert!((checkpoint(Some(100.0)) / plain - 4.0).abs() < 1e-9);
        assert!((checkpoint(Some(10_240.0)) / plain - 22.0).abs() < 1e-9);
    }

    #[test]
    fn a_fleet_of_nothing_costs_nothing_that_is_not_a_number() {
        let (reads, writes) = sums(load(0, 0, 0.0));
        assert!(reads.is_finite() && writes.is_finite());
    }
}
