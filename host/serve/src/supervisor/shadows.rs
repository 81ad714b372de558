//! Versions that run in the shadow of a plugin: `NAME.shadow.wasm` in the folder. Each is promoted or
//! dropped by its file, so that the folder says what runs also after a restart.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
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
    /// Files that were refused, with their digests where they could be read, and why.
    refused: HashMap<PluginName, (PluginDigest, String)>,
}

/// The files of a plugin and of its shadow.
struct Files {
    plugin: PathBuf,
    shadow: PathBuf,
    bytes_max: u64,
}

impl Supervisor {
    /// Takes in what the folder reports about a shadow; gives back what it reports about plugins.
    pub(super) fn take_shadow_event(&mut self, event: FolderEvent) -> Option<FolderEvent> {
        match event {
            FolderEvent::Loaded { name, plugin } | FolderEvent::Changed { name, plugin, .. }
                if name.shadowed().is_some() =>
            {
                self.shadow_loaded(&name.shadowed().unwrap_or(name), Arc::new(plugin));
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

    fn shadow_loaded(&mut self, name: &PluginName, version: Version) {
        if !self.running.contains_key(name) {
            tracing::info!(plugin = %name, digest = %version.digest(), "a version for the shadow \
                waits until the plugin itself runs");
        }
        self.shadows.refused.remove(name);
        self.shadows.files.insert(name.clone(), version);
        self.follow_shadow(name);
    }

    /// Runs what the folder has for the shadow of the plugin, if the plugin runs another version.
    pub(super) fn follow_shadow(&self, name: &PluginName) {
        let Some(running) = self.running.get(name) else {
            return;
        };
        let shadow = running.rollout.shadow();
        shadow.set_policy(running.settings.plugin.shadow);
        if let Some(version) = self.shadows.files.get(name)
            && shadow.offer(version, wall_ms())
        {
            tracing::info!(plugin = %name, digest = %version.digest(), "running a version in the \
                shadow: its output is compared and not stored");
        }
        if let Some((digest, why)) = self.shadows.refused.get(name) {
            shadow.refuse(digest, why, wall_ms());
        }
    }

    fn shadow_removed(&mut self, name: &PluginName) {
        self.shadows.files.remove(name);
        self.shadows.refused.remove(name);
        if let Some(running) = self.running.get(name) {
            tracing::info!(plugin = %name, "the file for the shadow is gone");
            running.rollout.shadow().withdraw();
        }
    }

    /// A refused shadow is no trouble of the plugin: it is shown among the plugin's versions.
    fn shadow_refused(&mut self, file: &str, reason: &Refusal) {
        tracing::warn!(file, %reason, "a file for the shadow of a plugin was refused");
        self.note_deadly(reason);
        if let Some(name) = shadow_of_file(file)
            && let Some(digest) = reason.digest()
        {
            let refused = (digest.clone(), reason.to_string());
            self.shadows.refused.insert(name.clone(), refused);
            self.follow_shadow(&name);
        }
    }

    /// Follows the version at work of each plugin, and promotes and drops what the rules of the
    /// configuration say.
    pub(super) fn look_at_shadows(&mut self) {
        let names: Vec<PluginName> = self.running.keys().cloned().collect();
        for name in names {
            self.follow_shadow(&name);
            self.apply_shadow_rule(&name);
        }
    }

    fn apply_shadow_rule(&mut self, name: &PluginName) {
        let Some(running) = self.running.get(name) else {
            return;
        };
        let shadow = running.rollout.shadow();
        let (verb, why) = match shadow.rule() {
            Ruling::GoOn => return,
            // A pin would hold it back, and a trial is about another version yet.
            Ruling::Promote(_) if self.is_pinned(name) || !running.rollout.is_settled() => return,
            Ruling::Promote(why) => (ShadowVerb::Promote, why),
            Ruling::Drop(why) => (ShadowVerb::Drop, why),
        };
        let Some(report) = shadow.report() else {
            return;
        };
        let (Ok(outcome) | Err(outcome)) = self.end_shadow(name, &report.digest, verb);
        if let Some(running) = self.running.get(name) {
            let outcome = format!("{outcome} ({why})");
            running.rollout.shadow_ended(report.digest, &outcome);
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
        let bytes_max = self.parts.config.host.plugin_bytes_max;
        let files = Files::of(&self.parts.config.plugins, name, bytes_max);
        let running = self.running.get(name);
        let report = running.and_then(|running| running.rollout.shadow().report());
        let at_work = report.and_then(|report| report.at_work);
        let ended = files.end(digest, verb, at_work.as_ref());
        let outcome = match (verb, ended) {
            (ShadowVerb::Promote, Ok(())) => {
                Ok(format!("promoted {digest}: its file is now {name}.wasm"))
            }
            (ShadowVerb::Drop, Ok(())) => Ok(format!(
                "dropped {digest}: its file is now {name}.shadow.wasm.dropped"
            )),
            (ShadowVerb::Promote, Err(error)) => {
                Err(format!("not promoted, and stopped: {error:#}"))
            }
            (ShadowVerb::Drop, Err(error)) => {
                Err(format!("stopped until the host restarts: {error:#}"))
            }
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
    fn of(folder: &Path, name: &PluginName, bytes_max: u64) -> Self {
        Self {
            plugin: folder.join(format!("{name}.wasm")),
            shadow: folder.join(format!("{}.wasm", name.shadow())),
            bytes_max,
        }
    }

    /// `at_work`: the version that it was compared with, if that is known.
    fn end(
        &self,
        digest: &PluginDigest,
        verb: ShadowVerb,
        at_work: Option<&PluginDigest>,
    ) -> anyhow::Result<()> {
        if !self.shadow.exists() {
            return self.check_ended(digest, verb);
        }
        let found = self.read(&self.shadow)?;
        if found != *digest {
            let path = self.shadow.display();
            bail!("{path} holds version {found} by now: give the command for that one");
        }
        match verb {
            ShadowVerb::Promote => self.promote(at_work),
            ShadowVerb::Drop => self.put_aside(),
        }
    }

    /// Another host may have done it, which has the same folder.
    fn check_ended(&self, digest: &PluginDigest, verb: ShadowVerb) -> anyhow::Result<()> {
        let is_promoted = self.read(&self.plugin).is_ok_and(|found| found == *digest);
        match verb {
            ShadowVerb::Promote if is_promoted => Ok(()),
            ShadowVerb::Drop if !is_promoted => Ok(()),
            ShadowVerb::Promote => bail!("{} is gone", self.shadow.display()),
            ShadowVerb::Drop => bail!("it was promoted meanwhile"),
        }
    }

    fn read(&self, path: &Path) -> anyhow::Result<PluginDigest> {
        Ok(Found::read(path, self.bytes_max)?.digest)
    }

    /// Replaces the file of the plugin, unless that is not of the version at work any more: somebody
    /// has deployed another one, which nothing was compared with.
    fn promote(&self, at_work: Option<&PluginDigest>) -> anyhow::Result<()> {
        if let (Some(at_work), true) = (at_work, self.plugin.exists()) {
            let found = self.read(&self.plugin)?;
            if found != *at_work {
                bail!(
                    "{} holds version {found}, and what was compared with was {at_work}",
                    self.plugin.display()
                );
            }
        }
        let signature = signature_of(&self.plugin);
        let before = std::fs::read(&signature).ok();
        self.take_signature(&signature)?;
        let renamed = rename(&self.shadow, &self.plugin);
        if renamed.is_err() {
            // The version at work must be able to start again.
            self.give_signature_back(&signature, before.as_deref())?;
        }
        renamed
    }

    /// Puts the signature of the shadow where that of the plugin is, or removes that one, which would
    /// have other bytes refused. A host that sees the one file before the other looks again.
    fn take_signature(&self, signature: &Path) -> anyhow::Result<()> {
        let own = signature_of(&self.shadow);
        if own.exists() {
            return rename(&own, signature);
        }
        if signature.exists() {
            std::fs::remove_file(signature)
                .with_context(|| format!("cannot remove {}", signature.display()))?;
        }
        Ok(())
    }

    fn give_signature_back(&self, signature: &Path, before: Option<&[u8]>) -> anyhow::Result<()> {
        if signature.exists() {
            rename(signature, &signature_of(&self.shadow))?;
        }
        if let Some(before) = before {
            std::fs::write(signature, before)
                .with_context(|| format!("cannot write {} back", signature.display()))?;
        }
        Ok(())
    }

    fn put_aside(&self) -> anyhow::Result<()> {
        let signature = signature_of(&self.shadow);
        rename(&self.shadow, &aside(&self.shadow))?;
        if signature.exists() {
            rename(&signature, &aside(&signature))?;
        }
        Ok(())
    }
}

/// Where no host reads it.
fn aside(path: &Path) -> PathBuf {
    let mut aside = path.as_os_str().to_owned();
    aside.push(".dropped");
    aside.into()
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

    const BYTES_MAX: u64 = 1_000;

    fn files(folder: &Path) -> Files {
        Files::of(folder, &PluginName::new("orders").unwrap(), BYTES_MAX)
    }

    fn digest(text: &str) -> PluginDigest {
        shardmill_wasm::digest_of(text.as_bytes())
    }

    fn write(folder: &Path, files: &[(&str, &str)]) {
        for (file, text) in files {
            std::fs::write(folder.join(file), text).unwrap();
        }
    }

    fn read(folder: &Path, file: &str) -> Option<String> {
        std::fs::read_to_string(folder.join(file)).ok()
    }

    #[test]
    fn a_promoted_file_takes_its_signature_along_and_no_other_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        write(
            folder,
            &[
                ("orders.wasm", "old"),
                ("orders.wasm.sig", "of old"),
                ("orders.shadow.wasm", "new"),
                ("orders.shadow.wasm.sig", "of new"),
            ],
        );
        files(folder).promote(Some(&digest("old"))).unwrap();
        assert_eq!(read(folder, "orders.wasm").unwrap(), "new");
        assert_eq!(read(folder, "orders.wasm.sig").unwrap(), "of new");
        assert_eq!(read(folder, "orders.shadow.wasm"), None);
        assert_eq!(read(folder, "orders.shadow.wasm.sig"), None);
        write(folder, &[("orders.shadow.wasm", "newer")]);
        files(folder).promote(Some(&digest("new"))).unwrap();
        assert_eq!(read(folder, "orders.wasm").unwrap(), "newer");
        assert_eq!(read(folder, "orders.wasm.sig"), None);
    }

    #[test]
    fn a_promotion_that_fails_leaves_the_version_at_work_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        // A file cannot take the place of a folder.
        std::fs::create_dir(folder.join("orders.wasm")).unwrap();
        let signatures = [
            ("orders.wasm.sig", "of old"),
            ("orders.shadow.wasm.sig", "of new"),
        ];
        write(folder, &[("orders.shadow.wasm", "new")]);
        for with in [&signatures[..], &signatures[..1], &signatures[1..], &[]] {
            write(folder, with);
            files(folder).promote(None).unwrap_err();
            for (file, text) in signatures {
                let expected = with.contains(&(file, text)).then(|| text.to_owned());
                assert_eq!(read(folder, file), expected, "{file} of {with:?}");
                let _ = std::fs::remove_file(folder.join(file));
            }
            assert_eq!(read(folder, "orders.shadow.wasm").unwrap(), "new");
        }
    }

    #[test]
    fn neither_a_file_that_was_replaced_is_promoted_nor_one_that_was_deployed_meanwhile_overwritten()
     {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        write(
            folder,
            &[("orders.wasm", "hotfix"), ("orders.shadow.wasm", "new")],
        );
        let end = |digest, at_work| {
            let ended = files(folder).end(&digest, ShadowVerb::Promote, Some(&at_work));
            ended.unwrap_err().to_string()
        };
        let told = end(digest("older"), digest("hotfix"));
        assert!(told.contains("by now"), "{told}");
        let told = end(digest("new"), digest("old"));
        assert!(told.contains("what was compared with was"), "{told}");
        assert_eq!(read(folder, "orders.wasm").unwrap(), "hotfix");
    }

    #[test]
    fn what_another_host_with_the_same_folder_did_is_done() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let new = digest("new");
        let end = |verb| files(folder).end(&new, verb, None);
        write(folder, &[("orders.wasm", "old")]);
        assert!(
            end(ShadowVerb::Promote).is_err(),
            "there is nothing to promote"
        );
        write(folder, &[("orders.shadow.wasm", "new")]);
        for _ in 0..2 {
            end(ShadowVerb::Promote).unwrap();
            assert_eq!(read(folder, "orders.wasm").unwrap(), "new");
        }
        let told = end(ShadowVerb::Drop).unwrap_err().to_string();
        assert!(told.contains("promoted meanwhile"), "{told}");
        write(
            folder,
            &[
                ("orders.wasm", "old"),
                ("orders.shadow.wasm", "new"),
                ("orders.shadow.wasm.sig", "of new"),
            ],
        );
        for _ in 0..2 {
            end(ShadowVerb::Drop).unwrap();
            assert_eq!(read(folder, "orders.shadow.wasm"), None);
        }
        let aside = read(folder, "orders.shadow.wasm.dropped");
        assert_eq!(aside.unwrap(), "new");
        assert_eq!(read(folder, "orders.shadow.wasm.sig"), None);
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
