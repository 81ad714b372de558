//! Files in the folder that are not loaded. The status page shows them, and the plugin's running
//! version reports them to the fleet.

use std::collections::HashMap;

use shardmill_core::plugin::{PluginDigest, PluginName};
use shardmill_core::ports::Clock;
use shardmill_wasm::LoadError;
use shardmill_wasm::folder::Refusal;

use super::Supervisor;
use crate::clock::BootClock;

/// The files that are refused, by their names without the ending.
#[derive(Default)]
pub(super) struct RefusedFiles {
    files: HashMap<String, RefusedFile>,
}

struct RefusedFile {
    reason: String,
    /// Of the bytes, where they could be read.
    digest: Option<PluginDigest>,
    since_ms: u64,
}

impl RefusedFiles {
    /// Why the file of a plugin is refused, if it is.
    pub(super) fn reason(&self, name: &PluginName) -> Option<&str> {
        self.files
            .get(name.as_str())
            .map(|file| file.reason.as_str())
    }
}

impl Supervisor {
    /// Others may write to the folder: who that is, or that it is over.
    pub(super) fn folder_is_open(&self, reported: Option<String>) {
        if let Some(who) = &reported {
            tracing::warn!(
                who,
                code = "folder-open",
                "the plugins folder is open to others"
            );
        }
        self.status.folder_written_by(reported);
    }

    /// A file was refused. `keeps` is the version that the folder loaded before it.
    pub(super) fn refused(&mut self, file: &str, reason: &Refusal, keeps: Option<PluginDigest>) {
        // What the folder loaded last may have been rolled back since, or never started.
        if let Some(kept) = self.runs(file).or(keeps) {
            tracing::warn!(
                file,
                %reason,
                %kept,
                code = "file-refused-kept",
                "plugin file refused, the previous version keeps running"
            );
        } else {
            tracing::warn!(file, %reason, code = "file-refused", "plugin file refused");
        }
        self.file_refused(file, reason);
    }

    /// The version that runs of the plugin whose file this is.
    fn runs(&self, file: &str) -> Option<PluginDigest> {
        let name = PluginName::new(file.strip_suffix(".wasm")?).ok()?;
        self.running.get(&name)?.rollout.active()
    }

    fn file_refused(&mut self, file: &str, refusal: &Refusal) {
        let (name, reason) = (
            file.strip_suffix(".wasm").unwrap_or(file),
            refusal.to_string(),
        );
        self.status.file_refused(name, &reason);
        let refused = RefusedFile {
            reason,
            digest: refusal.digest().cloned(),
            since_ms: wall_ms(),
        };
        self.refused.files.insert(name.to_owned(), refused);
        if let Ok(name) = PluginName::new(name) {
            self.report_refused_to_fleet(&name);
        }
        self.note_deadly(refusal);
        self.file_is_unfit(file);
    }

    /// The fleets of the plugin are to know of a version that killed this host, also of one that
    /// ran in the plugin's shadow.
    pub(super) fn note_deadly(&mut self, refusal: &Refusal) {
        if let Refusal::Bytes {
            digest,
            error: LoadError::Deadly { plugin, why, .. },
        } = refusal
        {
            let plugin = plugin.shadowed().unwrap_or_else(|| plugin.clone());
            self.found_deadly(plugin, digest.clone(), why.clone());
        }
    }

    /// The file that was refused is loaded, or gone.
    pub(super) fn no_file_refused(&mut self, name: &str) {
        if self.refused.files.remove(name).is_some()
            && let Some(running) = PluginName::new(name)
                .ok()
                .and_then(|name| self.running.get(&name))
        {
            running.rollout.file_accepted();
        }
    }

    /// What runs is another version than the file's: shows why the file is refused, if it is, and
    /// no longer why that version could not run.
    pub(super) fn show_refusal_of_file(&self, name: &PluginName) {
        match self.refused.reason(name) {
            Some(reason) => self.status.file_refused(name.as_str(), reason),
            None => self.status.file_not_refused(name.as_str()),
        }
    }

    /// In the rows of the workers that serve the plugin, if there are any.
    pub(super) fn report_refused_to_fleet(&self, name: &PluginName) {
        if let Some(RefusedFile {
            reason,
            digest: Some(digest),
            since_ms,
        }) = self.refused.files.get(name.as_str())
            && let Some(running) = self.running.get(name)
        {
            running.rollout.file_refused(digest, reason, *since_ms);
        }
    }
}

pub(super) fn wall_ms() -> u64 {
    BootClock.wall_ms()
}
