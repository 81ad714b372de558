//! `shardmill state export`.

use anyhow::bail;
use shardmill_aws::LeaseTable;
use shardmill_core::explain::shard_named;
use shardmill_core::ports::LeaseStore;
use shardmill_core::stream::LeaseKey;

use super::lease_table::open;
use crate::cli::StateExportArgs;
use crate::operate::state_file::{ShardState, encode};
use crate::operate::whole_file::WholeFile;
use crate::output::print_bytes;

pub(super) async fn execute(args: &StateExportArgs) -> anyhow::Result<()> {
    let table = open(&args.application, &args.connection).await?;
    let keys = keys(&table, &args.shards).await?;
    // Before anything is read: a name that is taken is no reason to wait first.
    let mut out = args.out.as_deref().map(WholeFile::to).transpose()?;
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
            Some(export) => export.write(line.as_bytes())?,
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
