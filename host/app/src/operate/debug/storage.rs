//! Where recordings are looked for.

use std::path::PathBuf;

use anyhow::bail;
use shardmill_config::Config;
use shardmill_serve::kept::Kept;
use shardmill_serve::recordings::RecordingsFolder;

use crate::cli::DebugArgs;

/// The folder with recordings, and what else a host keeps beside it.
pub(super) struct Storage {
    folder: Option<RecordingsFolder>,
    /// Why there is no folder.
    why_none: String,
    /// Versions of plugins.
    pub(super) kept: Option<Kept>,
    /// The plugins folder.
    pub(super) plugins: PathBuf,
    /// What a component may have, in bytes.
    pub(super) bytes_max: u64,
}

impl Storage {
    pub(super) fn of(args: &DebugArgs, config: &Config) -> Self {
        let cache = cache(args, config);
        let bytes_max = config.host.plugin_bytes_max;
        let kept = cache.as_ref().ok();
        let kept = kept.map(|cache| Kept::beside(cache, bytes_max));
        let own = |cache: &PathBuf| RecordingsFolder::beside(cache);
        let folder = match &args.from {
            Some(folder) => Some(RecordingsFolder::at(folder.clone())),
            None => cache.as_ref().ok().map(own),
        };
        Self {
            folder,
            why_none: cache.err().unwrap_or_default(),
            kept,
            plugins: config.plugins.clone(),
            bytes_max,
        }
    }

    /// The folder.
    ///
    /// # Errors
    /// It is not known where it is.
    pub(super) fn folder(&self) -> anyhow::Result<&RecordingsFolder> {
        match &self.folder {
            Some(folder) => Ok(folder),
            None => bail!(
                "it is not known where the host keeps its recordings: {}; name the file that the \
                    host was started with by --config, or the folder by --from",
                self.why_none
            ),
        }
    }

    /// The same, if it is known.
    pub(super) fn folder_if_known(&self) -> Option<&RecordingsFolder> {
        self.folder.as_ref()
    }
}

/// Where the host keeps what outlives it.
fn cache(args: &DebugArgs, config: &Config) -> Result<PathBuf, String> {
    if let Some(data) = &args.local {
        return Ok(data.join(crate::author::arguments::DEV_CACHE));
    }
    match &args.config {
        Some(file) => config.cache_of_host(file),
        None => Err("there is no --config".to_owned()),
    }
}
