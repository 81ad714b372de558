//! `shardmill cost`: what a fleet costs in a month, line by line.

use std::collections::{BTreeMap, BTreeSet};

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;
use shardmill_aws::Billing;
use shardmill_config::{Config, ConfigError, PluginConfig, StreamConfig};
use shardmill_core::cost::{self, Load, Pace};
use shardmill_core::kcl_metrics::{EMITTED, Level, Scope};
use shardmill_core::plugin::{Part, coordinator_table, lease_table, split_part, state_table};

use crate::cli::CostArgs;
use crate::output::{print, print_json};
use crate::prices::Prices;

const SECONDS_A_MONTH: f64 = HOURS_A_MONTH * 3_600.0;
/// A year's hours by twelve, as AWS' own calculator has it.
const HOURS_A_MONTH: f64 = 730.0;
const GIGABYTE: f64 = (1_u64 << 30) as f64;
const MILLION: f64 = 1e6;
const READ_UNITS: &str = "million read units";
const WRITE_UNITS: &str = "million write units";

/// One kind of cost that is billed.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Line {
    /// The application, or the stream if several plugins read it.
    of: String,
    what: String,
    /// In a month, in `unit`.
    amount: f64,
    unit: &'static str,
    dollars: f64,
    why: String,
}

impl Line {
    /// Requests to tables cost nothing more where their capacity is paid.
    fn covered(self) -> Self {
        if [READ_UNITS, WRITE_UNITS].contains(&self.unit) {
            let why = format!("{}; within tables.billing", self.why);
            Self {
                dollars: 0.0,
                why,
                ..self
            }
        } else {
            self
        }
    }

    /// The same for so many fleets.
    fn times(self, fleets: u32) -> Self {
        Self {
            amount: self.amount * f64::from(fleets),
            dollars: self.dollars * f64::from(fleets),
            ..self
        }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Bill {
    lines: Vec<Line>,
    dollars_a_month: f64,
    prices_of: String,
    prices_as_of: String,
}

pub(crate) fn execute(args: &CostArgs) -> anyhow::Result<()> {
    let prices = Prices::read(args.prices.as_deref())?;
    let config = Config::load(&args.config)?;
    let plugins = config
        .all_plugins()
        .map_err(|message| ConfigError::Plugin { message })?;
    let lines = lines(&config, &plugins, args, &prices);
    if lines.is_empty() {
        let message = "no plugin reads a stream: put components into the plugins folder, or add \
            [plugin.NAME]";
        return Err(ConfigError::Plugin {
            message: message.to_owned(),
        }
        .into());
    }
    let bill = Bill {
        dollars_a_month: lines.iter().map(|line| line.dollars).sum(),
        lines,
        prices_of: prices.region.clone(),
        prices_as_of: prices.as_of.clone(),
    };
    if args.output.json {
        return print_json(&bill);
    }
    print(&shown(&bill, &prices));
    Ok(())
}

/// What each application costs, and then each stream.
fn lines(
    config: &Config,
    plugins: &BTreeMap<String, PluginConfig>,
    args: &CostArgs,
    prices: &Prices,
) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut streams: Vec<&StreamConfig> = Vec::new();
    let capacity = Capacity::of(config.tables.billing);
    for (name, plugin) in plugins {
        for stream in &plugin.streams {
            let pace = pace(config, plugin);
            let of_application = of_application(plugin, stream, args, pace, prices);
            lines.extend(of_application.into_iter().map(|line| match &capacity {
                Some(_) => line.covered(),
                None => line,
            }));
            if !streams.iter().any(|one| one.stream == stream.stream) {
                streams.push(stream);
            }
        }
        if let Some(capacity) = &capacity {
            lines.extend(capacity.of_plugin(name, plugin, prices));
        }
        if let Some(emf) = &config.emf {
            lines.extend(of_metrics(emf.level, name, plugin, args, prices));
        }
    }
    lines.extend(streams.iter().map(|stream| of_stream(stream, args, prices)));
    lines
}

/// What its tables and reading cost. Each standalone host is a fleet of its own, and reads
/// everything.
fn of_application(
    plugin: &PluginConfig,
    stream: &StreamConfig,
    args: &CostArgs,
    pace: Pace,
    prices: &Prices,
) -> Vec<Line> {
    let load = load(args, plugin);
    let (load, fleets) = match plugin.standalone {
        None => (load, 1),
        Some(_) => (Load { hosts: 1, ..load }, args.hosts),
    };
    let lines = of_tables(stream, load, pace, prices).into_iter();
    let lines = lines.chain(of_reading(stream, args, prices));
    lines.map(|line| line.times(fleets)).collect()
}

/// What is paid for each table by the hour, used or not.
struct Capacity {
    read_units: u32,
    write_units: u32,
}

impl Capacity {
    /// `None` where requests are paid.
    fn of(billing: Billing) -> Option<Self> {
        match billing {
            Billing::OnDemand => None,
            Billing::Provisioned {
                read_units,
                write_units,
            } => Some(Self {
                read_units,
                write_units,
            }),
        }
    }

