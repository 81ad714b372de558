use std::time::Duration;

use super::*;
use crate::{Record, Tick};

const HOUR_MS: u64 = 3_600_000;
const MINUTE_MS: u64 = 60_000;

fn minutes(minutes: u64) -> Duration {
    Duration::from_secs(minutes * 60)
}

fn arrived(arrival_ms: u64) -> Record<'static> {
    Record {
        arrival_ms,
        ..Record::default()
    }
}

fn silent_until(delivered_until_ms: u64) -> Tick {
    Tick {
        now_ms: delivered_until_ms,
        delivered_until_ms: Some(delivered_until_ms),
    }
}

/// Adds a record of each time, which arrived at that time, to key `a`.
fn add(windows: &mut Windows<u64>, times: &[u64]) -> Vec<Added> {
    let added = windows.change(|windows| {
        let add = |time: &u64| windows.add(&arrived(*time), *time, "a", |count| *count += 1);
        Ok(times.iter().map(add).collect())
    });
    added.unwrap()
}

/// Start, end and value of the windows that have closed.
fn closed(windows: &mut Windows<u64>) -> Vec<(u64, u64, u64)> {
    let closed = windows.change(|windows| Ok(windows.take_closed())).unwrap();
    let parts = |window: &Closed<u64>| (window.start_ms, window.end_ms, window.value);
    closed.iter().map(parts).collect()
}

fn tick(windows: &mut Windows<u64>, tick: &Tick) {
    let ticked = windows.change(|windows| {
        windows.tick(tick);
        Ok(())
    });
    ticked.unwrap();
}

fn hourly() -> Windows<u64> {
    Windows::tumbling(minutes(60)).unwrap()
}

fn sessions() -> Windows<u64> {
    Windows::sessions(minutes(10), |sum, later| *sum += later).unwrap()
}

#[test]
fn a_window_has_its_first_millisecond_and_not_its_end() {
    let mut hours = hourly();
    add(&mut hours, &[HOUR_MS, 2 * HOUR_MS - 1]);
    assert_eq!(closed(&mut hours), []);
    add(&mut hours, &[2 * HOUR_MS]);
    assert_eq!(closed(&mut hours), [(HOUR_MS, 2 * HOUR_MS, 2)]);
    assert_eq!(closed(&mut hours), [], "once");
    assert_eq!(hours.count(), 1);
}

#[test]
fn what_is_late_depends_on_the_records_before_and_not_on_when_windows_are_taken() {
    for takes_each in [true, false] {
        let mut hours = hourly().delayed_by(minutes(5));
        let mut taken = Vec::new();
        let late = HOUR_MS + 1;
        let of_next = 2 * HOUR_MS + 4 * MINUTE_MS;
        for (time, expected) in [
            (HOUR_MS, Added::InWindow),
            (of_next, Added::InWindow),
            (late, Added::InWindow),
            (of_next + MINUTE_MS, Added::InWindow),
            (late, Added::Late),
        ] {
            assert_eq!(add(&mut hours, &[time]), [expected]);
            if takes_each {
                taken.extend(closed(&mut hours));
            }
        }
        taken.extend(closed(&mut hours));
        assert_eq!(taken, [(HOUR_MS, 2 * HOUR_MS, 2)]);
        assert_eq!(hours.late(), 1);
    }
}

#[test]
fn a_record_is_in_each_sliding_window_that_is_open_still() {
    let mut windows = Windows::<u64>::sliding(minutes(10), minutes(5)).unwrap();
    add(&mut windows, &[HOUR_MS + 7 * MINUTE_MS]);
    assert_eq!(windows.count(), 2);
    add(&mut windows, &[HOUR_MS + 10 * MINUTE_MS]);
    // The first of its two windows has ended.
    add(&mut windows, &[HOUR_MS + 8 * MINUTE_MS]);
    let at = |minute: u64| HOUR_MS + minute * MINUTE_MS;
    assert_eq!(closed(&mut windows), [(at(0), at(10), 1)]);
    add(&mut windows, &[at(40)]);
    assert_eq!(
        closed(&mut windows),
        [(at(5), at(15), 3), (at(10), at(20), 1)]
    );
}

