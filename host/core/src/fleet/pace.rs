//! How often a host may read data that grow with the fleet. All bounds are in DynamoDB read units:
//! 4 KB, or 8 KB for the eventually consistent reads that are paced here.

use std::time::Duration;

/// Bytes that one unit of an eventually consistent read covers.
const UNIT_BYTES: f64 = 8_192.0;
/// Bytes of a row of the lease table: the most without notes for people.
pub(crate) const LEASE_ROW_BYTES: usize = 640;
/// Bytes of a worker's row, with the versions of its plugin.
pub(crate) const WORKER_ROW_BYTES: usize = 420;
/// What all heeding hosts together may spend on their own looks, in units a second, whatever the
/// size of the fleet.
const OWN_LOOKS_UNITS: f64 = 50.0;
/// What they may spend on the rows of workers while a version waits for their turn, in units a
/// second: a fifteenth of what the single partition of these rows can deliver.
const TURN_UNITS: f64 = 200.0;
/// What all hosts together may spend on scans beside a KCL, in units a second: a fifth of the 10
/// that a KCL long gave its table.
const BESIDE_KCL_UNITS: f64 = 2.0;
/// Most hosts that register in a second: a tenth of the writes that one partition takes, beside the
/// heartbeats.
const JOINS_A_SECOND: f64 = 25.0;

/// What a scan of `leases` rows costs, if they are as large as those that we write.
pub(crate) fn scan_units(leases: usize) -> f64 {
    units(leases * LEASE_ROW_BYTES)
}

/// What an eventually consistent read of this many bytes costs.
fn units(bytes: usize) -> f64 {
    (bytes as f64 / UNIT_BYTES).max(0.5)
}

/// What a look at the rows of `hosts` workers costs.
pub(crate) fn fleet_units(hosts: usize) -> f64 {
    units(hosts * WORKER_ROW_BYTES)
}

/// How often a heeding host looks itself, whatever the leader leaves for it: every three lease
/// durations, or less often, so that all hosts together stay within a bound.
pub fn own_look_every(hosts: usize, leases: usize, lease_duration: Duration) -> Duration {
    let units = hosts as f64 * (fleet_units(hosts) + scan_units(leases));
    Duration::from_secs_f64(units / OWN_LOOKS_UNITS).max(lease_duration * 3)
}

/// How often a heeding host reads the rows of all workers while it waits for its turn with a new
/// version.
pub fn fleet_look_every(hosts: usize, look_every: Duration) -> Duration {
    Duration::from_secs_f64(hosts as f64 * fleet_units(hosts) / TURN_UNITS).max(look_every)
}

/// How often each of `scanning` hosts scans a table of this many bytes beside a KCL: every three
/// lease durations, or less often, so that a provisioned table has units left for the KCL. Counts
/// bytes and not rows, since others write to the rows too, and may keep other rows in the table.
pub fn scan_every_beside_kcl(
    table_bytes: usize,
    scanning: usize,
    lease_duration: Duration,
) -> Duration {
    let units = scanning.max(1) as f64 * units(table_bytes);
    Duration::from_secs_f64(units / BESIDE_KCL_UNITS).max(lease_duration / 3)
}

/// The time over which hosts that join a fleet of `hosts` spread their registration: a tenth of the
/// fleet may start at once. In a small fleet it is too short to notice.
pub fn join_within(hosts: usize) -> Duration {
    Duration::from_secs_f64(hosts as f64 / 10.0 / JOINS_A_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(10);

    #[test]
    fn what_all_hosts_spend_on_looking_for_themselves_is_bounded_at_every_size() {
        for (hosts, leases) in [
            (4, 8),
            (16, 10_000),
            (64, 1_000),
            (256, 10_000),
            (1_000, 10_000),
        ] {
            let each = fleet_units(hosts) + scan_units(leases);
            let spent = hosts as f64 * each / own_look_every(hosts, leases, LEASE).as_secs_f64();
            assert!(
                spent <= OWN_LOOKS_UNITS + 0.001,
                "{hosts} {leases}: {spent}"
            );
        }
        assert_eq!(
            own_look_every(4, 8, LEASE),
            LEASE * 3,
            "and a small fleet looks often"
        );
        assert_eq!(
            fleet_look_every(16, Duration::from_secs(1)),
            Duration::from_secs(1)
        );
        assert!(fleet_look_every(1_000, Duration::from_secs(1)) < Duration::from_mins(5));
    }

    #[test]
    fn scans_beside_a_kcl_leave_it_most_of_ten_provisioned_units() {
        for (leases, scanning) in [(4, 1), (4, 3), (1_000, 1), (1_000, 3), (10_000, 3)] {
            for row_bytes in [LEASE_ROW_BYTES, 10_240] {
                let every =
                    scan_every_beside_kcl(leases * row_bytes, scanning, LEASE).as_secs_f64();
                let spent = scanning as f64 * (leases * row_bytes) as f64 / UNIT_BYTES / every;
                assert!(
                    spent <= BESIDE_KCL_UNITS + 0.001,
                    "{leases} of {row_bytes} bytes, {scanning}: {spent}"
                );
            }
        }
        assert_eq!(
            scan_every_beside_kcl(4 * LEASE_ROW_BYTES, 3, LEASE),
            LEASE / 3
        );
    }

    #[test]
    fn hosts_join_a_large_fleet_one_after_the_other_and_a_small_one_at_once() {
        assert_eq!(join_within(1_000), Duration::from_secs(4));
        assert!(join_within(3) < Duration::from_millis(20));
    }
}
