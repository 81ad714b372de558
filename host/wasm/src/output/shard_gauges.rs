//! The gauges of a plugin: one series for each shard, since each shard has an instance, and the
//! last one to set a common series would hide all others.
//!
//! A series ends with the instance that set it last: another host may have the shard by then.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use metrics::Gauge;

/// Series that one plugin may have at once on a host: sixteen names on 64 shards, say. Each costs
/// money in the monitoring system.
const SERIES_MAX: usize = 1_024;
/// The value of a series that has ended, which the page of metrics leaves out. No plugin can set
/// it: what is not finite is no measurement.
const ENDED: f64 = f64::NAN;

/// See the module's description. All instances of a plugin share it.
#[derive(Debug, Default)]
pub(crate) struct ShardGauges {
    /// Which instance set the series last, by name and shard.
    // Locked for some nanoseconds by instances on several threads.
    setters: Mutex<HashMap<(String, String), u64>>,
    instances: AtomicU64,
}

/// The gauges of one instance. They end when it is dropped.
pub(crate) struct InstanceGauges {
    all: Arc<ShardGauges>,
    instance: u64,
    plugin: String,
    shard: String,
}

impl ShardGauges {
    /// Those of a new instance for a shard.
    pub(crate) fn of_instance(self: &Arc<Self>, plugin: &str, shard: &str) -> InstanceGauges {
        InstanceGauges {
            all: Arc::clone(self),
            instance: self.instances.fetch_add(1, Ordering::Relaxed),
            plugin: plugin.to_owned(),
            shard: shard.to_owned(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(String, String), u64>> {
        self.setters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl InstanceGauges {
    /// Sets a gauge of the shard. False if the plugin has too many series already.
    pub(crate) fn set(&self, name: &str, value: f64) -> bool {
        let series = (name.to_owned(), self.shard.clone());
        let mut setters = self.all.lock();
        if setters.len() >= SERIES_MAX && !setters.contains_key(&series) {
            return false;
        }
        setters.insert(series, self.instance);
        // Under the lock: an instance that ends meanwhile must not end this.
        self.gauge(name).set(value);
        true
    }

    fn gauge(&self, name: &str) -> Gauge {
        metrics::gauge!(
            name.to_owned(),
            "plugin" => self.plugin.clone(),
            "shard" => self.shard.clone()
        )
    }
}

impl Drop for InstanceGauges {
    fn drop(&mut self) {
        let mut setters = self.all.lock();
        setters.retain(|(name, _), setter| {
            let is_mine = *setter == self.instance;
            if is_mine {
                self.gauge(name).set(ENDED);
            }
            !is_mine
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_that_ends_takes_only_what_no_successor_has_set() {
        let all = Arc::new(ShardGauges::default());
        let (old, new) = (
            all.of_instance("orders", "shard-0"),
            all.of_instance("orders", "shard-0"),
        );
        let other = all.of_instance("orders", "shard-1");
        assert!(old.set("open", 1.0) && old.set("late", 1.0));
        assert!(new.set("open", 2.0) && other.set("open", 3.0));
        drop(old);
        let left = |name: &str, shard: &str| {
            let series = (name.to_owned(), shard.to_owned());
            all.lock().contains_key(&series)
        };
        assert!(left("open", "shard-0") && left("open", "shard-1"));
        assert!(!left("late", "shard-0"));
        drop((new, other));
        assert!(all.lock().is_empty());
    }

    #[test]
    fn a_plugin_has_so_many_series_and_those_of_shards_that_are_gone_make_room() {
        let all = Arc::new(ShardGauges::default());
        let first = all.of_instance("orders", "shard-0");
        let set = (0..2 * SERIES_MAX)
            .filter(|number| first.set(&format!("name_{number}"), 1.0))
            .count();
        assert_eq!(set, SERIES_MAX);
        assert!(first.set("name_0", 2.0));
        let second = all.of_instance("orders", "shard-1");
        assert!(!second.set("open", 1.0));
        drop(first);
        assert!(second.set("open", 1.0));
    }
}
