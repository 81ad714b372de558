//! What a host makes of its own samples.

use std::collections::BTreeMap;

use super::*;

/// A host whose shards all do the same.
#[derive(Clone)]
struct Host {
    cores_milli: u64,
    /// Cores in use.
    used: f64,
    /// Shards, each with: records a second, lag at the beginning, how much it grows a second, the
    /// parts of the time in the plugin and in sinks.
    shards: Vec<(f64, f64, f64, f64, f64)>,
    stance: Stance,
    parallelism: usize,
}

const AT_TIP: (f64, f64, f64, f64, f64) = (100.0, 0.1, 0.0, 0.3, 0.0);

impl Host {
    fn of(used: f64, shards: &[(f64, f64, f64, f64, f64)]) -> Self {
        Self {
            cores_milli: 2_000,
            used,
            shards: shards.to_vec(),
            stance: Stance::Flows,
            parallelism: 1,
        }
    }

    fn sample(&self, second: f64) -> Sample {
        let busy: f64 = self.shards.iter().map(|shard| shard.3).sum();
        let of = |number: usize, (rate, lag, grows, busy, storing): (f64, f64, f64, f64, f64)| {
            let shard = ShardSample {
                epoch: 1,
                records: load::whole(rate * second),
                lag: Some(Duration::from_secs_f64(lag + grows * second)),
                spent: Spent {
                    reading: Duration::from_secs_f64((1.0 - busy - storing) * second),
                    in_plugin: Duration::from_secs_f64(busy * second),
                    storing: Duration::from_secs_f64(storing * second),
                },
                stance: self.stance,
                parallelism: self.parallelism,
            };
            (ShardId::new(format!("shard-{number}")).unwrap(), shard)
        };
        let shards = self.shards.iter().enumerate();
        Sample {
            at: Moment::from_origin(Duration::from_secs_f64(1_000.0 + second)),
            process: ProcessSample {
                cpu: Duration::from_secs_f64(self.used * second),
                in_plugins: Duration::from_secs_f64(busy * second),
                in_standalone: Duration::ZERO,
                applications: 1,
                cores_milli: self.cores_milli,
            },
            shards: shards.map(|(number, shard)| of(number, *shard)).collect(),
        }
    }

    /// After a minute.
    fn load(&self) -> HostLoad {
        let policy = ScalingPolicy {
            catch_up: Duration::from_secs(100),
            ..ScalingPolicy::default()
        };
        let mut meter = Meter::default();
        for beat in 0..20 {
            meter.take(self.sample(f64::from(beat) * 3.0));
        }
        meter.load(&policy).unwrap()
    }
}

#[test]
fn at_the_tip_a_shard_needs_what_it_uses() {
    let load = Host::of(0.6, &[AT_TIP, AT_TIP]).load();
    assert_eq!(
        (load.shards, load.used_milli, load.busy_milli),
        (2, 600, 600)
    );
    assert_eq!((load.steady_milli, load.needed_milli), (600, 600));
    assert_eq!(load.records_milli, 200_000);
    assert_eq!(load.bound, Bound::default());
    assert_eq!(load.worst, None);
}

#[test]
fn what_falls_behind_for_want_of_cores_needs_what_its_records_cost_at_their_rate_of_arrival() {
    // Two full cores for four shards that get half of what they need: the lag grows by half a
    // second each second, and is 28.5 s at the end of the window.
    let shard = (50.0, 0.0, 0.5, 1.0, 0.0);
    let load = Host::of(2.0, &[shard; 4]).load();
    assert_eq!((load.process_milli, load.used_milli), (2_000, 2_000));
    // A core for each consumer is all that it can use.
    assert_eq!((load.steady_milli, load.needed_milli), (4_000, 4_000));
    assert_eq!(load.arriving_milli, 400_000, "100 a second for each");
    assert_eq!(load.backlog, 4 * 2_850);
    assert_eq!(load.bound, Bound::default(), "more hosts would help");
    assert_eq!(load.worst, Some(ShardId::new("shard-0").unwrap()));
}

#[test]
fn a_backlog_needs_more_the_sooner_it_is_to_be_gone() {
    // 100 s behind and gaining: 1.25 s of the stream a second, with a tenth of a core.
    let shard = (125.0, 114.25, -0.25, 0.5, 0.0);
    let load = Host::of(1.9, &[shard; 8]).load();
    let a_stream_second = 1.9 / 8.0 / 1.25;
    assert_eq!(load.steady_milli, 8 * thousandths(a_stream_second));
    assert_eq!(load.needed_milli, 8 * thousandths(a_stream_second * 2.0));
}

#[test]
fn a_consumer_that_does_all_it_can_on_an_idle_host_asks_for_no_host() {
    let shard = (50.0, 100.0, 0.5, 1.0, 0.0);
    let load = Host::of(0.1, &[shard]).load();
    assert_eq!((load.steady_milli, load.needed_milli), (100, 100));
    assert_eq!(load.bound.plugin, 1);
    let parallel = Host {
        parallelism: 4,
        ..Host::of(0.1, &[shard])
    };
    let load = parallel.load();
    assert_eq!(load.needed_milli, 400, "which four instances can use");
}

#[test]
fn shards_that_wait_for_records_or_sinks_ask_for_no_host_and_say_so() {
    let reading = (50.0, 100.0, 0.5, 0.2, 0.0);
    let load = Host::of(0.1, &[reading]).load();
    assert_eq!((load.needed_milli, load.bound.reading), (100, 1));
    let storing = (50.0, 100.0, 0.5, 0.2, 0.7);
    let load = Host::of(0.1, &[storing]).load();
    assert_eq!((load.needed_milli, load.bound.sink), (100, 1));
}

