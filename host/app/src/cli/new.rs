//! `shardmill new`.

use std::path::PathBuf;

use clap::Args;

use crate::author::scaffold::Language;

/// Arguments of `new`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    shardmill new alerts\n  \
    shardmill new alerts --lang python --at services/alerts")]
pub(crate) struct NewArgs {
    /// The plugin's name: 3 to 64 lower-case letters, digits, '-' and '_', with a letter first.
    pub(crate) name: String,
    /// The language it is written in.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) lang: Language,
    /// The folder to create, which must be new or empty. Default: NAME.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) at: Option<PathBuf>,
}
