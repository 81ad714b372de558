//! `shardmill doctor`.

use std::time::Duration;

use clap::Args;

use super::{ConnectionArgs, OutputArgs, WatchArgs, values};

/// Arguments of `doctor`.
#[derive(Debug, Args)]
#[command(
    after_help = "The default of --watch-for is 1.2 times the --failover-time if that is given. \
        Exit code: 0 if a host may use the table, 1 if something must be fixed \
        first.\n\nExamples:\n  \
    shardmill doctor orders --stream orders\n  \
    shardmill doctor orders --watch-for 0s --json"
)]
pub(crate) struct DoctorArgs {
    /// The application: its lease table's name, as for a KCL application; or another library's
    /// table.
    pub(crate) application: String,
    /// The stream, by name or ARN; leases are then compared with its shards.
    #[arg(long, value_name = "STREAM")]
    pub(crate) stream: Option<String>,
    /// The failover time of the KCL fleet that uses the table (failoverTimeMillis; the KCL's
    /// default is 10s). It is in no table, so without it no worker of a KCL counts as dead.
    #[arg(long, value_name = "DURATION", value_parser = values::failover_time)]
    pub(crate) failover_time: Option<Duration>,
    /// How long to watch. A failover time that is given counts as the lease duration.
    #[command(flatten)]
    pub(crate) watch: WatchArgs,
    /// How to print.
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// Where the streams and tables are.
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
}
