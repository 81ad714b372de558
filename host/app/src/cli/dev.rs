//! `shardmill dev`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use super::values;

/// The folder of plugins where none is named.
pub(crate) const PLUGINS: &str = "plugins";

/// Arguments of `dev`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    shardmill dev\n  \
    shardmill dev --feed flights.ndjson.gz --key-field carrier --until-idle")]
pub(crate) struct DevArgs {
    /// The folder of plugins. `plugins` is created if it is missing; any other must exist.
    #[arg(long, default_value = PLUGINS)]
    pub(crate) plugins: PathBuf,
    /// Where the embedded stack keeps streams, leases and checkpoints; other commands find it with
    /// --local=DATA, as this one does.
    #[arg(
        long,
        visible_alias = "local",
        value_name = "DATA",
        num_args = 0..=1,
        default_value = "data",
        default_missing_value = "data"
    )]
    pub(crate) data: PathBuf,
    /// The stream; created if it is missing.
    #[arg(long, default_value = "dev")]
    pub(crate) stream: String,
    /// Shards of a stream that is created.
    #[arg(long, default_value_t = 4, value_parser = values::count::<1000>)]
    pub(crate) shards: u32,
    /// A file whose lines to put into the stream at the start, plain or gzip; `-` is standard
    /// input.
    #[arg(long, value_name = "FILE")]
    pub(crate) feed: Option<PathBuf>,
    /// The field of each line that becomes the partition key, such as `carrier` or
    /// `properties.net`.
    #[arg(long, value_name = "FIELD", requires = "feed")]
    pub(crate) key_field: Option<String>,
    /// Exit with a summary once every record is processed and checkpointed; exit code 65 if records
    /// were given up.
    #[arg(long)]
    pub(crate) until_idle: bool,
    /// Print the summary as JSON.
    #[arg(long, requires = "until_idle")]
    pub(crate) json: bool,
    /// Other settings, as for `run`; its stream, plugins folder and endpoints are ignored.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Loopback port of the embedded Kinesis; 0 picks a free one.
    #[arg(long, default_value_t = 0)]
    pub(crate) kinesis_port: u16,
    /// Loopback port of the embedded DynamoDB; 0 picks a free one.
    #[arg(long, default_value_t = 0)]
    pub(crate) dynamodb_port: u16,
    /// Where to serve /status and /metrics.
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "127.0.0.1:0",
        value_parser = values::address
    )]
    pub(crate) admin: SocketAddr,
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::Parser;

    use crate::cli::{AuthorCommand, Cli, Command};

    fn data_of(args: &[&str]) -> std::path::PathBuf {
        let line = ["shardmill", "dev"].iter().chain(args);
        match Cli::parse_from(line).command {
            Command::Author(AuthorCommand::Dev(args)) => args.data,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_data_directory_is_named_as_in_every_other_command_too() {
        for args in [
            &["--data", "there"][..],
            &["--data=there"],
            &["--local=there"],
        ] {
            assert_eq!(data_of(args), Path::new("there"), "{args:?}");
        }
        for args in [&[][..], &["--local"]] {
            assert_eq!(data_of(args), Path::new("data"), "{args:?}");
        }
    }
}
