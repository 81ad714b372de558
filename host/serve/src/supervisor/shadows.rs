//! Versions that run in the shadow of a plugin: `NAME.shadow.wasm` in the folder. Each is promoted or
//! dropped by its file, so that the folder says what runs also after a restart.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use shardmill_core::control::ShadowVerb;
use shardmill_core::plugin::{PluginDigest, PluginName};
use shardmill_core::shadow::Ruling;
use shardmill_wasm::folder::{FolderEvent, Refusal};
use shardmill_worker::Outcome;

use super::refused::wall_ms;
use super::{Running, Supervisor, Version};
use crate::component::{Found, signature_of};

/// What the folder has for the shadow of each plugin, by the plugin's name.
#[derive(Default)]
pub(super) struct Shadows {
    files: HashMap<PluginName, Version>,
}

/// The files of a plugin and of its shadow.
struct Files {
    plugin: PathBuf,
    shadow: PathBuf,
}

impl Supervisor {
    /// Takes in what the folder reports about a shadow; gives back what it reports about plugins.
    pub(super) fn take_shadow_event(&mut self, event: FolderEvent) -> Option<FolderEvent> {
        match event {
            FolderEvent::Loaded { name, plugin } | FolderEvent::Changed { name, plugin, .. }
                if name.shadowed().is_some() =>
            {
                let name = name.shadowed().unwrap_or(name);
                self.shadows.files.insert(name.clone(), Arc::new(plugin));
                self.offer_shadow(&name);
            }
            FolderEvent::Removed { name } if name.shadowed().is_some() => {
                self.shadow_removed(&name.shadowed().unwrap_or(name));
            }
            FolderEvent::Refused { file, reason, .. } if shadow_of_file(&file).is_some() => {
                self.shadow_refused(&file, &reason);
            }
            FolderEvent::RefusedGone { file } if shadow_of_file(&file).is_some() => {
                if let Some(name) = shadow_of_file(&file) {
                    self.shadow_removed(&name);
                }
            }
            other => return Some(other),
        }
        None
    }

    /// Runs what the folder has for the shadow of the plugin, if the plugin runs.
    pub(super) fn offer_shadow(&self, name: &PluginName) {
        let (Some(version), Some(running)) = (self.shadows.files.get(name), self.running.get(name))
        else {
            return;
        };
        let shadow = running.rollout.shadow();
        shadow.set_policy(running.settings.plugin.shadow);
        if running.versions.borrow().digest() == version.digest() {
            return shadow.refuse(
                version.digest().clone(),
                "it is the version at work",
                wall_ms(),
            );
        }
        tracing::info!(plugin = %name, digest = %version.digest(), "running a version in the \
            shadow: its output is compared and not stored");
        shadow.offer(Arc::clone(version), wall_ms());
    }

    fn shadow_removed(&mut self, name: &PluginName) {
        self.shadows.files.remove(name);
        if let Some(running) = self.running.get(name) {
            tracing::info!(plugin = %name, "no version runs in the shadow any more");
            running.rollout.shadow().withdraw();
        }
    }

    /// A refused shadow is no trouble of the plugin: it is shown among the plugin's versions.
    fn shadow_refused(&mut self, file: &str, reason: &Refusal) {
        tracing::warn!(file, %reason, "a file for the shadow of a plugin was refused");
        self.note_deadly(reason);
        if let Some(running) = shadow_of_file(file).and_then(|name| self.running.get(&name))
            && let Some(digest) = reason.digest()
        {
            let shadow = running.rollout.shadow();
            shadow.refuse(digest.clone(), &reason.to_string(), wall_ms());
        }
    }

    /// Promotes and drops what the rules of the configuration say.
    pub(super) fn look_at_shadows(&mut self) {
        let names: Vec<PluginName> = self.running.keys().cloned().collect();
        for name in names {
            let Some(running) = self.running.get(&name) else {
                continue;
            };
            let (verb, why) = match running.rollout.shadow().rule() {
                Ruling::GoOn => continue,
                // Once it is unpinned.
                Ruling::Promote(_) if self.is_pinned(&name) => continue,
                Ruling::Promote(why) => (ShadowVerb::Promote, why),
                Ruling::Drop(why) => (ShadowVerb::Drop, why),
            };
            let Some(report) = running.rollout.shadow().report() else {
                continue;
            };
            let (Ok(outcome) | Err(outcome)) = self.end_shadow(&name, &report.digest, verb);
            if let Some(running) = self.running.get(&name) {
                let outcome = format!("{outcome} ({why})");
                running.rollout.shadow_ended(report.digest, &outcome);
            }
        }
    }

