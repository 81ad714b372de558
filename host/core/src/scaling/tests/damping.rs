//! What a leader makes of a load over time.

use super::*;

const POLICY: ScalingPolicy = ScalingPolicy {
    hosts_min: 1,
    hosts_max: usize::MAX,
    catch_up: Duration::from_mins(2),
    settle: Duration::from_secs(100),
};

fn at(seconds: u64) -> Moment {
    Moment::from_origin(Duration::from_secs(seconds))
}

/// Hosts of one core, of an application with so many shards, that need `milli` thousandths of a
/// core in sum.
struct Fleet {
    shards: usize,
    hosts: u32,
    needed_milli: u64,
    /// What the busiest shard needs of it.
    heaviest_milli: u64,
    /// Shards that were measured.
    measured: u64,
    /// Shards that are paused while records wait.
    stopped: u64,
    max_leases: usize,
}

impl Fleet {
    fn of(shards: usize, hosts: u32, needed_milli: u64) -> Self {
        Self {
            shards,
            hosts,
            needed_milli,
            heaviest_milli: needed_milli / shards.max(1) as u64,
            measured: shards as u64,
            stopped: 0,
            max_leases: usize::MAX,
        }
    }

    fn assess(&self, policy: &ScalingPolicy) -> Assessment {
        let rows: Vec<WorkerRow> = (0..self.hosts)
            .map(|number| WorkerRow {
                load: Some(HostLoad {
                    shards: if number == 0 { self.measured } else { 0 },
                    cores_milli: 1_000,
                    needed_milli: if number == 0 { self.needed_milli } else { 0 },
                    steady_milli: if number == 0 { self.needed_milli } else { 0 },
                    heaviest_milli: self.heaviest_milli,
                    bound: Bound {
                        paused: if number == 0 { self.stopped } else { 0 },
                        ..Bound::default()
                    },
                    ..HostLoad::default()
                }),
                ..WorkerRow::beating(&format!("host-{number}"))
            })
            .collect();
        let workers: Vec<ObservedWorker> = rows
            .iter()
            .map(|row| ObservedWorker {
                id: row.worker.clone(),
                is_alive: true,
                is_draining: false,
                max_leases: self.max_leases,
            })
            .collect();
        let shards = Shards {
            readable: self.shards,
            ..Shards::default()
        };
        assess(
            policy,
            &FleetLoad::of(&shards, &workers, rows.iter(), usize::MAX),
        )
    }
}

/// The figures of a leader that is given these loads, in thousandths of a core, a second each.
fn figures(policy: &ScalingPolicy, shards: usize, loads: impl Iterator<Item = u64>) -> Vec<usize> {
    let mut damper = Damper::new(at(0));
    let mut figure: Option<Figure> = None;
    let mut figures = Vec::new();
    for (second, milli) in loads.enumerate() {
        let assessed = Fleet::of(shards, 1, milli).assess(policy);
        let next = damper
            .next(policy, &assessed, figure.as_ref(), at(second as u64))
            .unwrap();
        figures.push(next.wanted);
        figure = Some(next);
    }
    figures
}

fn steady(milli: u64, seconds: usize) -> impl Iterator<Item = u64> {
    std::iter::repeat_n(milli, seconds)
}

#[test]
fn a_figure_rises_at_once_and_falls_once_fewer_were_enough_for_long() {
    let loads = steady(700, 300)
        .chain(steady(3_000, 10))
        .chain(steady(700, 300));
    let found = figures(&POLICY, 64, loads);
    assert_eq!((found[299], found[300]), (1, 4), "3 cores at 75 %");
    assert_eq!(found[309 + 95], 4, "not before the time is over");
    assert_eq!(found[309 + 110], 1);
}

#[test]
fn a_load_that_swings_at_the_edge_of_a_host_changes_nothing() {
    let swinging = (0..2_000).map(|second| if second / 30 % 2 == 0 { 1_450 } else { 1_650 });
    let mut found = figures(&POLICY, 64, swinging);
    found.drain(..200);
    found.dedup();
    assert_eq!(found, [2]);
}