    fn of_plugin(&self, name: &str, plugin: &PluginConfig, prices: &Prices) -> Vec<Line> {
        if plugin.streams.is_empty() {
            return Vec::new();
        }
        let tables = tables_of(plugin).len() as f64;
        let line = |what: &str, units: u32, unit: &'static str, price: f64| {
            let amount = f64::from(units) * tables * HOURS_A_MONTH;
            Line {
                of: name.to_owned(),
                what: what.to_owned(),
                amount,
                unit,
                dollars: amount * price,
                why: "tables.billing, for each of its tables, used or not".to_owned(),
            }
        };
        let (reads, writes) = (
            prices.dynamodb_read_unit_hour,
            prices.dynamodb_write_unit_hour,
        );
        vec![
            line(
                "capacity to read",
                self.read_units,
                "read unit hours",
                reads,
            ),
            line(
                "capacity to write",
                self.write_units,
                "write unit hours",
                writes,
            ),
        ]
    }
}

/// Streams may share a table.
fn tables_of(plugin: &PluginConfig) -> BTreeSet<String> {
    let mut tables = BTreeSet::new();
    for stream in &plugin.streams {
        let application = &stream.application;
        tables.insert(lease_table(application).to_owned());
        tables.insert(coordinator_table(application));
        if plugin.permissions.state {
            tables.insert(state_table(application));
        }
    }
    tables
}

/// What CloudWatch takes for the KCL's metrics. Each application has its own namespace; `None`
/// without a stream.
fn of_metrics(
    level: Level,
    name: &str,
    plugin: &PluginConfig,
    args: &CostArgs,
    prices: &Prices,
) -> Option<Line> {
    let of = |scope: Scope| {
        let published = EMITTED.iter().filter(|metric| metric.level <= level);
        published.filter(|metric| metric.scope == scope).count() as f64
    };
    let streams = plugin.streams.len() as f64;
    let of_shards = of(Scope::Shard) * f64::from(args.shards) * streams;
    let of_streams = of(Scope::Stream) * streams;
    let of_hosts = of(Scope::Worker) * f64::from(args.hosts) + of(Scope::Application);
    let lease_tables = plugin.streams.iter();
    let applications: BTreeSet<_> = lease_tables
        .map(|one| lease_table(&one.application))
        .collect();
    let amount = of_shards + of_streams + of_hosts * applications.len() as f64;
    (streams > 0.0).then(|| Line {
        of: name.to_owned(),
        what: "metrics in CloudWatch".to_owned(),
        amount,
        unit: "metrics",
        dollars: amount * prices.cloudwatch_metric_month,
        why: format!("each series, at emf.level = \"{}\"", level.as_str()),
    })
}

fn pace(config: &Config, plugin: &PluginConfig) -> Pace {
    Pace {
        lease: config.leases.duration,
        renew_every: config.leases.renew_every,
        scan_every: config.leases.scan_every,
        checkpoint_records: plugin.checkpoints.records,
        checkpoint_bytes: plugin.checkpoints.bytes,
        checkpoint_age: plugin.checkpoints.age,
    }
}

