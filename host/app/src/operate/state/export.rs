//! `shardmill state export`.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, bail};
use shardmill_aws::LeaseTable;
use shardmill_core::explain::shard_named;
use shardmill_core::ports::LeaseStore;
use shardmill_core::stream::LeaseKey;
use tempfile::NamedTempFile;

use super::lease_table::open;
use crate::cli::StateExportArgs;
use crate::operate::state_file::{ShardState, encode};
use crate::output::print_bytes;

pub(super) async fn execute(args: &StateExportArgs) -> anyhow::Result<()> {
    let table = open(&args.application, &args.connection).await?;
    let keys = keys(&table, &args.shards).await?;
    // Before anything is read: a name that is taken is no reason to wait first.
    let mut out = args.out.as_deref().map(Export::to).transpose()?;
    let (mut states, mut bytes, mut without) = (0_usize, 0_usize, 0_usize);
    for key in keys {
        let Some(saved) = table.state(&key).await? else {
            if !args.shards.is_empty() {
                bail!(
                    "{key} has no state; `shardmill state {}` shows which have",
                    args.application
                );
            }
            without += 1;
            continue;
        };
        states += 1;
        bytes += saved.bytes.len();
        let line = encode(&ShardState {
            application: args.application.clone(),
            shard: key.shard_id(),
            saved,
        })?;
        match &mut out {
            Some(export) => export.write(&line)?,
            None => print_bytes(line.as_bytes()),
        }
    }
    if let Some(export) = out {
        export.finish()?;
    }
    tracing::info!(states, bytes, without, "exported the states of the shards");
    Ok(())
}

/// The shards that are named, or all.
async fn keys(table: &LeaseTable, shards: &[String]) -> anyhow::Result<Vec<LeaseKey>> {
    if shards.is_empty() {
        let leases = table.list_consistently().await?.leases.into_iter();
        let mut keys: Vec<LeaseKey> = leases.map(|lease| lease.key).collect();
        keys.sort();
        return Ok(keys);
    }
    let named = shards.iter().map(|shard| {
        let shard = shard_named(shard)?;
        Ok(LeaseKey::of_shard(&shard))
    });
    named.collect()
}

/// A file that gets its name once all states are in it: half an export looks like a whole one, and
/// lacks shards.
struct Export<'a> {
    file: NamedTempFile,
    path: &'a Path,
}

impl<'a> Export<'a> {
    /// For this user only: what a plugin keeps may be anything.
    fn to(path: &'a Path) -> anyhow::Result<Self> {
        let name = path.display();
        if path.symlink_metadata().is_ok() {
            bail!("cannot create {name}: name a file that does not exist");
        }
        let folder = path.parent().filter(|folder| *folder != Path::new(""));
        let folder = folder.unwrap_or(Path::new("."));
        let file = tempfile::Builder::new()
            .prefix(".state-")
            .tempfile_in(folder);
        let file = file.with_context(|| format!("cannot create {name}"))?;
        Ok(Self { file, path })
    }

    fn write(&mut self, line: &str) -> anyhow::Result<()> {
        let written = self.file.write_all(line.as_bytes());
        written.with_context(|| format!("cannot write {}", self.path.display()))
    }

    fn finish(self) -> anyhow::Result<()> {
        let name = self.path.display();
        let cannot = || format!("cannot write {name}");
        self.file.as_file().sync_all().with_context(cannot)?;
        self.file
            .persist_noclobber(self.path)
            .with_context(cannot)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_export_is_there_as_a_whole_or_not_at_all_and_replaces_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("states");
        let mut unfinished = Export::to(&path).unwrap();
        unfinished.write("{}\n").unwrap();
        assert!(!path.exists());
        drop(unfinished);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        let (mut first, second) = (Export::to(&path).unwrap(), Export::to(&path).unwrap());
        first.write("{}\n").unwrap();
        first.finish().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{}\n");
        assert!(second.finish().is_err());
        assert!(Export::to(&path).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{}\n");
    }
}
