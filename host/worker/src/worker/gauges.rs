//! The gauges of a plugin, which end with the worker that sets them: one that nobody updates any
//! more would tell of a plugin that may be gone, or run elsewhere.

use shardmill_core::plan::Unowned;
use shardmill_core::plugin::{PluginName, plugin_of_label};
use shardmill_core::rollout::RolloutState;

use crate::metrics;

/// Those of a worker, with no other label.
const OF_WORKER: [&str; 4] = [
    metrics::LEASES,
    metrics::HOLES,
    metrics::FLEET_VERSIONS,
    metrics::HEARTBEAT,
];
/// Those of the plugin on all its streams, labelled so: another worker of it sets them again.
const OF_PLUGIN: [&str; 2] = [metrics::BUFFER, metrics::BUFFER_GUARANTEED];

/// Why a lease has no owner, in the words of the label.
const NOT_TAKEN: &str = "not-taken";
const MAX_LEASES: &str = "max-leases";

/// Ends the gauges of a plugin on one of its streams when it is dropped. A worker that is started
/// again sets them again.
pub(super) struct PluginGauges(PluginName);

/// Parts of the hash key space that no lease covers, as this host knows as the leader.
pub(super) fn show_holes(plugin: &PluginName, count: usize) {
    ::metrics::gauge!(metrics::HOLES, "plugin" => plugin.to_string()).set(count as f64);
}

/// Leases that nobody reads, as this host knows as the leader.
pub(super) fn show_unowned(plugin: &PluginName, unowned: &Unowned) {
    let Unowned {
        not_taken,
        above_max,
    } = unowned;
    set_unowned(plugin, NOT_TAKEN, *not_taken as f64);
    set_unowned(plugin, MAX_LEASES, *above_max as f64);
}

/// Another host leads, or none that this one knows of: what it counted says nothing any more.
pub(super) fn forget_unowned(plugin: &PluginName) {
    set_unowned(plugin, NOT_TAKEN, metrics::ENDED);
    set_unowned(plugin, MAX_LEASES, metrics::ENDED);
}

fn set_unowned(plugin: &PluginName, why: &'static str, value: f64) {
    let labels = [("plugin", plugin.to_string()), ("why", why.to_owned())];
    ::metrics::gauge!(metrics::UNOWNED, &labels).set(value);
}

impl PluginGauges {
    pub(super) fn of(plugin: PluginName) -> Self {
        Self(plugin)
    }
}

impl Drop for PluginGauges {
    fn drop(&mut self) {
        let label = self.0.to_string();
        for name in OF_WORKER {
            ::metrics::gauge!(name, "plugin" => label.clone()).set(metrics::ENDED);
        }
        forget_unowned(&self.0);
        let plugin = plugin_of_label(self.0.as_str());
        for name in OF_PLUGIN {
            ::metrics::gauge!(name, "plugin" => plugin.to_owned()).set(metrics::ENDED);
        }
        for state in RolloutState::CODES {
            let labels = [("plugin", label.clone()), ("state", state.to_owned())];
            ::metrics::gauge!(metrics::VERSIONS, &labels).set(metrics::ENDED);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signs::tests::Kept;

    #[test]
    fn the_gauges_of_a_plugin_end_with_its_worker() {
        let kept = Kept::default();
        ::metrics::with_local_recorder(&kept, || {
            let worker = PluginGauges::of(PluginName::new("orders").unwrap());
            ::metrics::gauge!(metrics::HOLES, "plugin" => "orders").set(1.0);
            ::metrics::gauge!(metrics::HOLES, "plugin" => "other").set(2.0);
            drop(worker);
        });
        let values = kept.0.lock().unwrap();
        let lasting: Vec<_> = values.iter().filter(|(_, value)| !value.is_nan()).collect();
        assert_eq!(lasting.len(), 1, "{lasting:?}");
        assert!(lasting[0].0.contains("other"), "{lasting:?}");
    }

    #[test]
    fn leases_without_an_owner_are_told_by_why_until_the_office_is_lost() {
        let kept = Kept::default();
        let plugin = PluginName::new("orders").unwrap();
        let shown = || {
            let values = kept.0.lock().unwrap();
            let lasting = values.iter().filter(|(_, value)| !value.is_nan());
            lasting
                .map(|(key, value)| (key.contains(MAX_LEASES), *value))
                .collect::<Vec<_>>()
        };
        ::metrics::with_local_recorder(&kept, || {
            let unowned = Unowned {
                not_taken: 1,
                above_max: 2,
            };
            show_unowned(&plugin, &unowned);
        });
        let mut both = shown();
        both.sort_by_key(|(is_max, _)| *is_max);
        assert_eq!(both, [(false, 1.0), (true, 2.0)]);
        ::metrics::with_local_recorder(&kept, || forget_unowned(&plugin));
        assert_eq!(shown(), []);
    }
}
