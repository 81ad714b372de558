//! Batches that failed, on this host's disk: written in a thread of their own, which no shard waits
//! for, and read by `shardmill debug`.

mod components;
mod file_name;
mod folder;
mod metrics;
#[cfg(test)]
mod sample;
mod writer;

use std::sync::Arc;

use shardmill_config::Config;
use shardmill_worker::{RecordingLimits, Recordings};

pub use self::components::Components;
pub use self::folder::{Found, RecordingsFolder, read};
pub(crate) use self::metrics::describe;
pub(crate) use self::writer::WAITING_MAX;
use self::writer::Writer;
use crate::kept::Kept;

/// Keeps what fails on this host, if its configuration allows that and it has a folder of its own
/// for it. A host that has none runs as well without.
pub(crate) fn recordings(config: &Config) -> Recordings {
    if !config.recordings.is_enabled {
        return Recordings::off();
    }
    let Ok(cache) = config.host.cache.folder() else {
        tracing::info!("batches that fail are not recorded, since host.cache names no folder");
        return Recordings::off();
    };
    let folder = RecordingsFolder::beside(cache);
    let kept = Kept::beside(cache, config.host.plugin_bytes_max);
    match folder
        .prepare()
        .and_then(|()| Writer::start(folder.clone(), kept, config))
    {
        Ok(writer) => Recordings::new(
            Arc::new(writer),
            RecordingLimits {
                instance_bytes: config.recordings.instance_memory_bytes,
                host_bytes: config.recordings.memory_bytes,
            },
        ),
        Err(error) => {
            tracing::warn!(%error, code = "recordings-off", "batches that fail are not recorded");
            Recordings::off()
        }
    }
}
