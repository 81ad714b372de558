//! The commands that change a running fleet. What they share has one meaning and one text.

use std::time::{Duration, SystemTime};

use clap::Args;
use shardmill_core::control::SeekState;

use super::{ConnectionArgs, OutputArgs, values};

/// Who makes a change, why, and whether it is only shown.
#[derive(Debug, Args)]
pub(crate) struct ChangeArgs {
    /// Make the change. Without this, the command only shows what it would do.
    #[arg(long, requires = "why")]
    pub(crate) apply: bool,
    /// The reason. Hosts show it, and the history keeps it.
    #[arg(long, value_name = "TEXT", value_parser = values::why)]
    pub(crate) why: Option<String>,
    /// Who you are, for the history. Default: the user and this machine.
    #[arg(long, value_name = "NAME", value_parser = values::name_of_person)]
    pub(crate) by: Option<String>,
    /// How long to wait until the hosts have made the change; 0s does not wait. Hosts that are not
    /// done by then make it later.
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = values::duration)]
    pub(crate) wait: Duration,
    /// How to print.
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// Where the tables are.
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
}

/// Arguments of `pause`.
#[derive(Debug, Args)]
#[command(
    after_help = "Hosts finish their batches, checkpoint, keep their leases and read nothing until \
        `shardmill resume`. Shards taken meanwhile are paused too.\n\nExit code: 0 if \
        all of them are paused, 1 if not yet.\n\nExamples:\n  \
    shardmill pause orders --why 'the database moves' --apply\n  \
    shardmill pause orders 3 7 --for 30m --why 'incident 7' --apply"
)]
pub(crate) struct PauseArgs {
    /// The application.
    #[arg(value_parser = values::application)]
    pub(crate) application: String,
    /// The shards, by id or by the number in it. Default: all, including later ones.
    pub(crate) shards: Vec<String>,
    /// End the pause after this time.
    #[arg(
        long = "for",
        value_name = "DURATION",
        value_parser = values::duration,
        conflicts_with = "until"
    )]
    pub(crate) lasting: Option<Duration>,
    /// End the pause at this time, as in 2026-01-01T10:00:00Z.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_rfc3339_weak)]
    pub(crate) until: Option<SystemTime>,
    /// Also the application's further streams.
    #[arg(long, conflicts_with = "shards")]
    pub(crate) all_streams: bool,
    /// Who makes the change, and why.
    #[command(flatten)]
    pub(crate) change: ChangeArgs,
}

/// Arguments of `resume`.
#[derive(Debug, Args)]
#[command(
    after_help = "Without shards, it ends the pause of the application and those of single \
        shards.\n\nExit code: 0 if no shard is paused any more, 1 if one still is.\n\nExamples:\n  \
    shardmill resume orders --why 'the database is back' --apply\n  \
    shardmill resume orders 3 --why 'fixed' --apply"
)]
pub(crate) struct ResumeArgs {
    /// The application.
    #[arg(value_parser = values::application)]
    pub(crate) application: String,
    /// The shards, by id or by the number in it. Default: all.
    pub(crate) shards: Vec<String>,
    /// Also the application's further streams.
    #[arg(long, conflicts_with = "shards")]
    pub(crate) all_streams: bool,
    /// Who makes the change, and why.
    #[command(flatten)]
    pub(crate) change: ChangeArgs,
}

