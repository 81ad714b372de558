//! The gauges of a plugin, which end with the worker that sets them: a gauge that is not updated
//! any more would show a plugin that may be gone, or run elsewhere.

use shardmill_core::plan::Unowned;
use shardmill_core::plugin::PluginName;
use shardmill_core::rollout::RolloutState;

use crate::metrics;

/// The gauges of a worker that have no other label than the plugin.
const OF_WORKER: [&str; 5] = [
    metrics::LEASES,
    metrics::HOLES,
    metrics::FLEET_VERSIONS,
    metrics::HEARTBEAT,
    metrics::HOSTS_WANTED,
];
/// The gauges of the plugin on all its streams: another worker of it sets them again.
const OF_PLUGIN: [&str; 2] = [metrics::BUFFER, metrics::BUFFER_GUARANTEED];

/// Why a lease has no owner, in the words of the label.
const NOT_TAKEN: &str = "not-taken";
const MAX_LEASES: &str = "max-leases";

/// Ends the gauges of a plugin on one of its streams when it is dropped. A worker that is started
/// again sets them again.
pub(super) struct PluginGauges(PluginName);

/// Shows the leases that no host reads, which this host knows as the leader.
pub(super) fn show_unowned(plugin: &PluginName, unowned: &Unowned) {
    set_unowned(plugin, NOT_TAKEN, unowned.not_taken as f64);
    set_unowned(plugin, MAX_LEASES, unowned.above_max as f64);
}

/// Shows nothing of them any more: another host leads, or none that this host knows of.
pub(super) fn forget_unowned(plugin: &PluginName) {
    set_unowned(plugin, NOT_TAKEN, metrics::ENDED);
    set_unowned(plugin, MAX_LEASES, metrics::ENDED);
}

fn set_unowned(plugin: &PluginName, why: &'static str, value: f64) {
    let plugin = metrics::label(plugin);
    ::metrics::gauge!(metrics::UNOWNED, "plugin" => plugin, "why" => why).set(value);
}

impl PluginGauges {
    pub(super) fn of(plugin: PluginName) -> Self {
        Self(plugin)
    }
}

impl Drop for PluginGauges {
    fn drop(&mut self) {
        let label = metrics::label(&self.0);
        for name in OF_WORKER {
            ::metrics::gauge!(name, "plugin" => label.clone()).set(metrics::ENDED);
        }
        forget_unowned(&self.0);
        let plugin = metrics::label_of_all_streams(&self.0);
        for name in OF_PLUGIN {
            ::metrics::gauge!(name, "plugin" => plugin.clone()).set(metrics::ENDED);
        }
        for state in RolloutState::CODES {
            metrics::versions(&self.0, state).set(metrics::ENDED);
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
    fn leases_without_an_owner_are_shown_by_why_until_the_office_is_lost() {
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
