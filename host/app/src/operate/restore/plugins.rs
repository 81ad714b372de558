//! The files of a backup that belong into a plugins folder.

use std::path::Path;

use anyhow::{Context, bail};
use shardmill_config::files;

use crate::operate::backup_file::PluginFile;
use crate::operate::whole_file::WholeFile;

/// Writes those that are missing, components last: a host takes a component as it finds it, with
/// the manifest that lies beside it then. What has the same name and other bytes is left alone.
pub(super) fn write(folder: &Path, found: &[PluginFile]) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot create {}", folder.display()))?;
    let is_component = |file: &&PluginFile| {
        Path::new(&file.name)
            .extension()
            .is_some_and(|ending| ending == "wasm")
    };
    let (components, beside): (Vec<_>, Vec<_>) = found.iter().partition(is_component);
    for file in beside.into_iter().chain(components) {
        let path = folder.join(&file.name);
        if path.symlink_metadata().is_err() {
            let mut out = WholeFile::to(&path)?;
            out.write(&file.bytes)?;
            out.finish()?;
        } else if !is_same(&path, &file.bytes) {
            bail!(
                "{} has other bytes than the backup: it was left alone, and the rows are restored",
                path.display()
            );
        }
    }
    Ok(())
}

fn is_same(path: &Path, bytes: &[u8]) -> bool {
    files::read(path, bytes.len() as u64).is_ok_and(|found| found == bytes)
}
