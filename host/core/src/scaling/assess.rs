//! Hosts wanted at one moment, before damping.

use std::collections::BTreeMap;
use std::time::Duration;

use super::load::{Bound, HostLoad, from_milli, whole};
use super::policy::{FULL, ScalingPolicy, TARGET};
use super::reason::Reason;
use crate::fleet::WorkerRow;
use crate::lease::{Availability, WorkerId};
use crate::plan::{FleetView, ObservedWorker, ReadingOrder};
use crate::stream::ShardId;

/// An application's shards, as of one listing of its leases.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shards {
    /// Those that can be read now: neither finished, nor waiting for others to end.
    pub readable: usize,
    /// How many unfinished leases each host holds.
    pub held: BTreeMap<WorkerId, usize>,
}

/// An application's hosts and shards, as its leader sees them.
#[derive(Debug, Clone, Default)]
pub struct FleetLoad<'a> {
    /// Shards that can be read now: neither finished, nor waiting for others to end.
    pub shards: usize,
    /// The most leases that a host holds.
    pub max_leases: usize,
    /// Hosts that live, those on their way out included.
    pub hosts: Vec<HostReport<'a>>,
}

/// A live host, and what it reports.
#[derive(Debug, Clone, Copy)]
pub struct HostReport<'a> {
    /// The worker id in its row.
    pub id: &'a WorkerId,
    /// Whether it takes leases: not one that is on its way out, or drained.
    pub is_sharing: bool,
    /// Unfinished leases that it holds.
    pub held: usize,
    /// What it measured; `None` from a host that does not report, or not yet.
    pub load: Option<&'a HostLoad>,
}

/// What all hosts report together.
#[derive(Debug, Clone, Default)]
pub struct Sums {
    /// Hosts that take leases.
    pub sharing: usize,
    /// Shards that were measured.
    pub measured: u64,
    /// Cores of a host, in the mean of those that report.
    pub cores: f64,
    /// Cores that the application uses now.
    pub used: f64,
    /// Consumers in the plugin at a time.
    pub busy: f64,
    /// Cores needed to keep up; shards that were not measured count like the others.
    pub steady: f64,
    /// Cores needed to catch up in time; the same.
    pub needed: f64,
    /// The most cores that a single shard needs to keep up.
    pub heaviest: f64,
    /// Records settled a second.
    pub records: f64,
    /// Records that arrive a second.
    pub arriving: f64,
    /// Records that wait, as estimated.
    pub backlog: u64,
    /// The greatest lag of a shard.
    pub lag: Duration,
    /// Its shard, if it is behind.
    pub worst: Option<ShardId>,
    /// Shards for which more hosts would do nothing.
    pub bound: Bound,
}

/// What follows for one moment.
#[derive(Debug, Clone)]
pub struct Assessment {
    /// Hosts wanted within all limits; `None` if hosts report too little.
    pub wanted: Option<usize>,
    /// How many hosts the load would fill completely.
    pub load: f64,
    /// The least hosts that make sense: `hosts-min`, or for `leases.max`.
    pub floor: usize,
    /// The most hosts that make sense: `hosts-max`, or the shards.
    pub cap: usize,
    /// Shards that can be read.
    pub shards: usize,
    /// What it follows from.
    pub sums: Sums,
    /// Why; first what decides the figure.
    pub reasons: Vec<Reason>,
}

impl Shards {
    /// From what a host, or a command, sees of the leases.
    pub fn of(view: &FleetView<'_>) -> Self {
        let mut held: BTreeMap<WorkerId, usize> = BTreeMap::new();
        for observed in view.unfinished() {
            if observed.availability == Availability::Held
                && let Some(owner) = &observed.lease.owner
            {
                *held.entry(owner.clone()).or_default() += 1;
            }
        }
        Self {
            readable: readable(view),
            held,
        }
    }
}

impl<'a> FleetLoad<'a> {
    /// From what a host, or a command, sees of the fleet. `rows` are the rows of the workers, and
    /// `max_leases` is the most that a host holds which says nothing of it.
    pub fn of(
        shards: &Shards,
        workers: &'a [ObservedWorker],
        rows: impl Iterator<Item = &'a WorkerRow>,
        max_leases: usize,
    ) -> Self {
        let rows: BTreeMap<&WorkerId, &WorkerRow> = rows.map(|row| (&row.worker, row)).collect();
        let alive = workers.iter().filter(|worker| worker.is_alive);
        let hosts: Vec<HostReport<'a>> = alive
            .map(|worker| HostReport {
                id: &worker.id,
                is_sharing: !worker.is_draining,
                held: shards.held.get(&worker.id).copied().unwrap_or_default(),
                load: rows.get(&worker.id).and_then(|row| row.load.as_ref()),
            })
            .collect();
        let sharing = workers
            .iter()
            .filter(|worker| worker.is_alive && !worker.is_draining);
        let least = sharing.map(|worker| worker.max_leases).min();
        Self {
            shards: shards.readable,
            max_leases: least.unwrap_or(max_leases).max(1),
            hosts,
        }
    }
}

