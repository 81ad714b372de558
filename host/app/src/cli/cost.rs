//! `shardmill cost`.

use std::path::PathBuf;

use clap::Args;

use super::{OutputArgs, values};

/// Arguments of `cost`.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:
  shardmill cost --hosts 4 --shards 64 --records-per-second 20000 --bytes 1024")]
pub(crate) struct CostArgs {
    /// The hosts' configuration file: its plugins, streams, leases and checkpoints.
    #[arg(
        long,
        value_name = "FILE",
        env = "SHARDMILL_CONFIG",
        default_value = "shardmill.toml"
    )]
    pub(crate) config: PathBuf,
    /// Hosts of the fleet.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) hosts: u32,
    /// Open shards of each stream.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) shards: u32,
    /// Records a second that arrive on each stream.
    #[arg(long, value_name = "RATE", value_parser = values::rate)]
    pub(crate) records_per_second: f64,
    /// Bytes of a record, on average.
    #[arg(
        long,
        value_name = "BYTES",
        value_parser = clap::value_parser!(u32).range(1..=10_485_760)
    )]
    pub(crate) bytes: u32,
    /// Bytes of a shard's state, on average, of plugins that keep state.
    #[arg(long, value_name = "BYTES", default_value_t = 1_024,
          value_parser = clap::value_parser!(u32).range(1..=389_120))]
    pub(crate) state_bytes: u32,
    /// The streams are on demand, not provisioned.
    #[arg(long)]
    pub(crate) on_demand: bool,
    /// A file of prices that replaces the built-in ones of us-east-1; docs/commands.md shows it.
    #[arg(long, value_name = "FILE")]
    pub(crate) prices: Option<PathBuf>,
    /// How to print.
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