fn load(args: &CostArgs, plugin: &PluginConfig) -> Load {
    Load {
        hosts: args.hosts,
        shards: args.shards,
        leases_in_table: args.shards.saturating_mul(streams_in_table(plugin)),
        records: args.records_per_second,
        record_bytes: f64::from(args.bytes),
        state_bytes: plugin
            .permissions
            .state
            .then_some(f64::from(args.state_bytes)),
    }
}

/// How many streams have their leases in the same table.
fn streams_in_table(plugin: &PluginConfig) -> u32 {
    let is_part =
        |stream: &&StreamConfig| matches!(split_part(&stream.application), (_, Part::Stream(_)));
    let parts = plugin.streams.iter().filter(is_part).count();
    u32::try_from(parts).unwrap_or(u32::MAX).max(1)
}

fn of_tables(stream: &StreamConfig, load: Load, pace: Pace, prices: &Prices) -> Vec<Line> {
    let shares = cost::of_tables(load, pace).into_iter();
    let used = shares.filter(|share| share.reads + share.writes > 0.0);
    used.map(|share| of_share(stream, &share, prices)).collect()
}

fn of_share(stream: &StreamConfig, share: &cost::Share, prices: &Prices) -> Line {
    let units = (share.reads + share.writes) * SECONDS_A_MONTH / MILLION;
    let (unit, price) = if share.reads > 0.0 {
        (READ_UNITS, prices.dynamodb_million_reads)
    } else {
        (WRITE_UNITS, prices.dynamodb_million_writes)
    };
    Line {
        of: name_of(stream),
        what: share.what.to_owned(),
        amount: units,
        unit,
        dollars: units * price,
        why: share.why.to_owned(),
    }
}

/// The application; a bill is not for this machine, whose id a standalone host's name has.
fn name_of(stream: &StreamConfig) -> String {
    match split_part(&stream.application) {
        (application, Part::Host(_)) => application.to_owned(),
        (_, Part::Whole | Part::Stream(_)) => stream.application.clone(),
    }
}

/// What reading costs beyond the stream: nothing by polling provisioned shards.
fn of_reading(stream: &StreamConfig, args: &CostArgs, prices: &Prices) -> Vec<Line> {
    let gigabytes = args.records_per_second * f64::from(args.bytes) * SECONDS_A_MONTH / GIGABYTE;
    let of_bytes = |what: &str, price: f64, why: &str| Line {
        of: name_of(stream),
        what: what.to_owned(),
        amount: gigabytes,
        unit: "GiB",
        dollars: gigabytes * price,
        why: why.to_owned(),
    };
    let pushed = |price: f64| of_bytes("records pushed", price, "enhanced fan-out");
    let is_fan_out = stream.retrieval.fan_out().is_some();
    match (is_fan_out, args.on_demand) {
        (false, false) => Vec::new(),
        (false, true) => vec![of_bytes(
            "records polled",
            prices.kinesis_on_demand_gigabyte_out,
            "each plugin's reads; less where plugins of a host share them",
        )],
        (true, true) => vec![pushed(prices.kinesis_on_demand_fan_out_gigabyte)],
        (true, false) => vec![
            of_consumer(stream, args, prices),
            pushed(prices.kinesis_fan_out_gigabyte),
        ],
    }
}

fn of_consumer(stream: &StreamConfig, args: &CostArgs, prices: &Prices) -> Line {
    let hours = f64::from(args.shards) * HOURS_A_MONTH;
    Line {
        of: name_of(stream),
        what: "fan-out consumer".to_owned(),
        amount: hours,
        unit: "shard hours",
        dollars: hours * prices.kinesis_fan_out_shard_hour,
        why: "as long as it is registered, whether or not a host runs".to_owned(),
    }
}