/// Shards that can be read now.
fn readable(view: &FleetView<'_>) -> usize {
    let rows = view.leases.iter().map(|observed| &observed.lease);
    let order = ReadingOrder::of(rows, view.is_bootstrapped);
    view.unfinished()
        .filter(|observed| order.waits_for(&observed.lease).is_none())
        .count()
}

/// How full hosts are to be.
#[derive(Debug, Clone, Copy)]
struct Fill {
    in_the_mean: f64,
    /// The host with most shards, among them the heaviest.
    of_the_fullest: f64,
}

/// What a figure plans with.
const PLANNED: Fill = Fill {
    in_the_mean: TARGET,
    of_the_fullest: 0.8,
};
/// Up to where a plan holds. What a single shard needs is measured less well than the sum, so that
/// the distance is larger.
const TOO_FULL: Fill = Fill {
    in_the_mean: FULL,
    of_the_fullest: 1.0,
};

/// How many hosts are wanted now. Says nothing while less than half of the shards are measured: a
/// figure from a few of them may be far off in both directions.
pub fn assess(policy: &ScalingPolicy, fleet: &FleetLoad<'_>) -> Assessment {
    let sums = Sums::of(fleet);
    let (floor, cap) = limits_of(policy, fleet);
    let load = if sums.cores > 0.0 {
        sums.needed / sums.cores
    } else {
        0.0
    };
    let mut reasons = Vec::new();
    let wanted = if fleet.shards == 0 {
        reasons.push(Reason::NoShards);
        None
    } else if sums.measured.saturating_mul(2) < fleet.shards as u64 {
        reasons.push(few_signs(fleet, &sums));
        None
    } else {
        let by_load = sums.hosts_for(load, fleet.shards, PLANNED);
        let wanted = by_load.clamp(floor, cap);
        reasons.push(deciding(policy, fleet, &sums, by_load));
        if by_load > cap {
            reasons.push(if cap < fleet.shards {
                Reason::HostsMax
            } else {
                Reason::NoMoreShards {
                    shards: fleet.shards,
                }
            });
        }
        Some(wanted)
    };
    reasons.extend(warnings(&sums));
    Assessment {
        wanted,
        load,
        floor,
        cap,
        shards: fleet.shards,
        sums,
        reasons,
    }
}

impl Sums {
    /// The hosts for a load that would fill so many completely, spread over so many shards; at
    /// least one.
    ///
    /// A shard is on one host, so that hosts differ by one shard: of 8 shards on 5 hosts, three
    /// hosts have two, as on 4 hosts. And shards differ, while hosts share them by their number. So
    /// the heaviest shard has to fit on a host with the others that are there; which may double the
    /// hosts that the sum needs, and no more, since a single hot shard helps itself best by being
    /// split.
    fn hosts_for(&self, load: f64, shards: usize, fill: Fill) -> usize {
        let by_load = hosts(load / fill.in_the_mean);
        let fit = self.fit_beside_heaviest(shards, fill.of_the_fullest);
        by_load.max(shards.div_ceil(fit).min(by_load.saturating_mul(2)))
    }

    /// How many shards a host can have, one of them the heaviest.
    fn fit_beside_heaviest(&self, shards: usize, full: f64) -> usize {
        let mean = self.steady / self.cores / shards.max(1) as f64;
        let heaviest = self.heaviest / self.cores;
        // Also false without cores, or a load.
        if mean > 0.0 && heaviest.is_finite() {
            let others = ((full - heaviest) / mean).floor().max(0.0);
            hosts(1.0 + others)
        } else {
            usize::MAX
        }
    }
}

/// As a whole number, at least one.
fn hosts(number: f64) -> usize {
    usize::try_from(whole(number.ceil()))
        .unwrap_or(usize::MAX)
        .max(1)
}

/// The least and the most hosts that make sense. What the shards say comes last: a host without one
/// has nothing to do, whatever is configured. Without any shard nothing is known: a new application
/// has no rows yet, and between two generations of shards there may be none to read.
fn limits_of(policy: &ScalingPolicy, fleet: &FleetLoad<'_>) -> (usize, usize) {
    let shards = match fleet.shards {
        0 => usize::MAX,
        shards => shards,
    };
    let cap = policy.hosts_max.min(shards).max(1);
    let for_leases = fleet.shards.div_ceil(fleet.max_leases.max(1));
    let floor = policy.hosts_min.max(for_leases).max(1).min(cap);
    (floor, cap)
}