#[test]
fn a_peak_that_comes_again_and_again_keeps_its_hosts_after_a_while() {
    // Each peak comes just after the hosts of the one before were given back.
    let peaks = (0..20_000).map(|second| if second % 250 < 20 { 6_000 } else { 700 });
    let found = figures(&POLICY, 64, peaks);
    let changes = |part: &[usize]| part.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert_eq!(changes(&found[..1_000]), 2, "it is given back once");
    // 120 if each peak were followed; now and then it tries again.
    let later = changes(&found[5_000..]);
    assert!(later <= 14, "{later}");
}

#[test]
fn never_more_hosts_than_shards_nor_than_allowed_nor_fewer_than_leases_max_needs() {
    let wanted = |policy: &ScalingPolicy, fleet: &Fleet| fleet.assess(policy).wanted;
    assert_eq!(wanted(&POLICY, &Fleet::of(8, 1, 90_000)), Some(8));
    let few = ScalingPolicy {
        hosts_max: 5,
        ..POLICY
    };
    assert_eq!(wanted(&few, &Fleet::of(8, 1, 90_000)), Some(5));
    let many = ScalingPolicy {
        hosts_min: 3,
        ..POLICY
    };
    assert_eq!(wanted(&many, &Fleet::of(8, 1, 10)), Some(3));
    assert_eq!(wanted(&many, &Fleet::of(2, 1, 10)), Some(2), "the shards");
    let of_two = Fleet {
        max_leases: 2,
        ..Fleet::of(7, 1, 10)
    };
    assert_eq!(wanted(&POLICY, &of_two), Some(4));
}

#[test]
fn the_host_with_most_shards_must_not_be_full_either_the_heaviest_shard_among_them() {
    let wanted = |fleet: &Fleet| fleet.assess(&POLICY).wanted;
    // 5.4 cores: 8 hosts by the sum, of which none has more than three of 24 shards.
    assert_eq!(wanted(&Fleet::of(24, 1, 5_400)), Some(8));
    // 10 shards of 0.33: 5 hosts by the sum, with two each. 8 shards of 0.5: 6 by the sum, and then
    // two hosts would have two of them.
    assert_eq!(wanted(&Fleet::of(10, 1, 3_300)), Some(5));
    assert_eq!(wanted(&Fleet::of(8, 1, 4_000)), Some(8));
    // One shard needs most of a core. Alone on its host it would be if there were a host for each
    // shard; twice what the sum needs is enough for that.
    let with_hot = Fleet {
        heaviest_milli: 850,
        ..Fleet::of(24, 1, 2_400)
    };
    assert_eq!(wanted(&with_hot), Some(8));
    let with_warm = Fleet {
        heaviest_milli: 500,
        ..Fleet::of(24, 1, 2_400)
    };
    assert_eq!(wanted(&with_warm), Some(6), "beside three others");
}

#[test]
fn without_enough_signs_the_figure_stays() {
    let known = Fleet::of(8, 3, 3_000);
    let unknown = Fleet {
        measured: 3,
        ..Fleet::of(8, 3, 10)
    };
    assert_eq!(unknown.assess(&POLICY).wanted, None);
    let mut damper = Damper::new(at(0));
    let first = damper
        .next(&POLICY, &known.assess(&POLICY), None, at(0))
        .unwrap();
    assert_eq!(first.wanted, 4);
    let later = damper
        .next(&POLICY, &unknown.assess(&POLICY), Some(&first), at(9_000))
        .unwrap();
    assert_eq!((later.wanted, later.undamped), (4, None));
    assert!(later.why.contains("3 of 8"), "{}", later.why);
    // Shards on their way between hosts count like the others.
    let moving = Fleet {
        measured: 4,
        ..Fleet::of(8, 3, 1_500)
    };
    assert_eq!(moving.assess(&POLICY).wanted, Some(4));
    let none = Fleet::of(0, 3, 0).assess(&POLICY);
    assert_eq!(none.wanted, None, "between two generations of shards");
    let later = damper
        .next(&POLICY, &none, Some(&first), at(9_001))
        .unwrap();
    assert_eq!(later.wanted, 4);
}

