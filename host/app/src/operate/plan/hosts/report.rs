//! What `plan --hosts` says, as a value.

use serde::Serialize;
use shardmill_config::Config;
use shardmill_core::fleet::WorkerRow;
use shardmill_core::plan::{FleetView, ObservedWorker, observed_workers};
use shardmill_core::scaling::{
    Assessment, FULL, Figure, FleetLoad, HostReport, ScalingPolicy, Shards, TARGET, assess,
};

use super::super::super::reading::{Reading, nobody};
use crate::output::millis;

/// What `--json` prints.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Report {
    pub(super) application: String,
    pub(super) leader: Option<String>,
    /// What the leader publishes; `None` if it publishes nothing.
    pub(super) published: Option<Published>,
    /// What the rows say now, before damping; `None` if hosts report too little.
    pub(super) undamped: Option<usize>,
    pub(super) hosts: usize,
    pub(super) shards: usize,
    pub(super) measured_shards: u64,
    pub(super) least: usize,
    pub(super) most: usize,
    /// Hosts that the load would fill completely.
    pub(super) load_hosts: f64,
    pub(super) sums: SumsLine,
    pub(super) policy: PolicyLine,
    /// Where the policy comes from.
    pub(super) policy_of: &'static str,
    pub(super) reasons: Vec<String>,
    /// What each host reports.
    pub(super) by_host: Vec<HostLine>,
    pub(super) notes: Vec<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Published {
    pub(super) wanted: usize,
    pub(super) undamped: Option<usize>,
    pub(super) load_hosts: f64,
    pub(super) why: String,
}