fn few_signs(fleet: &FleetLoad<'_>, sums: &Sums) -> Reason {
    let stopped = sums.bound.blocked.saturating_add(sums.bound.paused);
    if sums.measured.saturating_add(stopped).saturating_mul(2) >= fleet.shards as u64 {
        return Reason::Stopped {
            stopped,
            shards: fleet.shards,
        };
    }
    let silent = fleet
        .hosts
        .iter()
        .filter(|host| host.held > 0 && host.load.is_none());
    Reason::FewSigns {
        measured: sums.measured,
        shards: fleet.shards,
        silent: silent.map(|host| host.id.to_string()).collect(),
    }
}

/// What decides the figure, before its upper limit.
fn deciding(policy: &ScalingPolicy, fleet: &FleetLoad<'_>, sums: &Sums, by_load: usize) -> Reason {
    let for_leases = fleet.shards.div_ceil(fleet.max_leases.max(1));
    if for_leases > by_load.max(policy.hosts_min) {
        return Reason::LeasesMax {
            max: fleet.max_leases,
        };
    }
    if policy.hosts_min > by_load {
        return Reason::HostsMin;
    }
    let steady = sums.steady / sums.cores;
    if sums.cores > 0.0 && sums.hosts_for(steady, fleet.shards, PLANNED) < by_load {
        return Reason::CatchUp {
            backlog: sums.backlog,
            within: policy.catch_up,
        };
    }
    Reason::KeepUp
}

fn warnings(sums: &Sums) -> Vec<Reason> {
    let Bound {
        plugin,
        sink,
        reading,
        blocked,
        paused,
    } = sums.bound;
    let mut reasons = Vec::new();
    let mut push = |shards: u64, reason: fn(u64) -> Reason| {
        if shards > 0 {
            reasons.push(reason(shards));
        }
    };
    push(plugin, |shards| Reason::Plugin { shards });
    push(sink, |shards| Reason::Sink { shards });
    push(reading, |shards| Reason::Reading { shards });
    push(blocked, |shards| Reason::Blocked { shards });
    push(paused, |shards| Reason::Paused { shards });
    if let Some(shard) = &sums.worst {
        reasons.push(Reason::Worst {
            shard: shard.clone(),
            lag: sums.lag,
        });
    }
    reasons
}

impl Assessment {
    /// So many hosts, or the nearest number that makes sense.
    pub(super) fn within(&self, hosts: usize) -> usize {
        hosts.clamp(self.floor, self.cap)
    }

    /// Whether so many hosts would be too few, and not just fuller than planned.
    pub(super) fn would_overload(&self, hosts: usize) -> bool {
        self.sums.hosts_for(self.load, self.shards, TOO_FULL) > hosts
    }
}

impl Sums {
    fn of(fleet: &FleetLoad<'_>) -> Self {
        let mut sums = Self {
            sharing: fleet.hosts.iter().filter(|host| host.is_sharing).count(),
            ..Self::default()
        };
        let reports = || fleet.hosts.iter().filter_map(|host| host.load);
        for load in reports() {
            sums.add(load);
        }
        let reporting = reports().count();
        if reporting > 0 {
            sums.cores /= reporting as f64;
        }
        // Leases on their way from one host to another, and those that nobody holds.
        let measured = sums.measured as f64;
        if measured > 0.0 && measured < fleet.shards as f64 {
            let all = fleet.shards as f64 / measured;
            sums.steady *= all;
            sums.needed *= all;
        }
        sums
    }

    fn add(&mut self, load: &HostLoad) {
        self.measured = self.measured.saturating_add(load.shards);
        self.cores += from_milli(load.cores_milli);
        self.used += from_milli(load.used_milli);
        self.busy += from_milli(load.busy_milli);
        self.steady += from_milli(load.steady_milli);
        self.needed += from_milli(load.needed_milli);
        self.heaviest = self.heaviest.max(from_milli(load.heaviest_milli));
        self.records += from_milli(load.records_milli);
        self.arriving += from_milli(load.arriving_milli);
        self.backlog = self.backlog.saturating_add(load.backlog);
        self.bound = self.bound.plus(load.bound);
        let lag = Duration::from_millis(load.lag_ms);
        if lag > self.lag {
            (self.lag, self.worst) = (lag, load.worst.clone());
        }
    }
}
