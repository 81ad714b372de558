//! What the folder reports.

use shardmill_core::plugin::{NameFault, PluginDigest, PluginName};

use crate::{IntegrityError, LoadError, Plugin};

/// Something that happened in the folder.
#[derive(Debug)]
pub enum FolderEvent {
    /// A plugin that was not there before.
    Loaded {
        /// Its name.
        name: PluginName,
        /// Its first version.
        plugin: Plugin,
    },
    /// A new version of a plugin.
    Changed {
        /// Its name.
        name: PluginName,
        /// The new version.
        plugin: Plugin,
        /// The version that was announced before.
        previous: PluginDigest,
    },
    /// A plugin's file is gone.
    Removed {
        /// Its name.
        name: PluginName,
    },
    /// A file that was refused is gone, and there was no version of it in use.
    RefusedGone {
        /// The file's name, made printable.
        file: String,
    },
    /// Something in the folder is not loaded. Sent once for each reason, or each version.
    Refused {
        /// The file's name, made printable.
        file: String,
        /// Why, and how to fix it.
        reason: Refusal,
        /// The version that was loaded last, if there is one. Whether that one is what runs, the
        /// folder does not know.
        keeps: Option<PluginDigest>,
    },
    /// The file `NAME.toml` was added, changed or removed, and has settled. Sent for the files
    /// present at the start too.
    ManifestChanged {
        /// The plugin's name.
        name: PluginName,
    },
    /// Users other than this one and root may write to the folder, or to files loaded from it.
    Writers {
        /// Which users, and what to do about it; `None` once no others may.
        reported: Option<String>,
    },
    /// The folder cannot be read: nothing new is known of it.
    Unreadable {
        /// Why, and what to do about it; `None` once it can be read again.
        reported: Option<String>,
    },
    /// Everything present in the folder at the start has been reported. Sent once.
    FirstScanDone,
}

/// Why something in the folder is not loaded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The name cannot name a plugin.
    #[error("its name cannot name a plugin: {why}")]
    Name {
        /// What is wrong with it.
        why: NameFault,
    },
    /// Not a regular file.
    #[error("it is {what}; put a regular file in its place")]
    NotAFile {
        /// What it is.
        what: &'static str,
    },
    /// Bigger than a plugin's file may be.
    #[error(
        "it has {size} bytes, more than the {limit} allowed; make it smaller, or raise \
            host.plugin-bytes-max"
    )]
    TooBig {
        /// Its size.
        size: u64,
        /// The limit.
        limit: u64,
    },
    /// There are as many plugins as there may be.
    #[error(
        "{limit} plugins are loaded or have their places kept by sections of the configuration, as \
            many as may be; remove one and put this here again, or raise host.plugins-max"
    )]
    TooMany {
        /// How many there may be.
        limit: usize,
    },
    /// Only plugins that are listed may run.
    #[error(
        "host.only-listed lets no plugin run that the host's configuration does not name: add a \
            section [plugin.{name}] there, or remove the file"
    )]
    Unlisted {
        /// The plugin.
        name: PluginName,
    },
    /// It cannot be read.
    #[error("it cannot be read: {message}")]
    Unreadable {
        /// What the system says.
        message: String,
    },
    /// Its bytes are not trusted.
    #[error("{error}")]
    Untrusted {
        /// Their digest.
        digest: PluginDigest,
        /// Why, and how to fix it.
        error: IntegrityError,
    },
    /// Its bytes are no plugin.
    #[error("{error}")]
    Bytes {
        /// Their digest: it is not tried again.
        digest: PluginDigest,
        /// What is wrong.
        error: LoadError,
    },
}

impl Refusal {
    /// The digest of the bytes, where it got so far.
    pub fn digest(&self) -> Option<&PluginDigest> {
        match self {
            Self::Untrusted { digest, .. } | Self::Bytes { digest, .. } => Some(digest),
            Self::Name { .. }
            | Self::NotAFile { .. }
            | Self::TooBig { .. }
            | Self::TooMany { .. }
            | Self::Unlisted { .. }
            | Self::Unreadable { .. } => None,
        }
    }
}
