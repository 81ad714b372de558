//! The files of a backup that belong into a plugins folder.

use std::path::Path;

use anyhow::{Context, bail};
use shardmill_config::files;
use shardmill_core::plugin::PluginName;
use shardmill_serve::note_files;

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
    note(folder, found)?;
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

/// First: whatever is written then is the hosts' own, also if this run is cut short. Otherwise hosts
/// that pull into the folder would take it for somebody else's.
fn note(folder: &Path, found: &[PluginFile]) -> anyhow::Result<()> {
    for component in found {
        let Some(plugin) = component.name.strip_suffix(".wasm") else {
            continue;
        };
        let of_plugin = |ending: &str| {
            let name = format!("{plugin}{ending}");
            let file = found.iter().find(move |file| file.name == name);
            file.map(|file| file.bytes.as_slice())
        };
        let files = [".wasm", ".toml", ".wasm.sig"].into_iter();
        let files: Vec<&[u8]> = files.filter_map(of_plugin).collect();
        note_files(folder, &PluginName::new(plugin)?, &files)
            .with_context(|| format!("cannot note what is put into {}", folder.display()))?;
    }
    Ok(())
}

fn is_same(path: &Path, bytes: &[u8]) -> bool {
    files::read(path, bytes.len() as u64).is_ok_and(|found| found == bytes)
}