#[test]
fn what_makes_no_progress_and_has_no_lag_yet_needs_what_it_uses() {
    let shard = (0.0, 0.1, 0.0, 0.5, 0.0);
    let blocked = Host {
        stance: Stance::Blocked,
        ..Host::of(0.2, &[shard])
    };
    let load = blocked.load();
    assert_eq!((load.needed_milli, load.bound.blocked), (200, 1));
}

#[test]
fn a_stopped_shard_does_not_count_as_measured() {
    // Nobody reads a paused shard, so that its lag stays what it was.
    let paused = Host {
        stance: Stance::Paused,
        ..Host::of(0.2, &[AT_TIP])
    };
    let load = paused.load();
    assert_eq!((load.shards, load.bound.paused), (0, 1));
    let shard = (0.0, 100.0, 1.0, 0.5, 0.0);
    for stance in [Stance::Paused, Stance::Blocked] {
        let host = Host {
            stance,
            ..Host::of(0.2, &[shard, shard])
        };
        let load = host.load();
        assert_eq!((load.shards, load.needed_milli), (0, 0), "{stance:?}");
        assert_eq!(load.bound.paused + load.bound.blocked, 2);
        assert!(load.lag_ms > 100_000 && load.worst.is_some(), "{load:?}");
    }
}

#[test]
fn what_standalone_plugins_use_is_taken_from_the_cores_and_not_added_to_the_load() {
    let mut meter = Meter::default();
    let host = Host::of(0.4, &[AT_TIP]);
    for beat in 0..10 {
        let mut sample = host.sample(f64::from(beat) * 3.0);
        sample.process.in_standalone = sample.process.in_plugins * 3;
        sample.process.in_plugins *= 4;
        sample.process.cpu *= 4;
        meter.take(sample);
    }
    let load = meter.load(&ScalingPolicy::default()).unwrap();
    assert_eq!((load.process_milli, load.used_milli), (1_600, 400));
    assert_eq!((load.needed_milli, load.cores_milli), (400, 800));
    assert_eq!(load.bound, Bound::default());
}

#[test]
fn a_process_that_calls_no_plugin_is_not_counted_once_for_each_of_them() {
    let mut meter = Meter::default();
    let filtered = (100.0, 0.1, 0.0, 0.0, 0.0);
    let host = Host::of(0.6, &[filtered, filtered]);
    for beat in 0..10 {
        let mut sample = host.sample(f64::from(beat) * 3.0);
        sample.process.applications = 6;
        meter.take(sample);
    }
    let load = meter.load(&ScalingPolicy::default()).unwrap();
    assert_eq!(load.used_milli, 100);
}

#[test]
fn the_processor_time_of_a_process_is_shared_by_the_time_in_plugins() {
    let policy = ScalingPolicy::default();
    let mut meter = Meter::default();
    let host = Host::of(1.0, &[AT_TIP]);
    for beat in 0..10 {
        let second = f64::from(beat) * 3.0;
        let mut sample = host.sample(second);
        // Another plugin of the process is at work twice as much.
        sample.process.in_plugins *= 3;
        meter.take(sample);
    }
    let load = meter.load(&policy).unwrap();
    assert_eq!((load.process_milli, load.used_milli), (1_000, 333));
}

#[test]
fn a_lease_that_was_just_taken_is_not_measured_and_a_new_holding_is_another() {
    let host = Host::of(0.6, &[AT_TIP, AT_TIP]);
    let mut meter = Meter::default();
    assert_eq!(meter.load(&ScalingPolicy::default()), None);
    for second in [0.0, 3.0, 6.0, 9.0] {
        let mut sample = host.sample(second);
        let (_, late) = sample.shards.iter_mut().next().unwrap();
        late.epoch = if second < 6.0 { 1 } else { 2 };
        meter.take(sample);
    }
    let load = meter.load(&ScalingPolicy::default()).unwrap();
    assert_eq!(load.shards, 1);
}

#[test]
fn samples_that_come_fast_take_no_more_room() {
    let host = Host::of(0.6, &[AT_TIP]);
    let mut meter = Meter::default();
    for beat in 0..10_000 {
        meter.take(host.sample(f64::from(beat) * 0.01));
    }
    assert!(meter.samples() <= 24, "{}", meter.samples());
    let load = meter.load(&ScalingPolicy::default()).unwrap();
    assert!(load.needed_milli.abs_diff(600) <= 2, "{load:?}");
}

#[test]
fn hosts_that_report_nothing_are_named_only_if_they_hold_leases() {
    let row = |name: &str| WorkerRow::beating(name);
    let rows = [row("silent"), row("new")];
    let workers = rows.iter().map(|row| ObservedWorker {
        id: row.worker.clone(),
        is_alive: true,
        is_draining: false,
        max_leases: usize::MAX,
    });
    let workers: Vec<ObservedWorker> = workers.collect();
    let shards = Shards {
        readable: 4,
        held: BTreeMap::from([(WorkerId::new("silent").unwrap(), 4)]),
    };
    let fleet = FleetLoad::of(&shards, &workers, rows.iter(), usize::MAX);
    let assessed = assess(&ScalingPolicy::default(), &fleet);
    assert_eq!(assessed.wanted, None);
    let why = assessed.reasons[0].to_string();
    assert!(why.ends_with("; silent reports nothing"), "{why}");
}