    /// Does what an operator wants of the shadow of the plugin that serves the application.
    pub(super) fn end_shadow_of(
        &mut self,
        application: &str,
        digest: &PluginDigest,
        verb: ShadowVerb,
    ) -> Outcome {
        let serves = |running: &Running| {
            let mut streams = running.settings.plugin.streams.iter();
            streams.any(|stream| stream.application == application)
        };
        let mut running = self.running.iter();
        let found = running.find(|(_, running)| serves(running));
        match found.map(|(name, _)| name.clone()) {
            Some(name) => self.end_shadow(&name, digest, verb),
            None => Err(format!("no plugin of {application} runs here")),
        }
    }

    /// The version runs no more, also if its file cannot be renamed.
    fn end_shadow(
        &mut self,
        name: &PluginName,
        digest: &PluginDigest,
        verb: ShadowVerb,
    ) -> Outcome {
        if verb == ShadowVerb::Promote && self.is_pinned(name) {
            return Err(format!(
                "not promoted: a version is pinned here; `shardmill plugins {name} --unpin` ends that"
            ));
        }
        let files = Files::of(&self.parts.config.plugins, name);
        let bytes_max = self.parts.config.host.plugin_bytes_max;
        let ended = files.end(digest, verb, bytes_max);
        let outcome = match (verb, ended) {
            (ShadowVerb::Promote, Ok(())) => {
                Ok(format!("promoted {digest}: its file is now {name}.wasm"))
            }
            (ShadowVerb::Drop, Ok(())) => Ok(format!(
                "dropped {digest}: its file is now {name}.shadow.wasm.dropped"
            )),
            (ShadowVerb::Promote, Err(error)) => Err(format!(
                "not promoted, and stopped: {error:#}; deploy the file as {name}.wasm instead"
            )),
            (ShadowVerb::Drop, Err(error)) => Err(format!(
                "stopped only until the host restarts: {error:#}; remove {name}.shadow.wasm"
            )),
        };
        tracing::info!(plugin = %name, ?outcome, "the version in the shadow ends");
        if let Some(running) = self.running.get(name) {
            let (Ok(text) | Err(text)) = &outcome;
            running.rollout.shadow().end(text);
        }
        outcome
    }
}

impl Files {
    fn of(folder: &Path, name: &PluginName) -> Self {
        Self {
            plugin: folder.join(format!("{name}.wasm")),
            shadow: folder.join(format!("{}.wasm", name.shadow())),
        }
    }

    fn end(&self, digest: &PluginDigest, verb: ShadowVerb, bytes_max: u64) -> anyhow::Result<()> {
        if self.is_ended(digest, verb, bytes_max) {
            return Ok(());
        }
        self.check(digest, bytes_max)?;
        match verb {
            ShadowVerb::Promote => self.promote(),
            ShadowVerb::Drop => self.put_aside(),
        }
    }

    /// Whether another host did it, which has the same folder.
    fn is_ended(&self, digest: &PluginDigest, verb: ShadowVerb, bytes_max: u64) -> bool {
        let is_gone = !self.shadow.exists();
        is_gone
            && match verb {
                ShadowVerb::Promote => {
                    let found = Found::read(&self.plugin, bytes_max);
                    found.is_ok_and(|found| found.digest == *digest)
                }
                ShadowVerb::Drop => true,
            }
    }

    /// Whether the file still is that version: another may have been put there meanwhile.
    fn check(&self, digest: &PluginDigest, bytes_max: u64) -> anyhow::Result<()> {
        let found = Found::read(&self.shadow, bytes_max)?;
        anyhow::ensure!(
            found.digest == *digest,
            "{} holds version {} by now",
            self.shadow.display(),
            found.digest
        );
        Ok(())
    }

    /// The signature first: a component is never seen with that of another one for longer than
    /// between two calls of the system, and what is refused then is looked at again.
    fn promote(&self) -> anyhow::Result<()> {
        let (from, to) = (signature_of(&self.shadow), signature_of(&self.plugin));
        if from.exists() {
            rename(&from, &to)?;
        } else if to.exists() {
            // It is of the bytes before, and would have these refused.
            std::fs::remove_file(&to).with_context(|| format!("cannot remove {}", to.display()))?;
        }
        rename(&self.shadow, &self.plugin)
    }

