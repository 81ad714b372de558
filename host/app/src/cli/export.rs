//! `shardmill export`.

use clap::Args;
use shardmill_core::migration::Library;

use super::{ConnectionArgs, OutputArgs, WatchArgs, values};

/// Arguments of `export`.
#[derive(Debug, Args)]
#[command(
    after_help = "Nothing is written without --apply, and never into shardmill's own tables. A \
        KCL of one stream needs no export: it reads the application's table as it is.\n\nExit \
        code: 0 if the library can hold every checkpoint, 1 if not, or if a host or a worker of \
        the library may be alive.\n\nExamples:\n  \
    shardmill export orders --as vmware-go-kcl --to orders-app --stream orders\n  \
    shardmill export orders --as kinsumer --to orders-app --stream orders --apply"
)]
pub(crate) struct ExportArgs {
    /// The application whose checkpoints to export.
    #[arg(value_parser = values::application)]
    pub(crate) application: String,
    /// The library: vmware-go-kcl, kinsumer, lifion-kinesis, kcl-rb, ruststream-kinesis,
    /// redpanda-connect or kcl-multi-stream.
    #[arg(long = "as", value_name = "LIBRARY", value_parser = library)]
    pub(crate) library: Library,
    /// The library's application, or its table.
    #[arg(long, value_name = "NAME")]
    pub(crate) to: String,
    /// The stream, by name or ARN.
    #[arg(long, value_name = "STREAM")]
    pub(crate) stream: String,
    /// The consumer group (lifion-kinesis).
    #[arg(
        long,
        value_name = "GROUP",
        required_if_eq("library", "lifion-kinesis")
    )]
    pub(crate) group: Option<String>,
    /// Write the rows.
    #[arg(long)]
    pub(crate) apply: bool,
    /// For how long.
    #[command(flatten)]
    pub(crate) watch: WatchArgs,
    /// How to print.
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// Where the streams and tables are.
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
}

fn library(text: &str) -> Result<Library, String> {
    Library::of_code(text).ok_or_else(|| {
        let known: Vec<&str> = Library::ALL.iter().map(|library| library.code()).collect();
        format!("it is one of {}", known.join(", "))
    })
}
