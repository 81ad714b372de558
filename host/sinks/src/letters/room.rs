//! Room for dead letters that are made into lines and not yet stored. The records themselves are
//! charged to `host.buffer` until they are settled; what is made of them is not, and with a target
//! that takes its time every shard of a plugin would hold a part.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use shardmill_core::plugin::PluginName;
use shardmill_core::ports::SinkError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How much more than its data a letter takes while it becomes lines, at most: its base64, the line
/// in a buffer that doubles, and both again where the line is cut into parts. Keys and reasons get
/// as long where all of them has to be escaped.
const GROWTH: usize = 6;

/// KiB that the letters of one plugin may take at once: as many parts as an HTTP sink sends
/// requests by default, 32, so that waiting for room slows no target down. Of each plugin its own,
/// since whose target is slow may hold up nobody else.
const ROOM_KIB: u32 = 48 << 10;

/// How long a shard waits before its caller is told why: as long as for its turn at a stream.
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
    places: Arc<Semaphore>,
}

/// What some letters take of it; given back when dropped.
pub(crate) type Place = OwnedSemaphorePermit;

// === impl Rooms ===

impl Rooms {
    /// All shards of `plugin` get the same.
    pub(crate) fn of(&self, plugin: &PluginName) -> Room {
        let mut by_plugin = self
            .by_plugin
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // Plugins come and go: nothing is kept of who has no letters under way.
        by_plugin.retain(|_, places| Arc::strong_count(places) > 1);
        let places = by_plugin
            .entry(plugin.clone())
            .or_insert_with(|| Arc::new(Semaphore::new(ROOM_KIB as usize)));
        Room {
            places: Arc::clone(places),
        }
    }
}

// === impl Room ===

impl Room {
    /// Waits for a place for letters of so many bytes, first come, first served. What is larger than
    /// the room gets all of it.
    pub(crate) async fn place(&self, target: &str, bytes: usize) -> Result<Place, SinkError> {
        let kib = u32::try_from(bytes.saturating_mul(GROWTH).div_ceil(1 << 10));
        let kib = kib.unwrap_or(u32::MAX).min(ROOM_KIB);
        let place = Arc::clone(&self.places).acquire_many_owned(kib);
        match tokio::time::timeout(WAIT_MAX, place).await {
            Ok(Ok(place)) => Ok(place),
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
        let all = one.place("dead", 100 << 20).await.unwrap();
        let error = same.place("dead", 1).await.unwrap_err().to_string();
        assert!(error.contains("took all of 48 MiB"), "{error}");
        let other = rooms.of(&plugin("other")).place("dead", 100 << 20).await;
        assert!(other.is_ok());
        drop(all);
        assert!(same.place("dead", 1).await.is_ok());
    }

    #[tokio::test]
    async fn nothing_is_kept_of_a_plugin_without_letters() {
        let rooms = Rooms::default();
        for name in ["aaa", "bbb", "ccc"] {
            drop(rooms.of(&plugin(name)).place("dead", 1).await.unwrap());
        }
        let held = rooms.of(&plugin("ddd")).place("dead", 1).await.unwrap();
        let _other = rooms.of(&plugin("eee"));
        let names: Vec<_> = rooms.by_plugin.lock().unwrap().keys().cloned().collect();
        assert_eq!(names, [plugin("ddd"), plugin("eee")]);
        drop(held);
    }
}
