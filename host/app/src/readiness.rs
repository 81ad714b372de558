//! Whether this host does what it is meant to do now, decided from its status alone.

use std::time::Duration;

use shardmill_core::plugin::is_label_of;

use crate::host_status::{HostSnapshot, PluginSnapshot};

/// Why the host is not ready, or why `plugin` is not if one is named; nothing if it is.
///
/// Ready is a host that has read its folder, and whose every plugin is served by a worker that writes its heartbeat, sees its
/// leases and can take them. A version that was refused beside one that runs is no reason.
pub fn missing(host: &HostSnapshot, plugin: Option<&str>) -> Vec<String> {
    let mut reasons = Vec::new();
    if !host.is_folder_read {
        reasons.push("the plugins folder is not read yet".to_owned());
    }
    let wanted: Vec<_> =
        host.plugins.iter().filter(|(label, _)| plugin.is_none_or(|plugin| is_label_of(label, plugin))).collect();
    if let Some(plugin) = plugin.filter(|_| host.is_folder_read && wanted.is_empty()) {
        reasons.push(format!("there is no plugin {plugin}"));
    }
    reasons.extend(wanted.iter().filter_map(|(label, plugin)| Some(format!("{label}: {}", not_served(plugin)?))));
    reasons
}

/// Why a stream of a plugin is not served as it should be.
fn not_served(plugin: &PluginSnapshot) -> Option<String> {
    if let Some(why) = &plugin.not_served {
        return Some(format!("not served: {why}"));
    }
    if plugin.stream.is_none() {
        let refusal = plugin.refused_settings.as_ref().or(plugin.refused_file.as_ref());
        return Some(refusal.map_or_else(|| "not started yet".to_owned(), |why| format!("refused: {why}")));
    }
    let worker = &plugin.worker;
    if let Some(why) = worker.cannot_write.as_ref().or(worker.pass_error.as_ref()) {
        return Some(why.clone());
    }
    if worker.passes == 0 {
        return Some("has not looked at its leases yet".to_owned());
    }
    let age = worker.heartbeat_age()?;
    (age > worker.lease_duration)
        .then(|| format!("no heartbeat was written for {:?}", Duration::from_secs(age.as_secs())))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use shardmill_worker::WorkerStatus;
    use tokio::time::Instant;

    use super::*;

    fn served() -> PluginSnapshot {
        let worker = WorkerStatus {
            passes: 1,
            heartbeat_at: Some(Instant::now()),
            lease_duration: Duration::from_secs(10),
            ..WorkerStatus::default()
        };
        PluginSnapshot {
            is_file_removed: false,
            refused_file: None,
            refused_settings: None,
            not_served: None,
            stream: Some("orders".to_owned()),
            application: Some("orders".to_owned()),
            worker,
        }
    }

    fn host(plugins: &[(&str, PluginSnapshot)]) -> HostSnapshot {
        let plugins: BTreeMap<_, _> =
            plugins.iter().map(|(label, plugin)| ((*label).to_owned(), plugin.clone())).collect();
        HostSnapshot { worker_id: "a".to_owned(), is_folder_read: true, wall_lacks: Vec::new(), plugins }
    }

    type Change = fn(&mut PluginSnapshot);

    fn why(plugin: PluginSnapshot) -> String {
        missing(&host(&[("orders", plugin)]), None).join("; ")
    }

    #[tokio::test(start_paused = true)]
    async fn a_host_is_ready_exactly_when_every_plugin_is_served_and_says_what_is_missing() {
        assert!(missing(&host(&[]), None).is_empty(), "nothing is to be done");
        assert_eq!(why(served()), "");
        let unread = HostSnapshot { is_folder_read: false, ..host(&[]) };
        assert_eq!(missing(&unread, None), ["the plugins folder is not read yet"]);
        let with = |change: Change| {
            let mut plugin = served();
            change(&mut plugin);
            why(plugin)
        };
        assert_eq!(with(|plugin| plugin.refused_file = Some("cut off".to_owned())), "", "the one before it runs");
        assert_eq!(with(|plugin| plugin.is_file_removed = true), "", "it runs on");
        for (change, told) in [
            (
                (|plugin: &mut PluginSnapshot| {
                    (plugin.stream, plugin.refused_file) = (None, Some("cut off".to_owned()));
                }) as Change,
                "orders: refused: cut off",
            ),
            (|plugin| plugin.stream = None, "orders: not started yet"),
            (|plugin| plugin.not_served = Some("another process".to_owned()), "orders: not served: another process"),
            (|plugin| plugin.worker.passes = 0, "orders: has not looked at its leases yet"),
            (|plugin| plugin.worker.pass_error = Some("throttled".to_owned()), "orders: throttled"),
            (|plugin| plugin.worker.cannot_write = Some("denied".to_owned()), "orders: denied"),
        ] {
            assert_eq!(with(change), told);
        }
        let silent = served();
        tokio::time::advance(Duration::from_secs(11)).await;
        assert_eq!(why(silent), "orders: no heartbeat was written for 11s");
    }

    #[tokio::test(start_paused = true)]
    async fn one_plugins_trouble_is_not_anothers_where_one_is_asked_for() {
        let refused = PluginSnapshot { stream: None, refused_file: Some("no component".to_owned()), ..served() };
        let both = host(&[("orders", served()), ("orders.returns", served()), ("readme", refused)]);
        assert_eq!(missing(&both, None), ["readme: refused: no component"]);
        assert!(missing(&both, Some("orders")).is_empty());
        assert_eq!(missing(&both, Some("readme")).len(), 1);
        assert_eq!(missing(&both, Some("ghost")), ["there is no plugin ghost"]);
    }
}