#[test]
fn sessions_grow_and_are_joined_by_a_record_between_them() {
    let mut windows = sessions().delayed_by(minutes(60));
    let at = |minute: u64| HOUR_MS + minute * MINUTE_MS;
    add(&mut windows, &[at(0), at(5), at(30), at(31)]);
    assert_eq!(windows.count(), 2);
    add(&mut windows, &[at(13)]);
    assert_eq!(windows.count(), 2);
    add(&mut windows, &[at(22)]);
    assert_eq!(windows.count(), 1);
    add(&mut windows, &[at(200)]);
    assert_eq!(closed(&mut windows), [(at(0), at(41), 6)]);
}

#[test]
fn a_session_that_has_ended_is_not_joined_even_if_it_was_not_taken() {
    let mut windows = sessions();
    let at = |minute: u64| HOUR_MS + minute * MINUTE_MS;
    add(&mut windows, &[at(0)]);
    let other = windows.change(|windows| Ok(windows.add(&arrived(at(12)), at(12), "b", |_| {})));
    assert_eq!(other.unwrap(), Added::InWindow);
    assert_eq!(add(&mut windows, &[at(1)]), [Added::Late]);
    assert_eq!(
        add(&mut windows, &[at(9)]),
        [Added::InWindow],
        "it ends at 19"
    );
    assert_eq!(closed(&mut windows), [(at(0), at(10), 1)]);
}

#[test]
fn on_a_silent_shard_the_watermark_goes_on_with_the_ticks() {
    let mut hours = hourly().delayed_by(minutes(1));
    let last = 2 * HOUR_MS - 10 * MINUTE_MS;
    add(&mut hours, &[last]);
    let grace = u64::try_from(GRACE.as_millis()).unwrap();
    let closes_at = last + 11 * MINUTE_MS + grace;
    tick(&mut hours, &silent_until(closes_at - 1));
    assert_eq!(closed(&mut hours), []);
    let unknown = Tick {
        now_ms: closes_at + HOUR_MS,
        delivered_until_ms: None,
    };
    tick(&mut hours, &unknown);
    assert_eq!(closed(&mut hours), [], "more records may be waiting");
    tick(&mut hours, &silent_until(closes_at));
    assert_eq!(closed(&mut hours), [(HOUR_MS, 2 * HOUR_MS, 1)]);
    assert_eq!(add(&mut hours, &[last]), [Added::Late]);
}

#[test]
fn windows_of_times_long_past_can_be_closed_after_some_silence() {
    let mut hours = hourly().closed_after_silence(minutes(2));
    let now = 1_000 * HOUR_MS;
    let added =
        hours.change(|hours| Ok(hours.add(&arrived(now), HOUR_MS, "a", |count| *count += 1)));
    assert_eq!(added.unwrap(), Added::InWindow);
    tick(&mut hours, &silent_until(now + MINUTE_MS));
    assert_eq!(closed(&mut hours), []);
    tick(&mut hours, &silent_until(now + 3 * MINUTE_MS));
    assert_eq!(closed(&mut hours), [(HOUR_MS, 2 * HOUR_MS, 1)]);
}

#[test]
fn a_silence_before_the_first_record_closes_nothing() {
    let mut hours = hourly().closed_after_silence(minutes(1));
    tick(&mut hours, &silent_until(1_000 * HOUR_MS));
    assert_eq!(hours.watermark_ms(), 0);
    assert_eq!(add(&mut hours, &[HOUR_MS]), [Added::InWindow]);
}

#[test]
fn a_time_far_ahead_of_its_arrival_moves_no_watermark() {
    let mut hours = hourly();
    let wrong = hours
        .change(|hours| Ok(hours.add(&arrived(HOUR_MS), 100 * HOUR_MS, "a", |count| *count += 1)));
    assert_eq!(wrong.unwrap(), Added::Ahead);
    assert_eq!((hours.ahead(), hours.watermark_ms()), (1, 0));
    assert_eq!(add(&mut hours, &[HOUR_MS]), [Added::InWindow]);
}

#[test]
fn a_call_that_fails_leaves_the_windows_as_they_were() {
    let mut hours = hourly();
    add(&mut hours, &[HOUR_MS, HOUR_MS + 1]);
    let before = hours.save().unwrap();
    let failed: Result<(), Error> = hours.change(|hours| {
        for key in ["a", "b"] {
            let added = hours.add(&arrived(3 * HOUR_MS), 3 * HOUR_MS, key, |count| *count += 1);
            assert_eq!(added, Added::InWindow);
        }
        let late = hours.add(&arrived(HOUR_MS), HOUR_MS, "b", |count| *count += 1);
        assert_eq!(late, Added::Late);
        assert_eq!(hours.take_closed().len(), 1);
        Err("the sink is full".into())
    });
    assert!(failed.is_err());
    assert_eq!(hours.save().unwrap(), before);
    assert_eq!(closed(&mut hours), [], "and the watermark too");
}

