//! Which workers of an old fleet are alive.

use super::*;

const FAILOVER: Duration = Duration::from_secs(10);

fn moment(seconds: u64) -> Moment {
    Moment::from_origin(Duration::from_secs(seconds))
}

fn look(timeout: &str) -> Found {
    of_vmware(vec![vmware(P, Some("5"), Some("w"), timeout)])
}

fn life_of(watch: &FleetWatch, seconds: u64) -> Pulse {
    watch.lives(moment(seconds), FAILOVER)[0].pulse
}

#[test]
fn an_owner_whose_timeout_moves_lives_whatever_the_time_in_it() {
    let mut watch = FleetWatch::default();
    watch.observe(&look("1970-01-01T00:00:00Z"), moment(0));
    assert!(life_of(&watch, 0).may_live());
    watch.observe(&look("1970-01-01T00:00:01Z"), moment(4));
    assert_eq!(life_of(&watch, 4), Pulse::Beats);
}

#[test]
fn an_owner_that_stands_still_for_longer_than_the_failover_time_is_dead_and_not_before() {
    let mut watch = FleetWatch::default();
    for second in [0, 5, 10] {
        watch.observe(&look("2999-01-01T00:00:00Z"), moment(second));
        assert!(life_of(&watch, second).may_live(), "{second}");
    }
    assert!(!life_of(&watch, 11).may_live());
}

#[test]
fn a_worker_that_left_the_tables_is_gone_and_the_fleet_is_quiet_only_a_while_later() {
    let mut watch = FleetWatch::default();
    watch.observe(&look("a"), moment(0));
    watch.observe(&of_vmware(vec![vmware(P, Some("5"), None, "a")]), moment(2));
    assert!(watch.lives(moment(2), FAILOVER).is_empty());
    assert_eq!(watch.quiet_for(moment(2)), Duration::ZERO);
    assert_eq!(watch.quiet_for(moment(5)), Duration::from_secs(3));
}

#[test]
fn a_worker_that_appears_between_two_looks_was_seen_to_write() {
    let mut watch = FleetWatch::default();
    watch.observe(&of_vmware(vec![vmware(P, Some("5"), None, "a")]), moment(0));
    watch.observe(&look("a"), moment(2));
    assert_eq!(life_of(&watch, 2), Pulse::Beats);
}
