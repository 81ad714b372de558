//! `shardmill import`.

use std::time::Duration;

use clap::Args;
use shardmill_core::stream::InitialPosition;

use super::{ConnectionArgs, OutputArgs, values};

/// Arguments of `import`.
#[derive(Debug, Args)]
#[command(
    after_help = "Nothing is written without --apply or --watch, and never into the library's own \
        tables. Run it as often as you like: it writes what is new, and does not touch what a host \
        has taken.\n\nExit code: 0 if the place was imported, or would be; 1 if \
        not.\n\nExamples:\n  \
    shardmill import orders-app --stream orders --to orders\n  \
    shardmill import orders-app --stream orders --to orders --apply\n  \
    shardmill import orders-app --stream orders --to orders --watch && shardmill run\n  \
    shardmill import lifion-kinesis-state --group billing --stream orders --to billing"
)]
pub(crate) struct ImportArgs {
    /// The library's application, or its table: vmware-go-kcl, kinsumer, lifion-kinesis, kcl-rb,
    /// ruststream-kinesis, Redpanda Connect, or the KCL in multi-stream mode.
    pub(crate) from: String,
    /// The application that continues: the plugin's name, unless the configuration says otherwise.
    #[arg(long, value_name = "APPLICATION", value_parser = values::application)]
    pub(crate) to: String,
    /// The stream, by name or ARN.
    #[arg(long, value_name = "STREAM")]
    pub(crate) stream: String,
    /// The consumer group, where the table has several (lifion-kinesis).
    #[arg(long, value_name = "GROUP")]
    pub(crate) group: Option<String>,
    /// Where a shard starts that has no parents and that the library never checkpointed.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) initial_position: Unread,
    /// Write the rows.
    #[arg(long)]
    pub(crate) apply: bool,
    /// Wait until the old fleet stops, then write the rows at once.
    #[arg(long)]
    pub(crate) watch: bool,
    /// How long a worker of the old fleet may be silent before it counts as dead. Default: the
    /// library's own default (10s for vmware-go-kcl, kcl-rb, ruststream-kinesis and the KCL, 40s
    /// for lifion-kinesis, 1m for Redpanda Connect, 5m for kinsumer).
    #[arg(long, value_name = "DURATION", value_parser = values::failover_time)]
    pub(crate) failover_time: Option<Duration>,
    /// How to print.
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// Where the streams and tables are.
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
}

/// Where an unread shard starts.
#[derive(Debug, Clone, Copy, Default, clap::ValueEnum)]
pub(crate) enum Unread {
    /// At the oldest record: nothing is skipped.
    #[default]
    TrimHorizon,
    /// At records that arrive after the first host starts.
    Latest,
}

impl From<Unread> for InitialPosition {
    fn from(unread: Unread) -> Self {
        match unread {
            Unread::TrimHorizon => Self::TrimHorizon,
            Unread::Latest => Self::Latest,
        }
    }
}
