//! Writes recordings in a thread of its own. Whoever has one leaves it here and goes on; what comes
//! faster than the disk takes it is dropped, and counted.

use std::collections::HashSet;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use shardmill_config::Config;
use shardmill_core::backoff::is_worth_a_line;
use shardmill_core::plugin::{PluginDigest, PluginName, plugin_of_label};
use shardmill_core::ports::{Clock, Recorder};
use shardmill_core::recording::{Recording, Retention};
use shardmill_core::token_bucket::TokenBucket;

use super::components::Components;
use super::folder::RecordingsFolder;
use super::metrics::Outcome;
use crate::clock::{BootClock, wall_now};
use crate::kept::Kept;

/// Recordings that wait for the disk. Each holds a batch, which is in memory anyway while it is
/// tried again, and its run-up.
pub(crate) const WAITING_MAX: usize = 4;
/// Recordings a second, over all shards, and at once: a plugin that fails on every shard must not
/// take the disk from outputs that are written to files.
const PER_SECOND: u32 = 2;
const BURST: u32 = 32;
/// Recordings of one shard that are kept: the halves in which a poison record was searched.
const PER_SHARD_MAX: usize = 16;
/// Recordings of a host that are kept. `shardmill debug` looks at the head of each.
const IN_ALL_MAX: usize = 256;
/// How often it is looked for what is too old, if nothing fails.
const PRUNE_EVERY: Duration = Duration::from_mins(10);
/// Versions whose components were not found, and are not looked for again.
const NOT_FOUND_MAX: usize = 64;

/// The way to the thread. It ends when this is dropped.
pub(super) struct Writer {
    waiting: SyncSender<Recording>,
    // Locked for some nanoseconds, only when a batch fails.
    rate: Mutex<TokenBucket>,
}

/// What the thread works with.
struct Work {
    folder: RecordingsFolder,
    retention: Retention,
    plugins: PathBuf,
    kept: Kept,
    component_bytes_max: u64,
    not_found: HashSet<PluginDigest>,
    failures: u64,
}

impl Writer {
    /// Starts the thread.
    pub(super) fn start(folder: RecordingsFolder, kept: Kept, config: &Config) -> io::Result<Self> {
        let (waiting, recordings) = sync_channel(WAITING_MAX);
        let work = Work {
            folder,
            retention: Retention {
                per_shard: PER_SHARD_MAX,
                in_all: IN_ALL_MAX,
                bytes: config.recordings.disk_bytes,
                keep_for: config.recordings.keep_for,
            },
            plugins: config.plugins.clone(),
            kept,
            component_bytes_max: config.host.plugin_bytes_max,
            not_found: HashSet::new(),
            failures: 0,
        };
        std::thread::Builder::new()
            .name("recordings".to_owned())
            .spawn(move || work.run(&recordings))?;
        Ok(Self {
            waiting,
            rate: Mutex::new(TokenBucket::new(PER_SECOND, BURST, BootClock.now())),
        })
    }

    fn may_write(&self) -> bool {
        let mut rate = self.rate.lock().unwrap_or_else(PoisonError::into_inner);
        rate.take(BootClock.now())
    }
}

impl Recorder for Writer {
    fn keep(&self, recording: Recording) {
        if !self.may_write() || self.waiting.try_send(recording).is_err() {
            Outcome::Dropped.count();
        }
    }
}

impl Work {
    fn run(mut self, recordings: &Receiver<Recording>) {
        self.prune();
        loop {
            match recordings.recv_timeout(PRUNE_EVERY) {
                Ok(recording) => self.keep(&recording),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.prune();
        }
    }

    fn keep(&mut self, recording: &Recording) {
        // The component first: whoever sees the recording finds what to run.
        let written = self
            .keep_component(recording)
            .and_then(|()| self.folder.write(recording));
        match written {
            Ok(()) => Outcome::Written.count(),
            Err(error) => {
                Outcome::Failed.count();
                self.report(&error);
            }
        }
    }

    fn keep_component(&mut self, recording: &Recording) -> io::Result<()> {
        let digest = &recording.digest;
        if self.not_found.contains(digest) {
            return Ok(());
        }
        let Ok(name) = PluginName::new(plugin_of_label(recording.context.plugin.as_str())) else {
            return Ok(());
        };
        let mut files = vec![self.plugins.join(format!("{name}.wasm"))];
        let versions = self.kept.versions(&name).into_iter();
        files.extend(versions.map(|version| version.path));
        let components = Components::new(&self.folder);
        if !components.keep(digest, &files, self.component_bytes_max)? {
            if self.not_found.len() >= NOT_FOUND_MAX {
                self.not_found.clear();
            }
            self.not_found.insert(digest.clone());
        }
        Ok(())
    }

    fn prune(&mut self) {
        let pruned = self
            .folder
            .prune(&self.retention, wall_now())
            .and_then(|in_use| Components::new(&self.folder).prune(in_use));
        if let Err(error) = pruned {
            self.report(&error);
        }
    }

    /// Says it the first time, and then more and more rarely.
    fn report(&mut self, error: &io::Error) {
        self.failures += 1;
        if is_worth_a_line(self.failures) {
            let folder = self.folder.path().display();
            tracing::warn!(
                %folder,
                %error,
                failures = self.failures,
                code = "recording-failed",
                "a batch that failed cannot be recorded, and cannot be run again by shardmill \
                    debug; deliveries go on"
            );
        }
    }
}

#[cfg(test)]
mod tests;
