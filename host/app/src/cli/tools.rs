//! `shardmill completions`, `man` and `version`: about the program itself.

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

use super::OutputArgs;

/// Arguments of `completions`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    shardmill completions bash > ~/.local/share/bash-completion/completions/shardmill\n  \
    shardmill completions zsh > ~/.zfunc/_shardmill\n  \
    shardmill completions fish > ~/.config/fish/completions/shardmill.fish")]
pub(crate) struct CompletionsArgs {
    /// The shell.
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

/// Arguments of `man`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  \
    shardmill man --out ~/.local/share/man/man1 && man shardmill-run")]
pub(crate) struct ManArgs {
    /// The folder to write them to; created if it is missing.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) out: PathBuf,
}

/// Arguments of `version`.
#[derive(Debug, Args)]
pub(crate) struct VersionArgs {
    /// Also show the compiler, engine, contract, machine, and the data formats that it
    /// reads.
    #[arg(long)]
    pub(crate) verbose: bool,
    /// How to print.
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
