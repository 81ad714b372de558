//! What a load test would do, and what that costs.

use indicatif::{HumanBytes, HumanCount};
use serde::Serialize;
use shardmill_core::load_test::LoadTest;

use crate::cli::LoadArgs;
use crate::output::{age, print, print_json};
use crate::prices::Prices;

const MILLION: f64 = 1e6;
const SECONDS_AN_HOUR: u64 = 3_600;

/// A load test before its first record.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Plan {
    pub(super) stream: String,
    /// The shards of the stream, of one that is to be made too.
    pub(super) shards: u32,
    /// Shards that take the load without being throttled.
    pub(super) shards_needed: u32,
    pub(super) is_created: bool,
    pub(super) is_deleted: bool,
    pub(super) records: u64,
    pub(super) bytes: u64,
    pub(super) put_units: u64,
    /// Of shards that are to be made; AWS bills each hour that has begun.
    pub(super) shard_hours: u64,
    pub(super) dollars: f64,
    pub(super) prices_of: String,
    pub(super) prices_as_of: String,
}

impl Plan {
    /// For a stream of so many shards.
    pub(super) fn new(args: &LoadArgs, load: &LoadTest, shards: u32, prices: &Prices) -> Self {
        let longest = match &args.application {
            Some(_) => load.lasts.saturating_add(args.wait),
            None => load.lasts,
        };
        let hours = longest.as_secs().div_ceil(SECONDS_AN_HOUR).max(1);
        let created = args.create_with.map(u64::from);
        let shard_hours = created.map_or(0, |shards| shards.saturating_mul(hours));
        let put_units = load.put_units();
        let of_puts = put_units as f64 / MILLION * prices.kinesis_million_put_units;
        Self {
            stream: args.stream.clone(),
            shards,
            shards_needed: load.shards_needed(),
            is_created: created.is_some(),
            is_deleted: created.is_some() && !args.keep,
            records: load.records(),
            bytes: load.records().saturating_mul(u64::from(load.record_bytes)),
            put_units,
            shard_hours,
            dollars: of_puts + shard_hours as f64 * prices.kinesis_shard_hour,
            prices_of: prices.region.clone(),
            prices_as_of: prices.as_of.clone(),
        }
    }

    pub(super) fn show(&self, args: &LoadArgs) -> anyhow::Result<()> {
        if args.output.json {
            return print_json(self);
        }
        print(&self.as_text(args));
        Ok(())
    }

    fn as_text(&self, args: &LoadArgs) -> String {
        let (records, bytes) = (HumanCount(self.records), HumanBytes(self.bytes));
        let (stream, lasts) = (&self.stream, age(args.lasts));
        let mut lines = Vec::new();
        if self.is_created {
            let end = if self.is_deleted {
                "deleted at the end"
            } else {
                "kept at the end"
            };
            lines.push(format!(
                "would make stream {stream} with {} shards, {end}",
                self.shards
            ));
        }
        lines.push(format!(
            "would put {records} records of {} bytes ({bytes}) into {stream} within {lasts}",
            args.bytes
        ));
        lines.extend(self.warning());
        lines.push(format!("that costs {:.2} dollars:", self.dollars));
        lines.push(format!("  puts    {} units", HumanCount(self.put_units)));
        if self.shard_hours > 0 {
            lines.push(format!("  shards  {} shard-hours", self.shard_hours));
        }
        lines.push(format!(
            "by the prices of {} as of {}; not counted: a stream that is there, on-demand streams, \
                hosts, tables, sinks, fan-out",
            self.prices_of, self.prices_as_of
        ));
        lines.push(String::new());
        lines.push("nothing was done: --apply does it".to_owned());
        lines.join("\n")
    }

    /// A load that the stream does not take is a test of the stream, not of the hosts.
    pub(super) fn warning(&self) -> Option<String> {
        let (shards, needed) = (self.shards, self.shards_needed);
        (needed > shards).then(|| {
            format!(
                "warning: so much needs {needed} shards, and there are {shards}: Kinesis will \
                    throttle it, unless the stream is on demand"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{AuthorCommand, Cli, Command};

    fn plan(more: &[&str], shards: u32) -> Plan {
        let args = ["shardmill", "load", "--stream", "s", "--for", "90m"];
        let cli = Cli::try_parse_from(args.iter().chain(more)).unwrap();
        let Command::Author(AuthorCommand::Load(args)) = cli.command else {
            panic!("another command");
        };
        let load = super::super::test_of(&args);
        Plan::new(&args, &load, shards, &Prices::read(None).unwrap())
    }

    #[test]
    fn the_price_is_of_all_puts_and_of_each_hour_that_a_new_shard_has_begun() {
        let known = plan(&["--records-per-second", "1000"], 1);
        assert_eq!((known.records, known.shard_hours), (5_400_000, 0));
        assert!((known.dollars - 5.4 * 0.014).abs() < 1e-9, "{known:?}");
        let new = ["--records-per-second", "1000", "--create-with", "8"];
        let made = plan(&new, 8);
        assert_eq!(made.shard_hours, 16);
        assert!((made.dollars - known.dollars - 16.0 * 0.015).abs() < 1e-9);
        let waits = [&new[..], &["--application", "a", "--wait", "31m"]].concat();
        assert_eq!(plan(&waits, 8).shard_hours, 24, "the wait counts");
    }

    #[test]
    fn a_load_that_the_stream_does_not_take_is_pointed_out() {
        let fits = plan(&["--records-per-second", "2000", "--bytes", "1000"], 2);
        assert_eq!(fits.warning(), None);
        let is_more = plan(&["--records-per-second", "2001", "--bytes", "1000"], 2);
        assert!(is_more.warning().unwrap().contains("needs 3 shards"));
    }
}