#[test]
fn before_anything_is_measured_nothing_is_published_that_an_autoscaler_could_act_on() {
    let unknown = Fleet {
        measured: 0,
        ..Fleet::of(8, 6, 0)
    };
    let mut damper = Damper::new(at(0));
    let unknown = unknown.assess(&POLICY);
    assert_eq!(damper.next(&POLICY, &unknown, None, at(0)), None);
    let known = Fleet::of(8, 6, 100).assess(&POLICY);
    let first = damper.next(&POLICY, &known, None, at(20)).unwrap();
    assert_eq!(first.wanted, 6, "hosts that are just starting stay");
}

#[test]
fn while_most_shards_are_stopped_and_records_wait_the_figure_stays_and_says_why() {
    let busy = Fleet::of(8, 4, 3_000);
    let mut damper = Damper::new(at(0));
    let first = damper.next(&POLICY, &busy.assess(&POLICY), None, at(0));
    let mut figure = first.unwrap();
    assert_eq!(figure.wanted, 4);
    let stopped = Fleet {
        measured: 1,
        stopped: 7,
        ..Fleet::of(8, 4, 10)
    };
    for second in 1..1_000 {
        let next = damper.next(&POLICY, &stopped.assess(&POLICY), Some(&figure), at(second));
        figure = next.unwrap();
        assert_eq!(figure.wanted, 4, "{second}");
    }
    assert!(
        figure.why.contains("7 of 8 shard(s) are stopped"),
        "{}",
        figure.why
    );
    // The others stand for a few that are stopped.
    let few = Fleet {
        measured: 6,
        stopped: 2,
        ..Fleet::of(8, 4, 2_250)
    };
    assert_eq!(few.assess(&POLICY).wanted, Some(4));
}

#[test]
fn the_first_leader_of_a_fleet_removes_no_host_that_is_just_starting() {
    let mut damper = Damper::new(at(0));
    let idle = |hosts| Fleet::of(8, hosts, 100).assess(&POLICY);
    let mut figure = damper.next(&POLICY, &idle(1), None, at(0)).unwrap();
    assert_eq!(figure.wanted, 1);
    for (hosts, second) in [(3, 1), (5, 2), (5, 90)] {
        figure = damper
            .next(&POLICY, &idle(hosts), Some(&figure), at(second))
            .unwrap();
        assert_eq!(figure.wanted, hosts as usize);
    }
    for second in 91..250 {
        figure = damper
            .next(&POLICY, &idle(5), Some(&figure), at(second))
            .unwrap();
    }
    assert_eq!(figure.wanted, 1);
}

#[test]
fn a_new_leader_goes_on_with_the_figure_of_the_one_before_and_waits_before_it_falls() {
    let busy = Fleet::of(8, 4, 3_000).assess(&POLICY);
    let published = Damper::new(at(0))
        .next(&POLICY, &busy, None, at(0))
        .unwrap();
    assert_eq!(published.wanted, 4);
    let idle = Fleet::of(8, 4, 100).assess(&POLICY);
    let mut damper = Damper::new(at(500));
    let mut figure = damper
        .next(&POLICY, &idle, Some(&published), at(500))
        .unwrap();
    assert_eq!(figure.wanted, 4);
    assert!(figure.why.contains("1 would do now"), "{}", figure.why);
    for second in 501..620 {
        figure = damper
            .next(&POLICY, &idle, Some(&figure), at(second))
            .unwrap();
        assert_eq!(figure.wanted, if second < 600 { 4 } else { 1 }, "{second}");
    }
}

#[test]
fn plugins_of_the_same_hosts_are_added_and_rounded_up_once() {
    let figure = |wanted, load_milli, shards| Figure {
        wanted,
        undamped: Some(wanted),
        load_milli,
        shards,
        policy: POLICY,
        why: String::new(),
    };
    let together = |figures: &[Figure]| combine(figures.iter()).map(|found| found.wanted);
    let (a, b) = (figure(1, 400, 4), figure(2, 1_500, 16));
    assert_eq!(together(&[a.clone(), b.clone()]), Some(2), "1.9 hosts");
    let c = figure(3, 2_200, 8);
    assert_eq!(together(&[a.clone(), b, c.clone()]), Some(5), "4.1 hosts");
    let large = figure(4, 9_000, 4);
    assert_eq!(
        together(&[large, c]),
        Some(8),
        "the shards of the one with most"
    );
    let held = figure(5, 300, 16);
    assert_eq!(together(&[a, held]), Some(5), "what one wants is wanted");
    assert_eq!(together(&[]), None);
}