#[test]
fn another_instance_goes_on_with_what_was_saved() {
    let mut first = sessions().delayed_by(minutes(1));
    let at = |minute: u64| 500_000 * HOUR_MS + minute * MINUTE_MS;
    add(&mut first, &[at(0), at(5), at(3)]);
    let mut second = sessions().delayed_by(minutes(1));
    second.load(&first.save().unwrap()).unwrap();
    add(&mut second, &[at(14), at(40)]);
    assert_eq!(closed(&mut second), [(at(0), at(24), 4)]);
    assert_eq!(add(&mut second, &[at(1)]), [Added::Late]);
    let mut third = hourly();
    third.load(&second.save().unwrap()).unwrap();
    assert_eq!((third.late(), third.watermark_ms()), (1, at(39)));
}

#[test]
fn a_tick_that_closes_nothing_makes_no_other_state() {
    let mut hours = hourly();
    add(&mut hours, &[HOUR_MS]);
    let saved = hours.save().unwrap();
    tick(&mut hours, &silent_until(HOUR_MS + 20 * MINUTE_MS));
    assert_eq!(closed(&mut hours), []);
    assert_eq!(
        hours.save().unwrap(),
        saved,
        "it would be written each time"
    );
    tick(&mut hours, &silent_until(3 * HOUR_MS));
    assert_eq!(closed(&mut hours).len(), 1);
    let mut next = hourly();
    next.load(&hours.save().unwrap()).unwrap();
    assert_eq!(
        add(&mut next, &[HOUR_MS + 1]),
        [Added::Late],
        "a window that was closed is not opened again"
    );
}

#[test]
fn a_state_of_something_else_is_refused() {
    let mut hours = hourly();
    add(&mut hours, &[HOUR_MS]);
    let mut long = hours.save().unwrap();
    long.push(0);
    for wrong in [&b""[..], b"{}", &long, &long[..4]] {
        let refused = hourly().load(wrong).unwrap_err();
        let Error::Other(why) = refused else {
            panic!("{refused:?}");
        };
        assert!(
            why.starts_with("this state is not of these windows"),
            "{why}"
        );
    }
}

#[test]
fn a_window_takes_a_few_bytes_besides_its_key_and_value() {
    let mut hours = hourly().delayed_by(minutes(600));
    let from = 500_000 * HOUR_MS;
    let added = hours.change(|hours| {
        for key in 0..1_000_u32 {
            let time = from + u64::from(key % 10) * HOUR_MS;
            let added = hours.add(&arrived(time), time, &format!("{key:04}"), |count| {
                *count += 1;
            });
            assert_eq!(added, Added::InWindow);
        }
        Ok(())
    });
    added.unwrap();
    let bytes = hours.save().unwrap().len();
    assert!(bytes < 1_000 * 16, "{bytes}");
}

#[test]
fn windows_that_would_lose_or_multiply_records_are_refused() {
    assert!(Windows::<u64>::tumbling(Duration::ZERO).is_err());
    assert!(Windows::<u64>::sliding(minutes(1), minutes(2)).is_err());
    assert!(Windows::<u64>::sliding(minutes(101), minutes(1)).is_err());
    assert!(Windows::<u64>::sliding(minutes(100), minutes(1)).is_ok());
    assert!(Windows::<u64>::sessions(Duration::from_micros(999), |_, _| {}).is_err());
}

#[test]
fn times_at_both_ends_do_no_harm() {
    for mut windows in [
        hourly()
            .at_most_ahead(Duration::MAX)
            .delayed_by(Duration::MAX),
        sessions()
            .at_most_ahead(Duration::MAX)
            .delayed_by(Duration::MAX),
        Windows::sliding(minutes(10), minutes(1))
            .unwrap()
            .at_most_ahead(Duration::MAX)
            .delayed_by(Duration::MAX),
    ] {
        assert_eq!(
            add(&mut windows, &[0, 1, u64::MAX, 5]),
            [Added::InWindow; 4]
        );
        tick(&mut windows, &silent_until(u64::MAX));
        let state = windows.save().unwrap();
        windows.load(&state).unwrap();
    }
}