/// The stream itself, however many applications read it. Its producers pay for their puts.
fn of_stream(stream: &StreamConfig, args: &CostArgs, prices: &Prices) -> Line {
    let (amount, unit, price) = if args.on_demand {
        (
            HOURS_A_MONTH,
            "stream hours",
            prices.kinesis_on_demand_stream_hour,
        )
    } else {
        let hours = f64::from(args.shards) * HOURS_A_MONTH;
        (hours, "shard hours", prices.kinesis_shard_hour)
    };
    Line {
        of: stream.stream.to_string(),
        what: "stream".to_owned(),
        amount,
        unit,
        dollars: amount * price,
        why: "for any number of readers; what producers put is not counted".to_owned(),
    }
}

fn shown(bill: &Bill, prices: &Prices) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header(["of", "what", "a month", "", "dollars", "because of"]);
    for line in &bill.lines {
        let (amount, dollars) = (
            format!("{:.2}", line.amount),
            format!("{:.2}", line.dollars),
        );
        let row = [
            &line.of, &line.what, &amount, line.unit, &dollars, &line.why,
        ];
        table.add_row(row);
    }
    for column in [2, 4] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    format!(
        "{table}\n\n{:.2} dollars a month of 730 hours, at the prices of {} as of {} ({}).\n\
         Not counted: hosts, network, storage and recovery of tables, keys, lines of logs, sinks, \
         moves of leases, and what producers put.",
        bill.dollars_a_month, prices.region, prices.as_of, prices.source
    )
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command, OperateCommand};

    fn bill(text: &str, more: &[&str]) -> Vec<Line> {
        let flags = [
            "--hosts",
            "2",
            "--shards",
            "4",
            "--records-per-second",
            "1000",
            "--bytes",
            "1024",
        ];
        let line = ["shardmill", "cost"].iter().chain(&flags).chain(more);
        let Command::Operate(OperateCommand::Cost(args)) = Cli::parse_from(line).command else {
            panic!("it is one")
        };
        let config = Config::parse(text, Path::new("nowhere")).unwrap();
        let prices = Prices::read(None).unwrap();
        lines(&config, &config.all_plugins().unwrap(), &args, &prices)
    }

    fn dollars(lines: &[Line], what: &str) -> f64 {
        let of_it = lines.iter().filter(|line| line.what == what);
        of_it.map(|line| line.dollars).sum()
    }

    fn near(found: f64, expected: f64) {
        assert!(
            (found / expected - 1.0).abs() < 0.01,
            "{found} and not {expected}"
        );
    }

    const ALERTS: &str = "stream = \"orders\"\n[plugin.alerts]\n";

    #[test]
    fn polling_provisioned_shards_costs_their_hours_and_the_tables() {
        let lines = bill(ALERTS, &[]);
        near(dollars(&lines, "stream"), 4.0 * 730.0 * 0.015);
        // A heartbeat of each host every 3.6 s.
        near(dollars(&lines, "heartbeats"), 2.0 / 3.6 * 2.628 * 0.625);
        // Each of four shards every 3 s and the wait for the next record.
        near(dollars(&lines, "checkpoints"), 4.0 / 3.004 * 2.628 * 0.625);
        assert!(dollars(&lines, "records pushed").abs() < f64::EPSILON);
    }

    #[test]
    fn fan_out_is_billed_by_shard_and_byte_and_each_plugin_has_its_own() {
        let of_one = bill(&format!("{ALERTS}retrieval = \"fan-out\"\n"), &[]);
        near(dollars(&of_one, "fan-out consumer"), 4.0 * 730.0 * 0.015);
        let gigabytes = 1_000.0 * 1_024.0 * 730.0 * 3_600.0 / 1_073_741_824.0;
        near(dollars(&of_one, "records pushed"), gigabytes * 0.013);
        let both = format!("reads.retrieval = \"fan-out\"\n{ALERTS}[plugin.totals]\n");
        let of_both = bill(&both, &[]);
        near(dollars(&of_both, "records pushed"), 2.0 * gigabytes * 0.013);
        near(dollars(&of_both, "stream"), 4.0 * 730.0 * 0.015);
    }

    #[test]
    fn each_standalone_host_is_billed_as_a_fleet_that_reads_everything() {
        let shared = bill(ALERTS, &["--on-demand"]);
        let own = format!("worker-id = \"pod-1\"\n{ALERTS}[plugin.alerts.standalone]\n");
        let own = bill(&own, &["--on-demand"]);
        for twice in ["checkpoints", "records polled", "leading"] {
            near(dollars(&own, twice), 2.0 * dollars(&shared, twice));
        }
        for once in ["heartbeats", "stream"] {
            near(dollars(&own, once), dollars(&shared, once));
        }
        assert!(own.iter().all(|line| line.of != "alerts@pod-1"));
    }

    #[test]
    fn the_leader_of_each_stream_in_one_table_scans_the_leases_of_all() {
        let plugin = "[plugin.alerts]\nstreams = [\"orders\", \"returns\", \"visits\"]\n";
        let apart = bill(plugin, &[]);
        let together = bill(&format!("{plugin}multi-stream-table = true\n"), &[]);
        let scans = "watching leases";
        near(dollars(&together, scans), 3.0 * dollars(&apart, scans));
        near(
            dollars(&together, "heartbeats"),
            dollars(&apart, "heartbeats"),
        );
    }

    #[test]
    fn a_stream_on_demand_is_billed_by_its_hours_and_bytes() {
        let lines = bill(ALERTS, &["--on-demand"]);
        near(dollars(&lines, "stream"), 730.0 * 0.04);
        let gigabytes = 1_000.0 * 1_024.0 * 730.0 * 3_600.0 / 1_073_741_824.0;
        near(dollars(&lines, "records polled"), gigabytes * 0.04);
    }

    #[test]
    fn metrics_of_the_kcl_are_billed_for_each_shard_and_host() {
        let with = |level: &str| {
            let emf = format!("[emf]\ntarget = \"tcp://agent:25888\"\nlevel = {level:?}\n");
            let lines = bill(&format!("{ALERTS}{emf}"), &[]);
            let of_it = lines
                .into_iter()
                .find(|line| line.what == "metrics in CloudWatch");
            of_it.unwrap()
        };
        let (all, few) = (with("detailed"), with("summary"));
        // 12 and 6 of each of four shards, the rest of hosts and the application.
        assert!(all.amount > 48.0 && few.amount > 24.0 && few.amount < all.amount);
        near(all.dollars, all.amount * 0.3);
        assert!(dollars(&bill(ALERTS, &[]), "metrics in CloudWatch").abs() < f64::EPSILON);
    }

    #[test]
    fn tables_with_a_capacity_are_billed_by_it_and_not_by_requests() {
        let billing = "[tables]\nbilling = { read-units = 10, write-units = 20 }\n";
        let lines = bill(&format!("{ALERTS}grants.state = true\n{billing}"), &[]);
        near(
            dollars(&lines, "capacity to read"),
            3.0 * 10.0 * 730.0 * 0.000_13,
        );
        near(
            dollars(&lines, "capacity to write"),
            3.0 * 20.0 * 730.0 * 0.000_65,
        );
        assert!(dollars(&lines, "checkpoints").abs() < f64::EPSILON);
        near(dollars(&lines, "stream"), 4.0 * 730.0 * 0.015);
        let streams = "[plugin.alerts]\nstreams = [\"a\", \"b\"]\nmulti-stream-table = true\n";
        let shared = bill(&format!("{streams}{billing}"), &[]);
        near(
            dollars(&shared, "capacity to read"),
            2.0 * 10.0 * 730.0 * 0.000_13,
        );
    }

    #[test]
    fn state_and_slower_checkpoints_change_what_tables_cost() {
        let plain = dollars(&bill(ALERTS, &[]), "checkpoints");
        let state = dollars(
            &bill(&format!("{ALERTS}grants.state = true\n"), &[]),
            "checkpoints",
        );
        near(state, plain * 4.0);
        let slow = dollars(
            &bill(&format!("{ALERTS}checkpoint.age = \"30s\"\n"), &[]),
            "checkpoints",
        );
        near(slow, plain * 3.004 / 30.004);
    }
}
