//! Versions that run in the shadow of a plugin: `NAME.shadow.wasm` in the folder. Each is promoted
//! or dropped by its file, so that the folder says what runs also after a restart.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use shardmill_core::control::ShadowVerb;
use shardmill_core::plugin::{PluginDigest, PluginName};
use shardmill_core::shadow::Ruling;
use shardmill_wasm::folder::{FolderEvent, Refusal};
use shardmill_worker::Outcome;

use super::refused::wall_ms;
use super::{Running, Supervisor, Version};
use crate::component::{Found, signature_of};

/// How often, and for how long at most, a host waits for another that moves the same file: two
/// system calls on that one.
const LOOKS_AT_CLAIM: u32 = 10;
const LOOK_AT_CLAIM_EVERY: Duration = Duration::from_millis(10);

/// What the folder has for the shadow of each plugin, by the plugin's name.
#[derive(Default)]
pub(super) struct Shadows {
    files: HashMap<PluginName, Version>,
    /// Files that were refused, with their digests where they could be read, and why.
    refused: HashMap<PluginName, (Option<PluginDigest>, String)>,
}

/// The files of a plugin and of its shadow.
struct Files {
    plugin: PathBuf,
    shadow: PathBuf,
    /// The shadow's file while a host moves it; no host reads it.
    claimed: PathBuf,
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
        if let Some(running) = self.running.get(name) {
            running.rollout.shadow().accept();
        }
        self.follow_shadow(name);
    }

    /// Runs what the folder has for the shadow of the plugin, if the plugin runs another version.
    pub(super) fn follow_shadow(&self, name: &PluginName) {
        let Some(running) = self.running.get(name) else {
            return;
        };
        let shadow = running.rollout.shadow();
        shadow.set_policy(running.settings.plugin.shadow);
        if let Some(version) = self.shadows.files.get(name) {
            let fits = running.settings.refuse_other_contract(version.as_ref());
            if let Err(why) = fits {
                shadow.refuse(Some(version.digest()), &why, wall_ms());
            } else if shadow.offer(version, wall_ms()) {
                tracing::info!(plugin = %name, digest = %version.digest(), "running a version in \
                    the shadow: its output is compared and not stored");
            }
        }
        if let Some((digest, why)) = self.shadows.refused.get(name) {
            shadow.refuse(digest.as_ref(), why, wall_ms());
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
        tracing::warn!(
            file,
            %reason,
            code = "shadow-refused",
            "a file for the shadow of a plugin was refused"
        );
        self.note_deadly(reason);
        if let Some(name) = shadow_of_file(file) {
            let refused = (reason.digest().cloned(), reason.to_string());
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
            Ruling::Promote(_) if !self.may_promote_by_rule(name, running) => return,
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

    /// Not while a version is pinned or on trial, nor over a file that is about to be tried.
    fn may_promote_by_rule(&self, name: &PluginName, running: &Running) -> bool {
        !self.is_pinned(name)
            && running.rollout.is_settled()
            && self.check_replaced(name, running, None).is_ok()
    }

    /// Refuses to replace a file that is not of the version at work: somebody has deployed another
    /// one, which nothing was compared with. One that was found bad may go. `promoted`: the version
    /// that is to be there, and may be already if another host has the same folder.
    fn check_replaced(
        &self,
        name: &PluginName,
        running: &Running,
        promoted: Option<&PluginDigest>,
    ) -> anyhow::Result<()> {
        let files = self.files_of(name);
        if !files.plugin.exists() {
            return Ok(());
        }
        let found = files.read(&files.plugin)?;
        let is_at_work = running
            .rollout
            .active()
            .is_some_and(|at_work| at_work == found);
        let is_promoted = promoted == Some(&found);
        if is_at_work || is_promoted || running.rollout.is_quarantined(&found) {
            return Ok(());
        }
        if running.rollout.active().is_none() {
            bail!("no version of {name} is at work here yet: give the command again");
        }
        bail!("{name}.wasm holds version {found}, which nothing was compared with")
    }

    fn files_of(&self, name: &PluginName) -> Files {
        let bytes_max = self.parts.config.host.plugin_bytes_max;
        Files::of(&self.parts.config.plugins, name, bytes_max)
    }

    /// Does what an operator wants of the shadow of the plugin that serves the application.
    pub(super) fn end_shadow_of(
        &mut self,
        application: &str,
        digest: &PluginDigest,
        verb: ShadowVerb,
    ) -> Outcome {
        match self.plugin_of(application) {
            Some(name) => self.end_shadow(&name, digest, verb),
            None => Err(format!("no plugin of {application} runs here")),
        }
    }

    /// Renames the file of the version, which then runs no more.
    fn end_shadow(
        &mut self,
        name: &PluginName,
        digest: &PluginDigest,
        verb: ShadowVerb,
    ) -> Outcome {
        if verb == ShadowVerb::Promote
            && let Err(why) = self.check_promotion(name, digest)
        {
            return Err(format!("not promoted: {why:#}"));
        }
        let outcome = match self.files_of(name).end(digest, verb) {
            Ok(by) => Ok(done(name, digest, verb, by)),
            Err(error) => Err(not_done(verb, &error)),
        };
        tracing::info!(plugin = %name, ?outcome, "the version in the shadow ends");
        if let Some(running) = self.running.get(name) {
            let (Ok(text) | Err(text)) = &outcome;
            running.rollout.shadow().end(digest, text);
        }
        outcome
    }

    fn check_promotion(&self, name: &PluginName, digest: &PluginDigest) -> anyhow::Result<()> {
        if self.is_pinned(name) {
            bail!("a version is pinned here; `shardmill plugins {name} --unpin` ends that");
        }
        let Some(running) = self.running.get(name) else {
            return Ok(());
        };
        let Some(report) = running.rollout.shadow().report() else {
            // Its file has just gone: another host may have promoted it.
            return Ok(());
        };
        if report.digest != *digest {
            bail!("version {} is in the shadow by now", report.digest);
        }
        if let Some(why) = report.ended {
            bail!("it does not run here ({why}); put its file there again to compare it anew");
        }
        self.check_replaced(name, running, Some(digest))
    }
}

/// Which host renamed a file.
#[derive(Debug, PartialEq, Eq)]
enum DoneBy {
    Us,
    /// One with the same folder.
    Another,
}

fn not_done(verb: ShadowVerb, error: &anyhow::Error) -> String {
    match verb {
        ShadowVerb::Promote => format!("not promoted, and stopped: {error:#}"),
        ShadowVerb::Drop => format!("stopped until the host restarts: {error:#}"),
    }
}

/// What the host says of a file that was renamed.
fn done(name: &PluginName, digest: &PluginDigest, verb: ShadowVerb, by: DoneBy) -> String {
    match (verb, by) {
        (ShadowVerb::Promote, DoneBy::Us) => {
            format!("promoted {digest}: its file is now {name}.wasm")
        }
        (ShadowVerb::Drop, DoneBy::Us) => {
            format!("dropped {digest}: its file is now {name}.shadow.wasm.dropped")
        }
        (ShadowVerb::Promote, DoneBy::Another) => {
            format!("{digest} was promoted by another host with this folder")
        }
        (ShadowVerb::Drop, DoneBy::Another) => format!("the file of {digest} is gone"),
    }
}

impl Files {
    fn of(folder: &Path, name: &PluginName, bytes_max: u64) -> Self {
        Self {
            plugin: folder.join(format!("{name}.wasm")),
            shadow: folder.join(format!("{}.wasm", name.shadow())),
            claimed: folder.join(format!(".{}.claimed", name.shadow())),
            bytes_max,
        }
    }

    fn end(&self, digest: &PluginDigest, verb: ShadowVerb) -> anyhow::Result<DoneBy> {
        if !self.claim()? {
            return self.check_ended(digest, verb).map(|()| DoneBy::Another);
        }
        let ended = self.end_claimed(digest, verb);
        if ended.is_err() {
            rename(&self.claimed, &self.shadow)?;
        }
        ended.map(|()| DoneBy::Us)
    }

    /// Takes the file for this host, in one step: another with the same folder may try the same at
    /// this moment. False if it is gone.
    fn claim(&self) -> anyhow::Result<bool> {
        match std::fs::rename(&self.shadow, &self.claimed) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(anyhow!(error))
                .with_context(|| format!("cannot rename {}", self.shadow.display())),
        }
    }

    fn end_claimed(&self, digest: &PluginDigest, verb: ShadowVerb) -> anyhow::Result<()> {
        let found = self.read(&self.claimed)?;
        if found != *digest {
            bail!("{} holds version {found} by now", self.shadow.display());
        }
        match verb {
            ShadowVerb::Promote => self.promote(),
            ShadowVerb::Drop => self.put_aside(),
        }
    }

    /// What another host did, which has the same folder; it may be about to.
    #[expect(
        clippy::disallowed_methods,
        reason = "a tenth of a second at most, for two system calls of another host"
    )]
    fn check_ended(&self, digest: &PluginDigest, verb: ShadowVerb) -> anyhow::Result<()> {
        for _ in 0..LOOKS_AT_CLAIM {
            if !self.claimed.exists() {
                break;
            }
            std::thread::sleep(LOOK_AT_CLAIM_EVERY);
        }
        let is_promoted = self.read(&self.plugin).is_ok_and(|found| found == *digest);
        let is_dropped = aside(&self.shadow).exists();
        match verb {
            ShadowVerb::Promote if is_promoted => Ok(()),
            ShadowVerb::Drop if is_dropped || !is_promoted => Ok(()),
            ShadowVerb::Promote => bail!("{} is gone", self.shadow.display()),
            ShadowVerb::Drop => bail!("it was promoted meanwhile"),
        }
    }

    fn read(&self, path: &Path) -> anyhow::Result<PluginDigest> {
        Ok(Found::read(path, self.bytes_max)?.digest)
    }

    /// Replaces the file of the plugin. If that fails, the version at work is as able to start as
    /// it was before.
    fn promote(&self) -> anyhow::Result<()> {
        let signature = signature_of(&self.plugin);
        let before = std::fs::read(&signature).ok();
        self.take_signature(&signature)?;
        let renamed = rename(&self.claimed, &self.plugin);
        if renamed.is_err() {
            self.give_signature_back(&signature, before.as_deref())?;
        }
        renamed
    }

    /// Puts the signature of the shadow where that of the plugin is, or removes that one, which
    /// would have other bytes refused. A host that sees one file before the other looks again.
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
        rename(&self.claimed, &aside(&self.shadow))?;
        let signature = signature_of(&self.shadow);
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

    fn promote(folder: &Path, text: &str) -> anyhow::Result<DoneBy> {
        files(folder).end(&digest(text), ShadowVerb::Promote)
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
        assert_eq!(promote(folder, "new").unwrap(), DoneBy::Us);
        assert_eq!(read(folder, "orders.wasm").unwrap(), "new");
        assert_eq!(read(folder, "orders.wasm.sig").unwrap(), "of new");
        assert_eq!(read(folder, "orders.shadow.wasm"), None);
        assert_eq!(read(folder, "orders.shadow.wasm.sig"), None);
        write(folder, &[("orders.shadow.wasm", "newer")]);
        promote(folder, "newer").unwrap();
        assert_eq!(read(folder, "orders.wasm").unwrap(), "newer");
        assert_eq!(read(folder, "orders.wasm.sig"), None);
    }

    #[test]
    fn a_promotion_that_fails_leaves_all_as_it_was() {
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
            promote(folder, "new").unwrap_err();
            for (file, text) in signatures {
                let expected = with.contains(&(file, text)).then(|| text.to_owned());
                assert_eq!(read(folder, file), expected, "{file} of {with:?}");
                let _ = std::fs::remove_file(folder.join(file));
            }
            assert_eq!(read(folder, "orders.shadow.wasm").unwrap(), "new");
        }
    }

    #[test]
    fn a_file_that_was_replaced_meanwhile_is_not_promoted() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        write(
            folder,
            &[("orders.wasm", "old"), ("orders.shadow.wasm", "another")],
        );
        let told = promote(folder, "new").unwrap_err().to_string();
        assert!(told.contains("by now"), "{told}");
        assert_eq!(read(folder, "orders.wasm").unwrap(), "old");
        assert_eq!(read(folder, "orders.shadow.wasm").unwrap(), "another");
    }

    #[test]
    fn hosts_with_one_folder_promote_once_and_agree_also_at_the_same_moment() {
        for _ in 0..50 {
            let folder = tempfile::tempdir().unwrap();
            write(
                folder.path(),
                &[
                    ("orders.wasm", "old"),
                    ("orders.wasm.sig", "of old"),
                    ("orders.shadow.wasm", "new"),
                    ("orders.shadow.wasm.sig", "of new"),
                ],
            );
            let done: Vec<DoneBy> = std::thread::scope(|scope| {
                let hosts: Vec<_> = (0..4)
                    .map(|_| scope.spawn(|| promote(folder.path(), "new").unwrap()))
                    .collect();
                hosts.into_iter().map(|host| host.join().unwrap()).collect()
            });
            let us = done.iter().filter(|done| **done == DoneBy::Us).count();
            assert_eq!(us, 1, "{done:?}");
            assert_eq!(read(folder.path(), "orders.wasm").unwrap(), "new");
            assert_eq!(read(folder.path(), "orders.wasm.sig").unwrap(), "of new");
        }
    }

    #[test]
    fn what_another_host_with_the_same_folder_did_is_done() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let new = digest("new");
        let drop = || files(folder).end(&new, ShadowVerb::Drop);
        write(folder, &[("orders.wasm", "old")]);
        assert!(
            promote(folder, "new").is_err(),
            "there is nothing to promote"
        );
        write(folder, &[("orders.shadow.wasm", "new")]);
        for expected in [DoneBy::Us, DoneBy::Another] {
            assert_eq!(promote(folder, "new").unwrap(), expected);
            assert_eq!(read(folder, "orders.wasm").unwrap(), "new");
        }
        let told = drop().unwrap_err().to_string();
        assert!(told.contains("promoted meanwhile"), "{told}");
        write(
            folder,
            &[
                ("orders.shadow.wasm", "new"),
                ("orders.shadow.wasm.sig", "of new"),
            ],
        );
        for expected in [DoneBy::Us, DoneBy::Another] {
            assert_eq!(
                drop().unwrap(),
                expected,
                "also of a copy of the version at work"
            );
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
