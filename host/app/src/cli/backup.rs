//! `shardmill backup` and `shardmill restore`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use shardmill_core::backup::StatesKept;

use super::{ConnectionArgs, OutputArgs, WatchArgs, values};

/// Arguments of `backup`.
#[derive(Debug, Args)]
#[command(
    after_help = "The hosts keep running. The file has every shard's checkpoint with the state that \
        belongs to it, where the application began, pauses and quarantined versions; with --plugins \
        also the components at work. Only you may read it: it has what plugins keep of your \
        records.\n\nExit code: 0 if all of it is in the file; 1 if not, and then there is no \
        file.\n\nExamples:\n  \
    shardmill backup totals --to totals.backup\n  \
    shardmill backup totals --plugins /var/lib/shardmill/plugins --to totals-$(date +%s).backup"
)]
pub(crate) struct BackupArgs {
    /// The application.
    #[arg(value_parser = values::application)]
    pub(crate) application: String,
    /// The file to write; it must not exist.
    #[arg(long, value_name = "FILE")]
    pub(crate) to: PathBuf,
    /// Also keep the components that are at work, their manifests and their signatures, from this
    /// plugins folder of a host.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) plugins: Option<PathBuf>,
    /// How to print.
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// Where the streams and tables are.
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
}

/// Arguments of `restore`.
#[derive(Debug, Args)]
#[command(
    after_help = "On the backup's own stream each shard goes on after its checkpoint, with its \
        state. On another stream (of another region, or created again) a shard with the same hash \
        keys goes on with its state at the time that its place stands for. Nothing is written \
        without --apply, nor while a host may be alive, nor over what hosts did since. You can run \
        it again.\n\nExit code: 0 if all of it is restored, or would be; 1 if not.\n\nExamples:\n  \
    shardmill restore totals.backup\n  \
    shardmill restore totals.backup --why 'tables deleted by mistake' --apply\n  \
    shardmill restore totals.backup --region eu-west-1 --stream orders --why 'fail-over' --apply"
)]
pub(crate) struct RestoreArgs {
    /// The backup.
    pub(crate) file: PathBuf,
    /// The application. Default: the backup's.
    #[arg(long, value_name = "APPLICATION", value_parser = values::application)]
    pub(crate) application: Option<String>,
    /// The stream, by name or ARN. Default: the one of the backup's name.
    #[arg(long, value_name = "STREAM")]
    pub(crate) stream: Option<String>,
    /// On another stream: read every shard from this time on, as in 2026-01-01T10:00:00Z.
    #[arg(long, value_name = "TIME", value_parser = values::time_ms)]
    pub(crate) from_time: Option<u64>,
    /// On another stream: start this long before each shard's place; use the longest time that a
    /// producer may retry a put.
    #[arg(long, value_name = "DURATION", value_parser = values::duration,
          default_value = MARGIN_SHOWN, conflicts_with = "from_time")]
    pub(crate) margin: Duration,
    /// Which states are kept. A state fits a shard with the same hash keys.
    #[arg(long, value_enum, value_name = "WHICH", default_value_t)]
    pub(crate) states: StatesArg,
    /// Also restore rows that hosts have served since: what they did since is done again.
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// Also move rows forward that are at an earlier place: what lies between is never delivered.
    #[arg(long)]
    pub(crate) forward: bool,
    /// Also write the backup's components, manifests and signatures into this folder.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) plugins: Option<PathBuf>,
    /// Do it. Without this, the command shows what it would do.
    #[arg(long, requires = "why")]
    pub(crate) apply: bool,
    /// The reason, for the history.
    #[arg(long, value_name = "TEXT", value_parser = values::why)]
    pub(crate) why: Option<String>,
    /// Who you are, for the history. Default: the user and this machine.
    #[arg(long, value_name = "NAME", value_parser = values::name_of_person)]
    pub(crate) by: Option<String>,
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

/// As it is written; a test compares it with the value in core.
const MARGIN_SHOWN: &str = "1m";

/// Which states are kept.
#[derive(Debug, Clone, Copy, Default, clap::ValueEnum)]
pub(crate) enum StatesArg {
    /// All, or nothing is restored.
    #[default]
    All,
    /// Those that fit a shard.
    Fitting,
    /// None.
    Drop,
}

impl From<StatesArg> for StatesKept {
    fn from(states: StatesArg) -> Self {
        match states {
            StatesArg::All => Self::All,
            StatesArg::Fitting => Self::Fitting,
            StatesArg::Drop => Self::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use shardmill_core::backup::MARGIN_DEFAULT;

    use super::*;

    #[test]
    fn the_margin_that_help_shows_is_the_one_of_core() {
        assert_eq!(values::duration(MARGIN_SHOWN), Ok(MARGIN_DEFAULT));
    }
}
