//! Whether this host does what it is meant to do now, decided from its status alone.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::Duration;

use shardmill_core::plugin::is_label_of;
use shardmill_worker::{ShardState, ShardStatus, StageStatus, Why, WorkerStatus};

use crate::host_status::{HostSnapshot, PluginSnapshot};
use crate::metrics::READY;
use crate::pulls::SourceSnapshot;

/// Failures in a row that are more than a hiccup.
const FAILURES_MIN: u32 = 3;
/// How long something may take without a known failure before it counts as a lack of progress. The
/// status page shows it much sooner.
const LONG: Duration = Duration::from_secs(15);

/// Why the host is not ready, or why one of `named` is not if any are named; nothing if it is.
///
/// Ready is a host that has read its folder and still can, and whose every plugin is served by a
/// worker that writes its heartbeat, sees its leases, can take them, and makes progress on a shard
/// if it holds any. A host without any plugin is ready unless its configuration has sections of
/// plugins whose files never came. A refused version beside a running one is not a reason, nor is
/// one shard that is stuck while others progress.
pub(crate) fn missing(host: &HostSnapshot, named: &BTreeSet<&str>) -> Vec<String> {
    let mut reasons = Vec::new();
    if host.is_folder_read {
        reasons.extend(unknown(host, named));
    } else {
        reasons.push("the plugins folder has not been read yet".to_owned());
    }
    reasons.extend(folder_unreadable(host));
    let is_asked_for =
        |label: &str| named.is_empty() || named.iter().any(|name| is_label_of(label, name));
    for (name, source) in &host.sources {
        // One that has a file, pulled or put there by somebody, is served or says why not.
        let has_file = source.version.is_some() || host.plugins.contains_key(name);
        if is_asked_for(name) && source.start_held && !host.plugins.contains_key(name) {
            let why = source.error.as_deref().unwrap_or("that is being pulled");
            reasons.push(format!(
                "{name}: its version was deployed and nobody has proven it yet, so it starts with \
                    what was good before: {why}"
            ));
        } else if is_asked_for(name) && !has_file {
            reasons.push(not_pulled(name, source));
        }
    }
    let meant = meant_and_not_there(host).filter(|name| is_asked_for(name));
    reasons.extend(meant.map(no_file));
    for (label, plugin) in &host.plugins {
        if is_asked_for(label)
            && let Some(why) = not_served(plugin)
        {
            reasons.push(format!("{label}: {why}"));
        }
    }
    reasons
}

fn unknown(host: &HostSnapshot, named: &BTreeSet<&str>) -> impl Iterator<Item = String> {
    let labels = labels(host);
    let is_known = move |name: &str| labels.iter().any(|label| is_label_of(label, name));
    let unknown = named.iter().filter(move |name| !is_known(name));
    unknown.map(|name| format!("there is no plugin {name}"))
}

/// Plugins with a section in the configuration, if the host has no plugin at all: a folder that is
/// empty, or not the one that is meant. Beside others a section without a file is a setting that is
/// not used: hosts with other plugins may share their configuration. Before the folder was read,
/// nothing is known of files.
fn meant_and_not_there(host: &HostSnapshot) -> impl Iterator<Item = &String> {
    let has_none = host.is_folder_read && host.plugins.is_empty() && host.sources.is_empty();
    let names = if has_none {
        Some(&host.without_file)
    } else {
        None
    };
    names.into_iter().flatten()
}

fn no_file(name: &String) -> String {
    format!(
        "{name}: [plugin.{name}] is set, but there is no {name}.wasm in the plugins folder, nor \
            any other plugin: put it there, or remove the section"
    )
}

fn not_pulled(name: &str, source: &SourceSnapshot) -> String {
    let why = source.error.as_deref().unwrap_or("it is being pulled");
    format!("{name}: no version was pulled yet: {why}")
}

fn folder_unreadable(host: &HostSnapshot) -> Option<String> {
    let unreadable = host.folder_unreadable.as_ref()?;
    let is_long = unreadable.since.elapsed() >= LONG;
    is_long.then(|| format!("the plugins folder cannot be read: {}", unreadable.reason))
}

