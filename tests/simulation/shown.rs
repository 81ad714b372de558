//! What a host shows of its shards, looked at as a person would: its status page, every second.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use shardmill_invariants::history::What;
use shardmill_worker::{ShardStatus, StatusBoard, Why};

use crate::memory::commands::number_of_pause;
use crate::world::World;

/// How often somebody looks.
const EVERY: Duration = Duration::from_secs(1);

/// Why a holding makes no progress, as was shown last.
type Seen = (u64, Option<String>);

/// Writes what `host` shows into the history, for as long as it is polled.
pub async fn watch(world: Arc<World>, host: String, status: StatusBoard) {
    let mut seen: BTreeMap<String, Seen> = BTreeMap::new();
    let mut standing: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    let mut was_drained = false;
    loop {
        tokio::time::sleep(EVERY).await;
        let snapshot = status.snapshot();
        let is_drained = snapshot.drained.is_some();
        if is_drained != was_drained {
            was_drained = is_drained;
            world.note(What::Drained {
                host: host.clone(),
                is_drained,
            });
        }
        for (shard, shown) in snapshot.shards {
            let (epoch, why) = (shown.epoch, why(&shown));
            let stands = pause(&shown).map(|number| (epoch, number));
            if standing.get(&shard) != stands.as_ref() {
                world.note(What::Stands {
                    host: host.clone(),
                    shard: shard.clone(),
                    epoch,
                    pause: stands.map(|(_, number)| number),
                });
                match stands {
                    Some(stands) => drop(standing.insert(shard.clone(), stands)),
                    None => drop(standing.remove(&shard)),
                }
            }
            // A new holding shows nothing until it says so.
            let before = seen
                .get(&shard)
                .filter(|(of, _)| *of == epoch)
                .and_then(|(_, why)| why.clone());
            if before.is_some() != why.is_some() {
                world.note(What::Shown {
                    host: host.clone(),
                    shard: shard.clone(),
                    why: why.clone(),
                });
            }
            seen.insert(shard, (epoch, why));
        }
    }
}

/// The number of the pause for which a shard stands.
fn pause(shown: &ShardStatus) -> Option<u64> {
    let blocked = shown.blocked.as_ref();
    let paused = blocked.filter(|blocked| blocked.why == Why::Paused)?;
    number_of_pause(&paused.reason)
}

/// Why a shard makes no progress, if its host says so.
fn why(shown: &ShardStatus) -> Option<String> {
    let blocked = shown.blocked.as_ref().map(|blocked| blocked.reason.clone());
    blocked
        .or_else(|| shown.read_error.clone())
        .or_else(|| shown.waits_for.clone())
}