/// Arguments of `seek`.
#[derive(Debug, Args)]
#[command(
    after_help = "The fleet keeps running: each host checkpoints, then continues at the new place. \
        Going forward leaves records out; going back delivers records again.\n\nExit code: 0 if \
        all shards went there, or would; 1 if not.\n\nExamples:\n  \
    shardmill seek orders --to 2026-01-01T10:00:00Z\n  \
    shardmill seek orders --to -2h --why 'wrong totals since ten' --apply\n  \
    shardmill seek orders 3 --to +1 --why 'poison' --apply\n  \
    shardmill seek orders --to horizon --reopen --state drop --why 'start over' --apply"
)]
pub(crate) struct SeekArgs {
    /// The application.
    #[arg(value_parser = values::application)]
    pub(crate) application: String,
    /// The shards, by id or by the number in it. Default: all that are not finished.
    pub(crate) shards: Vec<String>,
    /// The first record to deliver: `horizon` (the oldest), `tip` (what comes next), `start`
    /// (where the application began), a time as in 2026-01-01T10:00:00Z, a time before now as in
    /// -2h, a sequence number, or a number of records after the checkpoint or before it, as in +10
    /// or -10. The last two need a shard.
    #[arg(long, value_name = "PLACE", value_parser = values::target, allow_hyphen_values = true,
          required_unless_present = "cancel")]
    pub(crate) to: Option<values::Target>,
    /// Cancel a seek that no host has made yet.
    #[arg(long, conflicts_with_all = ["to", "state", "reopen"])]
    pub(crate) cancel: bool,
    /// What happens to the plugin's state, which belongs to the old place. Without this, shards
    /// with state are refused.
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(crate) state: Option<StateArg>,
    /// Also read finished shards again, and then their children from the beginning.
    #[arg(long)]
    pub(crate) reopen: bool,
    /// The stream, by name or ARN; needed only if no host has served the application yet.
    #[arg(long, value_name = "STREAM")]
    pub(crate) stream: Option<String>,
    /// Who makes the change, and why.
    #[command(flatten)]
    pub(crate) change: ChangeArgs,
}

/// What happens to a plugin's state.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(crate) enum StateArg {
    /// It stays as it is.
    Keep,
    /// The plugin starts without state.
    Drop,
}

impl From<StateArg> for SeekState {
    fn from(state: StateArg) -> Self {
        match state {
            StateArg::Keep => Self::Keep,
            StateArg::Drop => Self::Drop,
        }
    }
}

/// Arguments of `skip`.
#[derive(Debug, Args)]
#[command(
    after_help = "The shard's host gives up these records without delivering them (again), and \
        continues after them. `shardmill explain` shows the record that \
        blocks a shard.\n\nExit code: 0 if they are settled, or would be; 1 if \
        not.\n\nExamples:\n  \
    shardmill skip orders 3 49590338271490256608559692538361571095 --dead-letters letters --why 'poison' --apply\n  \
    shardmill skip orders 3 495903382 495903390 --discard --why 'test data' --apply"
)]
pub(crate) struct SkipArgs {
    /// The application.
    #[arg(value_parser = values::application)]
    pub(crate) application: String,
    /// The shard, by id or by the number in it.
    pub(crate) shard: String,
    /// The sequence number of the record, or of the first one.
    #[arg(value_parser = values::sequence, required_unless_present = "cancel")]
    pub(crate) first: Option<shardmill_core::stream::SequenceNumber>,
    /// The sequence number of the last one.
    #[arg(value_parser = values::sequence)]
    pub(crate) last: Option<shardmill_core::stream::SequenceNumber>,
    /// The sink, from the hosts' configuration, that first stores them as dead letters.
    #[arg(long, value_name = "SINK", conflicts_with = "discard")]
    pub(crate) dead_letters: Option<String>,
    /// Store them nowhere.
    #[arg(long, required_unless_present_any = ["dead_letters", "cancel"])]
    pub(crate) discard: bool,
    /// Cancel the part of a skip that is not done yet.
    #[arg(long, conflicts_with_all = ["first", "dead_letters", "discard"])]
    pub(crate) cancel: bool,
    /// Who makes the change, and why.
    #[command(flatten)]
    pub(crate) change: ChangeArgs,
}

/// Arguments of `drain`.
#[derive(Debug, Args)]
#[command(
    after_help = "The host hands over its leases, takes no new ones, and stays up until \
        `--undo`, even across restarts with the same worker id.\n\nExit code: 0 if it no longer \
        holds a lease, 1 if it does.\n\nExamples:\n  \
    shardmill drain orders host-a --why 'a new kernel' --apply\n  \
    shardmill drain orders host-a --undo --why 'done' --apply"
)]
pub(crate) struct DrainArgs {
    /// The application.
    #[arg(value_parser = values::application)]
    pub(crate) application: String,
    /// The worker, as `shardmill leases` shows it.
    pub(crate) worker: String,
    /// Let it take leases again.
    #[arg(long)]
    pub(crate) undo: bool,
    /// Who makes the change, and why.
    #[command(flatten)]
    pub(crate) change: ChangeArgs,
}