    fn put_aside(&self) -> anyhow::Result<()> {
        let mut aside = self.shadow.as_os_str().to_owned();
        aside.push(".dropped");
        rename(&self.shadow, Path::new(&aside))
    }
}

fn rename(from: &Path, to: &Path) -> anyhow::Result<()> {
    std::fs::rename(from, to)
        .with_context(|| format!("cannot rename {} to {}", from.display(), to.display()))
}

/// The plugin in whose shadow a file is to run, if it is one for a shadow.
fn shadow_of_file(file: &str) -> Option<PluginName> {
    let stem = file.strip_suffix(".wasm")?;
    PluginName::of_file(stem).ok()?.shadowed()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(folder: &Path) -> Files {
        Files::of(folder, &PluginName::new("orders").unwrap())
    }

    fn read(folder: &Path, file: &str) -> Option<String> {
        std::fs::read_to_string(folder.join(file)).ok()
    }

    #[test]
    fn a_promoted_file_takes_its_signature_along_and_no_other_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let at = |file: &str| folder.path().join(file);
        std::fs::write(at("orders.wasm"), "old").unwrap();
        std::fs::write(at("orders.wasm.sig"), "of old").unwrap();
        std::fs::write(at("orders.shadow.wasm"), "new").unwrap();
        std::fs::write(at("orders.shadow.wasm.sig"), "of new").unwrap();
        files(folder.path()).promote().unwrap();
        assert_eq!(read(folder.path(), "orders.wasm").unwrap(), "new");
        assert_eq!(read(folder.path(), "orders.wasm.sig").unwrap(), "of new");
        assert_eq!(read(folder.path(), "orders.shadow.wasm"), None);
        assert_eq!(read(folder.path(), "orders.shadow.wasm.sig"), None);
        std::fs::write(at("orders.shadow.wasm"), "newer").unwrap();
        files(folder.path()).promote().unwrap();
        assert_eq!(read(folder.path(), "orders.wasm").unwrap(), "newer");
        assert_eq!(read(folder.path(), "orders.wasm.sig"), None);
    }

    #[test]
    fn a_file_that_was_replaced_meanwhile_is_not_promoted() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("orders.shadow.wasm"), "another").unwrap();
        let digest = shardmill_wasm::digest_of(b"new");
        let refused = files(folder.path()).check(&digest, 1_000).unwrap_err();
        assert!(refused.to_string().contains("by now"), "{refused}");
        let digest = shardmill_wasm::digest_of(b"another");
        files(folder.path()).check(&digest, 1_000).unwrap();
    }

    #[test]
    fn what_another_host_with_the_same_folder_did_is_done() {
        let folder = tempfile::tempdir().unwrap();
        let digest = shardmill_wasm::digest_of(b"new");
        let end = |verb| files(folder.path()).end(&digest, verb, 1_000);
        std::fs::write(folder.path().join("orders.wasm"), "old").unwrap();
        assert!(
            end(ShadowVerb::Promote).is_err(),
            "there is nothing to promote"
        );
        std::fs::write(folder.path().join("orders.shadow.wasm"), "new").unwrap();
        for _ in 0..2 {
            end(ShadowVerb::Promote).unwrap();
            assert_eq!(read(folder.path(), "orders.wasm").unwrap(), "new");
        }
        std::fs::write(folder.path().join("orders.shadow.wasm"), "new").unwrap();
        for _ in 0..2 {
            end(ShadowVerb::Drop).unwrap();
            assert_eq!(read(folder.path(), "orders.shadow.wasm"), None);
        }
        let aside = read(folder.path(), "orders.shadow.wasm.dropped");
        assert_eq!(aside.unwrap(), "new");
    }

    #[test]
    fn only_files_for_a_shadow_are_taken_as_such() {
        let name = |file| shadow_of_file(file).map(|name| name.to_string());
        assert_eq!(name("orders.shadow.wasm").as_deref(), Some("orders"));
        for other in [
            "orders.wasm",
            "orders.shadow",
            ".shadow.wasm",
            "shadow.wasm",
        ] {
            assert_eq!(name(other), None, "{other}");
        }
    }
}