/// The load of all hosts together.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct SumsLine {
    pub(super) cores_of_a_host: f64,
    pub(super) cores_used: f64,
    pub(super) consumers_busy: f64,
    pub(super) cores_to_keep_up: f64,
    pub(super) cores_to_catch_up: f64,
    pub(super) records_per_second: f64,
    pub(super) arriving_per_second: f64,
    pub(super) backlog_records: u64,
    pub(super) lag_ms: u64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct PolicyLine {
    pub(super) hosts_min: usize,
    pub(super) hosts_max: Option<usize>,
    pub(super) catch_up_ms: u64,
    pub(super) settle_ms: u64,
    /// The part of a host's cores that is planned with.
    pub(super) target: f64,
    /// The part from which on a plan is too small.
    pub(super) full: f64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct HostLine {
    pub(super) worker: String,
    pub(super) takes_leases: bool,
    pub(super) leases: usize,
    /// `None` from a host that does not measure, or not yet.
    pub(super) load: Option<LoadLine>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct LoadLine {
    pub(super) measured_shards: u64,
    pub(super) cores: f64,
    pub(super) process_cores_used: f64,
    pub(super) cores_used: f64,
    pub(super) consumers_busy: f64,
    pub(super) records_per_second: f64,
    pub(super) arriving_per_second: f64,
    pub(super) backlog_records: u64,
    pub(super) lag_ms: u64,
    pub(super) cores_to_keep_up: f64,
    pub(super) cores_to_catch_up: f64,
}

/// From what was read of the tables; `config` is what the command was given.
pub(super) fn report(
    application: &str,
    config: Option<&Config>,
    reading: &Reading,
) -> anyhow::Result<Report> {
    let published = published(reading);
    let (policy, policy_of) = policy(config, published);
    let workers = observed_workers(&reading.observer, reading.now);
    let shards = shards(reading)?;
    let rows = reading.fleet.workers.iter();
    let fleet = FleetLoad::of(&shards, &workers, rows, reading.limits.max_leases);
    let assessed = assess(&policy, &fleet);
    Ok(Report {
        application: application.to_owned(),
        leader: reading.leader().map(ToString::to_string),
        published: published.map(Published::of),
        undamped: assessed.wanted,
        hosts: assessed.sums.sharing,
        shards: assessed.shards,
        measured_shards: assessed.sums.measured,
        least: assessed.floor,
        most: assessed.cap,
        load_hosts: assessed.load,
        sums: SumsLine::of(&assessed),
        policy: PolicyLine::of(&policy),
        policy_of,
        reasons: assessed.reasons.iter().map(ToString::to_string).collect(),
        by_host: fleet.hosts.iter().map(HostLine::of).collect(),
        notes: notes(reading, &workers),
    })
}

/// What the leader's record says.
fn published(reading: &Reading) -> Option<&Figure> {
    let leader = reading.fleet.leader.as_ref()?;
    leader.service.as_ref()?.hosts_wanted.as_ref()
}

/// The leader's own policy counts; before there is one, the configured one.
fn policy(config: Option<&Config>, published: Option<&Figure>) -> (ScalingPolicy, &'static str) {
    let configured = config.and_then(|config| config.scaling);
    match (published, configured) {
        (Some(figure), _) => (figure.policy, "the leader's"),
        (None, Some(scaling)) => (scaling.policy, "as configured"),
        (None, None) => (ScalingPolicy::default(), "by default"),
    }
}

fn shards(reading: &Reading) -> anyhow::Result<Shards> {
    let me = nobody()?;
    let leases = reading.leases_of(&me);
    Ok(Shards::of(&FleetView {
        me: &me,
        leases: &leases,
        workers: &[],
        shards: None,
        is_bootstrapped: reading.is_bootstrapped(),
    }))
}

fn notes(reading: &Reading, workers: &[ObservedWorker]) -> Vec<String> {
    let mut notes = reading.notes.clone();
    let is_alive = |row: &&WorkerRow| {
        workers
            .iter()
            .any(|worker| worker.is_alive && worker.id == row.worker)
    };
    let mut alive = reading.fleet.workers.iter().filter(is_alive);
    if reading.fleet.workers.is_empty() {
        notes.push("no host is registered, so nothing is measured".to_owned());
    } else if alive.all(|row| row.load.is_none()) {
        notes.push(
            "no host measures its load: that needs the section [scaling] in the hosts' \
                configuration, and some seconds after the start"
                .to_owned(),
        );
    }
    notes
}

impl Published {
    fn of(figure: &Figure) -> Self {
        Self {
            wanted: figure.wanted,
            undamped: figure.undamped,
            load_hosts: from_thousandths(figure.load_milli),
            why: figure.why.clone(),
        }
    }
}

impl SumsLine {
    fn of(assessed: &Assessment) -> Self {
        let sums = &assessed.sums;
        Self {
            cores_of_a_host: sums.cores,
            cores_used: sums.used,
            consumers_busy: sums.busy,
            cores_to_keep_up: sums.steady,
            cores_to_catch_up: sums.needed,
            records_per_second: sums.records,
            arriving_per_second: sums.arriving,
            backlog_records: sums.backlog,
            lag_ms: millis(sums.lag),
        }
    }
}

impl PolicyLine {
    fn of(policy: &ScalingPolicy) -> Self {
        Self {
            hosts_min: policy.hosts_min,
            hosts_max: (policy.hosts_max < usize::MAX).then_some(policy.hosts_max),
            catch_up_ms: millis(policy.catch_up),
            settle_ms: millis(policy.settle),
            target: TARGET,
            full: FULL,
        }
    }
}

impl HostLine {
    fn of(host: &HostReport<'_>) -> Self {
        let load = host.load.map(|load| LoadLine {
            measured_shards: load.shards,
            cores: from_thousandths(load.cores_milli),
            process_cores_used: from_thousandths(load.process_milli),
            cores_used: from_thousandths(load.used_milli),
            consumers_busy: from_thousandths(load.busy_milli),
            records_per_second: from_thousandths(load.records_milli),
            arriving_per_second: from_thousandths(load.arriving_milli),
            backlog_records: load.backlog,
            lag_ms: load.lag_ms,
            cores_to_keep_up: from_thousandths(load.steady_milli),
            cores_to_catch_up: from_thousandths(load.needed_milli),
        });
        Self {
            worker: host.id.to_string(),
            takes_leases: host.is_sharing,
            leases: host.held,
            load,
        }
    }
}

fn from_thousandths(value: u64) -> f64 {
    value as f64 / 1_000.0
}