/// The same as series, for alerts by metrics: each says what the page says of that name. Made from
/// the current snapshot, so none is left of a plugin that is gone.
pub(crate) fn as_metrics(host: &HostSnapshot) -> String {
    let mut text = format!(
        "# HELP {READY} 1 while the plugin is served as it should be; /ready says why not\n"
    );
    let _ = writeln!(text, "# TYPE {READY} gauge");
    for label in labels(host) {
        let is_ready = missing(host, &BTreeSet::from([label])).is_empty();
        let label = as_label_value(label);
        let _ = writeln!(text, "{READY}{{plugin=\"{label}\"}} {}", u8::from(is_ready));
    }
    text
}

/// What the host has, pulls, or is meant to have.
fn labels(host: &HostSnapshot) -> BTreeSet<&str> {
    let labels = host.plugins.keys().chain(host.sources.keys());
    let labels = labels.chain(meant_and_not_there(host));
    labels.map(String::as_str).collect()
}

/// As the text format writes it: it knows three escapes, and a file's name may have any character.
fn as_label_value(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

/// Why a stream of a plugin is not served as it should be.
pub(crate) fn not_served(plugin: &PluginSnapshot) -> Option<String> {
    if let Some(why) = &plugin.not_served {
        return Some(format!("not served: {why}"));
    }
    if plugin.stream.is_none() {
        return Some(not_started(plugin));
    }
    let worker = &plugin.worker;
    if let Some(why) = worker.cannot_write.as_ref().or(worker.pass_error.as_ref()) {
        return Some(why.clone());
    }
    if worker.passes == 0 {
        return Some(no_pass_yet(worker));
    }
    slow(worker)
        .or_else(|| silent(worker))
        .or_else(|| no_progress(worker))
}

fn not_started(plugin: &PluginSnapshot) -> String {
    let refusal = plugin.refused_settings.as_ref();
    match refusal.or(plugin.refused_file.as_ref()) {
        Some(why) => format!("refused: {why}"),
        None => "not started yet".to_owned(),
    }
}

fn no_pass_yet(worker: &WorkerStatus) -> String {
    match &worker.waits_on {
        Some(StageStatus { what, since }) => format!(
            "has not read its leases yet: {what}, for {:?}",
            in_seconds(since.elapsed())
        ),
        None => "has not read its leases yet".to_owned(),
    }
}

/// Why its pass takes long.
fn slow(worker: &WorkerStatus) -> Option<String> {
    let StageStatus { what, since } = worker.waits_on.as_ref()?;
    let waited = since.elapsed();
    (waited >= LONG).then(|| format!("{what} has taken more than {:?}", in_seconds(waited)))
}

fn silent(worker: &WorkerStatus) -> Option<String> {
    let age = worker.heartbeat_age()?;
    if age <= worker.lease_duration {
        return None;
    }
    let why = match &worker.heartbeat_error {
        Some(error) => format!(": {error}"),
        None => String::new(),
    };
    Some(format!(
        "no heartbeat was written for {:?}{why}",
        in_seconds(age)
    ))
}

/// Without fractions of a second.
fn in_seconds(time: Duration) -> Duration {
    Duration::from_secs(time.as_secs())
}

/// Why no held shard makes progress; or why one is stuck whose children have no rows yet, so that
/// nobody reads them.
fn no_progress(worker: &WorkerStatus) -> Option<String> {
    let held: Vec<_> = worker
        .shards
        .iter()
        .filter(|(_, shard)| is_held(shard))
        .collect();
    let stuck: Vec<_> = held
        .iter()
        .filter_map(|(id, shard)| Some((id, in_the_way(shard)?)))
        .collect();
    if let Some((id, (_, reason))) = stuck.iter().find(|(_, (why, _))| *why == Why::Children) {
        return Some(format!("shard {id} has stopped: {reason}"));
    }
    if stuck.len() < held.len() {
        return None;
    }
    let (_, (why, reason)) = stuck.first()?;
    Some(format!(
        "none of its {} shard(s) makes progress ({}): {reason}",
        held.len(),
        why.as_str()
    ))
}

fn is_held(shard: &ShardStatus) -> bool {
    matches!(
        shard.state,
        ShardState::Starting | ShardState::Processing | ShardState::Halted | ShardState::Draining
    )
}

fn in_the_way(shard: &ShardStatus) -> Option<(Why, &str)> {
    let blocked = shard.blocked.as_ref()?;
    if blocked.why == Why::Tick {
        // Records are delivered all the same.
        return None;
    }
    let has_failed = blocked.attempts >= FAILURES_MIN || blocked.why == Why::Halted;
    let takes_long = blocked.attempts == 0 && shard.stage.since.elapsed() >= LONG;
    (has_failed || takes_long).then_some((blocked.why, blocked.reason.as_str()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use shardmill_core::lease::Checkpoint;
    use shardmill_worker::BlockedStatus;
    use tokio::time::Instant;

    use crate::host_status::Unreadable;
    use crate::pulls::SourceSnapshot;

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
            pinned: None,
            refused_settings: None,
            not_served: None,
            stream: Some("orders".to_owned()),
            application: Some("orders".to_owned()),
            worker,
        }
    }

    fn host(plugins: &[(&str, PluginSnapshot)]) -> HostSnapshot {
        let plugins: BTreeMap<_, _> = plugins
            .iter()
            .map(|(label, plugin)| ((*label).to_owned(), plugin.clone()))
            .collect();
        HostSnapshot {
            worker_id: "a".to_owned(),
            is_folder_read: true,
            wall_lacks: Vec::new(),
            deaths_not_remembered: None,
            folder_written_by: None,
            folder_unreadable: None,
            wire: None,
            sources: BTreeMap::new(),
            without_file: BTreeSet::new(),
            plugins,
        }
    }

    type Change = fn(&mut PluginSnapshot);

    /// The series, without the name.
    fn series(host: &HostSnapshot) -> Vec<String> {
        let page = as_metrics(host);
        let lines = page.lines().filter_map(|line| line.strip_prefix(READY));
        lines.map(str::to_owned).collect()
    }

    fn why(plugin: PluginSnapshot) -> String {
        missing(&host(&[("orders", plugin)]), &BTreeSet::new()).join("; ")
    }

    #[tokio::test(start_paused = true)]
    async fn a_host_is_ready_exactly_when_every_plugin_is_served_and_says_what_is_missing() {
        assert!(
            missing(&host(&[]), &BTreeSet::new()).is_empty(),
            "nothing is to be done"
        );
        assert_eq!(why(served()), "");
        let mut gone = host(&[("orders", served())]);
        gone.folder_unreadable = Some(Unreadable {
            reason: "No such file".to_owned(),
            since: Instant::now(),
        });
        assert_eq!(missing(&gone, &BTreeSet::new()), Vec::<String>::new());
        tokio::time::advance(LONG).await;
        gone.plugins.insert("orders".to_owned(), served());
        assert_eq!(
            missing(&gone, &BTreeSet::new()),
            ["the plugins folder cannot be read: No such file"]
        );
        assert_eq!(series(&gone), ["{plugin=\"orders\"} 0"]);
        let partly_read = HostSnapshot {
            is_folder_read: false,
            ..host(&[("orders", served())])
        };
        assert_eq!(series(&partly_read), ["{plugin=\"orders\"} 0"]);
        let unread = HostSnapshot {
            is_folder_read: false,
            ..host(&[])
        };
        assert_eq!(
            missing(&unread, &BTreeSet::new()),
            ["the plugins folder has not been read yet"]
        );
        let with = |change: Change| {
            let mut plugin = served();
            change(&mut plugin);
            why(plugin)
        };
        assert_eq!(
            with(|plugin| plugin.refused_file = Some("cut off".to_owned())),
            "",
            "the one before it runs"
        );
        assert_eq!(
            with(|plugin| plugin.is_file_removed = true),
            "",
            "it runs on"
        );
        for (change, told) in [
            (
                (|plugin: &mut PluginSnapshot| {
                    (plugin.stream, plugin.refused_file) = (None, Some("cut off".to_owned()));
                }) as Change,
                "orders: refused: cut off",
            ),
            (|plugin| plugin.stream = None, "orders: not started yet"),
            (
                |plugin| plugin.not_served = Some("another process".to_owned()),
                "orders: not served: another process",
            ),
            (
                |plugin| plugin.worker.passes = 0,
                "orders: has not read its leases yet",
            ),
            (
                |plugin| plugin.worker.pass_error = Some("throttled".to_owned()),
                "orders: throttled",
            ),
            (
                |plugin| plugin.worker.cannot_write = Some("denied".to_owned()),
                "orders: denied",
            ),
        ] {
            assert_eq!(with(change), told);
        }
        let silent = served();
        tokio::time::advance(Duration::from_secs(11)).await;
        assert_eq!(why(silent), "orders: no heartbeat was written for 11s");
    }

    #[tokio::test(start_paused = true)]
    async fn a_plugin_of_which_nothing_was_pulled_yet_is_not_ready_and_one_that_runs_is() {
        let source = |version: Option<&str>| SourceSnapshot {
            reference: "oci://r.example/orders:1".to_owned(),
            wanted_by: "configuration",
            version: version.map(str::to_owned),
            checked_seconds: None,
            error: Some("r.example does not answer".to_owned()),
            deploy_refused: None,
            start_held: false,
        };
        let with = |plugins: &[(&str, PluginSnapshot)], version| HostSnapshot {
            sources: BTreeMap::from([("orders".to_owned(), source(version))]),
            ..host(plugins)
        };
        let told = "orders: no version was pulled yet: r.example does not answer";
        let named = BTreeSet::from(["orders"]);
        assert_eq!(missing(&with(&[], None), &BTreeSet::new()), [told]);
        assert_eq!(missing(&with(&[], None), &named), [told]);
        assert_eq!(series(&with(&[], None)), ["{plugin=\"orders\"} 0"]);
        let runs = [("orders", served())];
        assert!(
            missing(&with(&runs, Some("ab")), &named).is_empty(),
            "it runs on"
        );
        assert!(missing(&with(&runs, None), &named).is_empty(), "by hand");
        assert_eq!(series(&with(&runs, None)), ["{plugin=\"orders\"} 1"]);
        let mut held = with(&[], Some("ab"));
        held.sources
            .values_mut()
            .for_each(|source| source.start_held = true);
        assert!(missing(&held, &named)[0].contains("nobody has proven it yet"));
        assert_eq!(series(&held), ["{plugin=\"orders\"} 0"]);
    }

    fn serving(shards: &[Option<BlockedStatus>]) -> PluginSnapshot {
        let mut plugin = served();
        for (id, blocked) in shards.iter().enumerate() {
            let shard = ShardStatus {
                state: ShardState::Processing,
                blocked: blocked.clone(),
                ..ShardStatus::starting(1, Checkpoint::TrimHorizon)
            };
            plugin.worker.shards.insert(id.to_string(), shard);
        }
        plugin
    }

    fn blocked(why: Why, attempts: u32) -> BlockedStatus {
        BlockedStatus {
            why,
            attempts,
            reason: "denied".to_owned(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_host_none_of_whose_shards_gets_on_is_not_ready_and_one_of_whose_shards_one_stands_is()
     {
        assert_eq!(
            why(serving(&[Some(blocked(Why::Reading, 3)), None])),
            "",
            "one moves"
        );
        assert_eq!(
            why(serving(&[
                Some(blocked(Why::Sink, 1)),
                Some(blocked(Why::Sink, 2))
            ])),
            "",
            "a hiccup"
        );
        let stands = why(serving(&[
            Some(blocked(Why::Sink, 3)),
            Some(blocked(Why::Sink, 4)),
        ]));
        assert_eq!(
            stands,
            "orders: none of its 2 shard(s) makes progress (sink): denied"
        );
        let failing_ticks = serving(&[Some(blocked(Why::Tick, 9))]);
        assert_eq!(why(failing_ticks), "", "records are delivered all the same");
        let children = why(serving(&[Some(blocked(Why::Children, 3)), None]));
        assert_eq!(
            children, "orders: shard 0 has stopped: denied",
            "nobody reads what comes after it"
        );
        let slow = serving(&[Some(blocked(Why::Sink, 0))]);
        tokio::time::advance(Duration::from_secs(9)).await;
        assert_eq!(why(slow.clone()), "", "slow, and well");
        tokio::time::advance(Duration::from_secs(1)).await;
        let worker = WorkerStatus {
            heartbeat_at: Some(Instant::now()),
            ..slow.worker
        };
        tokio::time::advance(Duration::from_secs(5)).await;
        let stands = why(PluginSnapshot { worker, ..slow });
        assert_eq!(
            stands,
            "orders: none of its 1 shard(s) makes progress (sink): denied"
        );
        let mut given_away = serving(&[Some(blocked(Why::Reading, 9))]);
        given_away
            .worker
            .shards
            .values_mut()
            .for_each(|shard| shard.state = ShardState::Released);
        assert_eq!(why(given_away), "", "it is another host's now");
    }

    #[tokio::test(start_paused = true)]
    async fn a_host_that_waits_for_others_says_for_what_and_the_same_is_in_the_metrics() {
        let waits_on = Some(StageStatus {
            what: "asking kinesis".to_owned(),
            since: Instant::now(),
        });
        let mut plugin = served();
        (plugin.worker.waits_on, plugin.worker.passes) = (waits_on, 0);
        assert_eq!(
            why(plugin.clone()),
            "orders: has not read its leases yet: asking kinesis, for 0ns"
        );
        assert!(
            as_metrics(&host(&[("orders", plugin.clone())]))
                .ends_with("shardmill_ready{plugin=\"orders\"} 0\n")
        );
        plugin.worker.passes = 1;
        assert_eq!(why(plugin.clone()), "");
        assert!(
            as_metrics(&host(&[("orders", plugin.clone())]))
                .ends_with("shardmill_ready{plugin=\"orders\"} 1\n")
        );
        plugin.worker.heartbeat_error = Some("denied".to_owned());
        tokio::time::advance(Duration::from_secs(16)).await;
        assert_eq!(
            why(plugin.clone()),
            "orders: asking kinesis has taken more than 16s"
        );
        plugin.worker.waits_on = None;
        assert_eq!(
            why(plugin),
            "orders: no heartbeat was written for 16s: denied"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_series_is_written_as_the_format_has_it_whatever_a_file_is_called() {
        let page = as_metrics(&host(&[(r"it\'s", served()), ("a\"b\n", served())]));
        assert!(page.contains("{plugin=\"it\\\\'s\"}"), "{page}");
        assert!(page.contains("{plugin=\"a\\\"b\\n\"}"), "{page}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_host_without_any_plugin_is_not_ready_if_a_section_says_that_one_is_meant() {
        let mut bare = host(&[]);
        assert_eq!(
            missing(&bare, &BTreeSet::new()),
            [""; 0],
            "nothing is meant"
        );
        bare.without_file.insert("returns".to_owned());
        let of = |host: &HostSnapshot, named: &[&str]| {
            missing(host, &named.iter().copied().collect()).join("; ")
        };
        assert!(of(&bare, &[]).starts_with("returns: [plugin.returns] is set, but there is no"));
        assert_eq!(of(&bare, &["returns"]), of(&bare, &[]));
        assert_eq!(of(&bare, &["orders"]), "there is no plugin orders");
        assert!(as_metrics(&bare).contains("{plugin=\"returns\"} 0"));
        bare.is_folder_read = false;
        assert_eq!(of(&bare, &[]), "the plugins folder has not been read yet");
        assert!(
            !as_metrics(&bare).contains("returns"),
            "nothing is known of it"
        );

        let mut other = host(&[("orders", served())]);
        other.without_file.insert("returns".to_owned());
        assert_eq!(of(&other, &[]), "", "hosts may share a configuration");
        assert_eq!(of(&other, &["returns"]), "there is no plugin returns");
    }

    #[tokio::test(start_paused = true)]
    async fn one_plugins_trouble_is_not_anothers_where_one_is_asked_for() {
        let refused = PluginSnapshot {
            stream: None,
            refused_file: Some("no component".to_owned()),
            ..served()
        };
        let both = host(&[
            ("orders", served()),
            ("orders.returns", served()),
            ("readme", refused),
        ]);
        let of = |named: &[&str]| missing(&both, &named.iter().copied().collect());
        let refused = "readme: refused: no component";
        assert_eq!(of(&[]), [refused]);
        assert!(of(&["orders"]).is_empty());
        assert_eq!(of(&["readme"]), [refused]);
        assert_eq!(of(&["ghost"]), ["there is no plugin ghost"]);
        assert_eq!(
            of(&["orders", "ghost"]),
            ["there is no plugin ghost"],
            "whichever is named first"
        );
        assert_eq!(of(&["orders", "readme"]), [refused]);
        assert_eq!(of(&[""]), ["there is no plugin "]);
    }
}
