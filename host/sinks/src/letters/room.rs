//! Room for dead letters that are made into lines and not yet stored. The records themselves are
//! charged to `host.buffer` until they are settled, but the lines are not: with a slow target,
//! every shard of a plugin would hold some.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use shardmill_core::plugin::PluginName;
use shardmill_core::ports::SinkError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many times its data a letter takes at most while it becomes lines: its base64, the line in a
/// buffer that doubles, and both again where the line is cut into parts. Keys and reasons grow as
/// much if every character is escaped.
const GROWTH: usize = 6;

/// KiB that the letters of one plugin may take at once: as many parts as an HTTP sink sends
/// requests by default, 32, so that waiting for room slows no target down. Each plugin has its own
/// room, so that a slow target delays only the plugin that uses it.
const ROOM_KIB: u32 = 48 << 10;
/// Bytes that the letters of one plugin may take at once.
pub const ROOM_BYTES: usize = (ROOM_KIB as usize) << 10;

/// How long a shard waits before its caller gets an error: as long as for its turn at a stream.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// The room of each plugin that has letters under way.
#[derive(Debug, Default)]
pub(crate) struct Rooms {
    // Locked for a look-up, never across an await.
    by_plugin: Mutex<BTreeMap<PluginName, Arc<Semaphore>>>,
}

/// The room of one plugin.
#[derive(Debug, Clone)]
pub(crate) struct Room {
    free_kib: Arc<Semaphore>,
}

/// The part of the room that some letters take; released when dropped.
pub(crate) type RoomPermit = OwnedSemaphorePermit;

// === impl Rooms ===

impl Rooms {
    /// The room that all shards of `plugin` share.
    pub(crate) fn of(&self, plugin: &PluginName) -> Room {
        let mut by_plugin = self
            .by_plugin
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // Plugins come and go: nothing is kept of one without letters under way.
        by_plugin.retain(|_, free_kib| Arc::strong_count(free_kib) > 1);
        let free_kib = by_plugin
            .entry(plugin.clone())
            .or_insert_with(|| Arc::new(Semaphore::new(ROOM_KIB as usize)));
        Room {
            free_kib: Arc::clone(free_kib),
        }
    }
}

// === impl Room ===

impl Room {
    /// Waits for room for letters of `bytes` bytes of data, first come, first served. Letters that
    /// are larger than the room get all of it.
    pub(crate) async fn take(&self, target: &str, bytes: usize) -> Result<RoomPermit, SinkError> {
        let kib = u32::try_from(bytes.saturating_mul(GROWTH).div_ceil(1 << 10));
        let kib = kib.unwrap_or(u32::MAX).min(ROOM_KIB);
        let permit = Arc::clone(&self.free_kib).acquire_many_owned(kib);
        match tokio::time::timeout(WAIT_MAX, permit).await {
            Ok(Ok(permit)) => Ok(permit),
            _ => Err(SinkError {
                sink: target.to_owned(),
                message: format!(
                    "dead letters of other shards took all of {} MiB for {WAIT_MAX:?}: the sink \
                        stores them too slowly, or not at all",
                    ROOM_KIB >> 10
                ),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plugin(name: &str) -> PluginName {
        PluginName::new(name).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn shards_of_a_plugin_share_its_room_and_another_plugin_has_its_own() {
        let rooms = Rooms::default();
        let (one, same) = (rooms.of(&plugin("one")), rooms.of(&plugin("one")));
        let all = one.take("dead", 100 << 20).await.unwrap();
        let error = same.take("dead", 1).await.unwrap_err().to_string();
        assert!(error.contains("took all of 48 MiB"), "{error}");
        let other = rooms.of(&plugin("other")).take("dead", 100 << 20).await;
        assert!(other.is_ok());
        drop(all);
        assert!(same.take("dead", 1).await.is_ok());
    }

    #[tokio::test]
    async fn nothing_is_kept_of_a_plugin_without_letters() {
        let rooms = Rooms::default();
        for name in ["aaa", "bbb", "ccc"] {
            drop(rooms.of(&plugin(name)).take("dead", 1).await.unwrap());
        }
        let held = rooms.of(&plugin("ddd")).take("dead", 1).await.unwrap();
        let _other = rooms.of(&plugin("eee"));
        let names: Vec<_> = rooms.by_plugin.lock().unwrap().keys().cloned().collect();
        assert_eq!(names, [plugin("ddd"), plugin("eee")]);
        drop(held);
    }
}
