//! The files of the versions at work, for `--plugins`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use shardmill_config::files;
use shardmill_core::backup::Backup;
use shardmill_core::plugin::PluginDigest;
use shardmill_wasm::digest_of;

use crate::operate::backup_file::PluginFile;

/// The largest file that is read. Components of the usual languages have less than a third of it.
const FILE_BYTES_MAX: u64 = 128 << 20;
/// Files of a folder that are looked at.
const FILES_MAX: usize = 1_000;
/// What may lie beside a component, behind its name without `.wasm`.
const BESIDE: [&str; 2] = ["toml", "wasm.sig"];

/// Every component of the folder that is a version at work, with its manifest and its signature.
pub(super) fn collect(folder: &Path, backup: &Backup) -> anyhow::Result<Vec<PluginFile>> {
    let wanted = versions(backup);
    let mut missing = wanted.clone();
    let mut found = Vec::new();
    for path in components(folder)? {
        let component = read(&path)?;
        let digest = digest_of(&component.bytes);
        if wanted.contains(digest.as_str()) {
            missing.remove(digest.as_str());
            found.push(component);
            found.extend(beside(&path)?);
        }
    }
    if let Some(digest) = missing.first() {
        bail!(
            "{} has no component with the digest {digest}, which is at work: name the plugins folder \
                of a host, or leave out --plugins",
            folder.display()
        );
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

fn components(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let cannot = || format!("cannot read {}", folder.display());
    let mut components = Vec::new();
    let entries = std::fs::read_dir(folder).with_context(cannot)?;
    for (index, entry) in entries.enumerate() {
        ensure!(
            index < FILES_MAX,
            "{} has more than {FILES_MAX} files",
            folder.display()
        );
        let path = entry.with_context(cannot)?.path();
        let is_component = path.extension().is_some_and(|ending| ending == "wasm");
        if is_component && path.is_file() {
            components.push(path);
        }
    }
    Ok(components)
}

/// The versions that settled what the checkpoints of unfinished shards cover.
fn versions(backup: &Backup) -> BTreeSet<&str> {
    let shards = backup.shards.iter().map(|shard| &shard.lease);
    let unfinished = shards.filter(|lease| !lease.is_finished());
    let digests = unfinished.filter_map(|lease| lease.plugin_digest.as_ref());
    digests.map(PluginDigest::as_str).collect()
}

fn beside(component: &Path) -> anyhow::Result<Vec<PluginFile>> {
    let paths = BESIDE.map(|ending| component.with_extension(ending));
    let existing = paths.iter().filter(|path| path.is_file());
    existing.map(|path| read(path)).collect()
}

fn read(path: &Path) -> anyhow::Result<PluginFile> {
    let cannot = || format!("cannot read {}", path.display());
    let name = path.file_name().and_then(|name| name.to_str());
    Ok(PluginFile {
        name: name.with_context(cannot)?.to_owned(),
        bytes: files::read(path, FILE_BYTES_MAX).with_context(cannot)?,
    })
}