/// Arguments of `reload`.
#[derive(Debug, Args)]
#[command(
    after_help = "Each host rereads the file that it was started with, and applies the settings of \
        plugins: [plugin.NAME], [batch], [checkpoint], [retry], [failure], [rollout], \
        [ceilings] and [secrets], but not [plugin.NAME.integrity]. Plugins whose settings have changed restart between two batches. \
        If anything else has changed, the host applies nothing, and its answer names what needs \
        a restart. SIGHUP does the same to one host that runs as a service.\n\nExit code: 0 if \
        every host took over all of it, 1 if not.\n\nExamples:\n  \
    shardmill reload orders --why 'smaller batches' --apply\n  \
    shardmill reload orders --worker host-a --why 'try it on one' --apply"
)]
pub(crate) struct ReloadArgs {
    /// The application.
    #[arg(value_parser = values::application)]
    pub(crate) application: String,
    /// Only this worker, as `shardmill leases` shows it. Default: all.
    #[arg(long, value_name = "WORKER")]
    pub(crate) worker: Option<String>,
    /// Who makes the change, and why.
    #[command(flatten)]
    pub(crate) change: ChangeArgs,
}

/// Arguments of `shadow`.
#[derive(Debug, Args)]
#[command(
    after_help = "Each host that has the version renames its file: --promote makes it NAME.wasm, which \
        is then tried as any new version is; --drop puts it aside.\n\nExit code: 0 if all hosts did \
        it, or would; 1 if not.\n\nExamples:\n  \
    shardmill shadow orders\n  \
    shardmill shadow orders --promote --why 'no differences in a day' --apply"
)]
pub(crate) struct ShadowArgs {
    /// The application.
    #[arg(value_parser = values::application)]
    pub(crate) application: String,
    /// Run the version in place of the plugin's.
    #[arg(long, conflicts_with = "drop")]
    pub(crate) promote: bool,
    /// Stop running the version.
    #[arg(long)]
    pub(crate) drop: bool,
    /// The version, if hosts have several: the first 8 digits of its digest, or more.
    #[arg(long, value_name = "DIGEST")]
    pub(crate) version: Option<String>,
    /// Who makes the change, and why.
    #[command(flatten)]
    pub(crate) change: ChangeArgs,
}

/// Arguments of `release`.
#[derive(Debug, Args)]
#[command(
    after_help = "The owner finishes its batch, checkpoints and hands the shard over. Balancing \
        may move it again.\n\nExit code: 0 if it has moved, or would; 1 if \
        not.\n\nExamples:\n  \
    shardmill release orders 3 --why 'host-a is slow' --apply\n  \
    shardmill release orders 3 --to host-b --why 'more memory' --apply"
)]
pub(crate) struct ReleaseArgs {
    /// The application.
    #[arg(value_parser = values::application)]
    pub(crate) application: String,
    /// The shard, by id or by the number in it.
    pub(crate) shard: String,
    /// The worker that gets it. Default: the one with the fewest leases.
    #[arg(long, value_name = "WORKER")]
    pub(crate) to: Option<String>,
    /// Who makes the change, and why.
    #[command(flatten)]
    pub(crate) change: ChangeArgs,
}

/// Arguments of `history`.
#[derive(Debug, Args)]
#[command(
    after_help = "Entries expire after 90 days if the coordinator table has a time to live on \
        `expiresAtSeconds`; --expire turns that on.\n\nExamples:\n  \
    shardmill history orders\n  \
    shardmill history orders --since 1h --commands --json"
)]
pub(crate) struct HistoryArgs {
    /// The application.
    #[arg(value_parser = values::application)]
    pub(crate) application: String,
    /// How far back to look.
    #[arg(long, value_name = "DURATION", default_value = "7d", value_parser = values::duration)]
    pub(crate) since: Duration,
    /// How many entries to show, the latest ones.
    #[arg(
        long,
        value_name = "COUNT",
        default_value = "100",
        value_parser = values::count::<10_000>
    )]
    pub(crate) count: u32,
    /// Show only commands and what hosts did about them.
    #[arg(long)]
    pub(crate) commands: bool,
    /// Turn on the removal of old entries in DynamoDB.
    #[arg(long)]
    pub(crate) expire: bool,
    /// How to print.
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// Where the tables are.
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
}
