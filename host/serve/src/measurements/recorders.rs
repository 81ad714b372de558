//! A recorder for the process, and one for each plugin and each table.
//!
//! The library's recorder forgets no series while somebody may hold a handle to it. A host serves
//! plugins under new names for months, each with a hundred series; so the series of each have a
//! recorder of their own, which ends with all of them once nothing is noted there any more.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use metrics_exporter_prometheus::{
    BuildError, Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};
use shardmill_core::plugin::plugin_of_label;

use super::page::Page;

/// Bounds of what ends in `_seconds`: from a cheap batch to the longest deadline that is usual.
const SECONDS: [f64; 15] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
];
/// Bounds of what ends in `_bytes`: powers of four, from 256 bytes to 64 MiB.
const BYTES: [f64; 10] = [
    256.0,
    1_024.0,
    4_096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
];
/// Bounds of anything else, which only plugins measure.
const ANY: [f64; 13] = [
    0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9,
];

/// After how many looks without a note the series of a plugin or a table end; a look is a second. A
/// plugin that is served has something noted all the time, and the table of an application is asked
/// several times an hour, since a lease lasts an hour at most.
const IDLE_LOOKS_MAX: u64 = 2 * 60 * 60;
/// After how many they may end if there are too many: several scrapes have seen the last values.
const IDLE_LOOKS_MIN: u64 = 2 * 60;
/// How many idle ones are kept. Each takes some 60 KiB of memory, and some 5 KiB of the page.
const IDLE_MAX: usize = 100;

/// All recorders of the process. Cheap to clone.
#[derive(Clone)]
pub(super) struct Recorders(Arc<Shared>);

struct Shared {
    process: Room,
    /// By plugin, and by table (see [`owner_of`]). Locked for a lookup at each note, and to be
    /// written when one comes or goes.
    rooms: RwLock<HashMap<String, Arc<Room>>>,
    /// What each metric means.
    descriptions: RwLock<HashMap<String, SharedString>>,
    /// The looks so far: what time is measured in here.
    looks: AtomicU64,
}

/// The series of one owner.
struct Room {
    recorder: PrometheusRecorder,
    handle: PrometheusHandle,
    /// The look at which something was noted last.
    noted: AtomicU64,
}

impl Recorders {
    pub(super) fn new() -> Self {
        Self(Arc::new(Shared {
            process: Room::new(),
            rooms: RwLock::default(),
            descriptions: RwLock::default(),
            looks: AtomicU64::new(0),
        }))
    }

    /// All series there are, as scrapers read them.
    pub(super) fn page(&self) -> String {
        let mut page = Page::default();
        page.add(&self.0.process.handle.render());
        for room in self.0.all_rooms() {
            page.add(&room.handle.render());
        }
        let descriptions = self.0.descriptions.read();
        page.write(&descriptions.unwrap_or_else(PoisonError::into_inner))
    }

    /// Counts what was measured into its buckets, and ends the series that nobody adds to. To be
    /// called once a second.
    pub(super) fn look_after(&self) {
        self.0.process.handle.run_upkeep();
        for room in self.0.all_rooms() {
            room.handle.run_upkeep();
        }
        let now = self.0.looks.fetch_add(1, Ordering::Relaxed);
        self.0.end_idle(now);
    }
}

impl Shared {
    /// Notes in the room of whoever the series is of.
    fn in_room<T>(&self, key: &Key, note: impl FnOnce(&PrometheusRecorder) -> T) -> T {
        let Some(owner) = owner_of(key) else {
            return note(&self.process.recorder);
        };
        let room = self.room_of(&owner);
        let now = self.looks.load(Ordering::Relaxed);
        room.noted.store(now, Ordering::Relaxed);
        note(&room.recorder)
    }

    fn room_of(&self, owner: &str) -> Arc<Room> {
        let rooms = self.rooms.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(room) = rooms.get(owner) {
            return Arc::clone(room);
        }
        drop(rooms);
        let mut rooms = self.rooms.write().unwrap_or_else(PoisonError::into_inner);
        let room = rooms.entry(owner.to_owned());
        Arc::clone(room.or_insert_with(|| Arc::new(Room::new())))
    }

    fn all_rooms(&self) -> Vec<Arc<Room>> {
        let rooms = self.rooms.read().unwrap_or_else(PoisonError::into_inner);
        rooms.values().cloned().collect()
    }

    /// A note that comes just then may be lost: it is the last one of something that has ended.
    fn end_idle(&self, now: u64) {
        let mut rooms = self.rooms.write().unwrap_or_else(PoisonError::into_inner);
        rooms.retain(|_, room| room.idle_at(now) < IDLE_LOOKS_MAX);
        let mut idle: Vec<u64> = rooms
            .values()
            .map(|room| room.idle_at(now))
            .filter(|looks| *looks >= IDLE_LOOKS_MIN)
            .collect();
        if idle.len() > IDLE_MAX {
            idle.sort_unstable();
            let kept = idle[IDLE_MAX];
            rooms.retain(|_, room| room.idle_at(now) < kept);
        }
    }

    fn describe(&self, key: &KeyName, description: SharedString) {
        let mut descriptions = self
            .descriptions
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        descriptions.insert(key.as_str().to_owned(), description);
    }
}

/// Whose series it is: a plugin's, with all of its streams and shadows, or a table's. `None` for
/// those of the process, of which there are only so many.
fn owner_of(key: &Key) -> Option<Cow<'_, str>> {
    key.labels().find_map(|label| match label.key() {
        "plugin" => Some(plugin_of_label(label.value()).into()),
        // No plugin has a space in its name.
        "table" => Some(format!("table {}", label.value()).into()),
        _ => None,
    })
}

impl Room {
    fn new() -> Self {
        let recorder = builder().build_recorder();
        Self {
            handle: recorder.handle(),
            recorder,
            noted: AtomicU64::new(0),
        }
    }

    /// For how many looks nothing was noted.
    fn idle_at(&self, look: u64) -> u64 {
        look.saturating_sub(self.noted.load(Ordering::Relaxed))
    }
}

fn builder() -> PrometheusBuilder {
    // Refused only without bounds.
    with_buckets(PrometheusBuilder::new()).unwrap_or_default()
}

/// Histograms with buckets can be added up over hosts; the library's default are quantiles, which
/// cannot.
fn with_buckets(builder: PrometheusBuilder) -> Result<PrometheusBuilder, BuildError> {
    builder
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &SECONDS)?
        .set_buckets_for_metric(Matcher::Suffix("_bytes".to_owned()), &BYTES)?
        .set_buckets(&ANY)
}

impl Recorder for Recorders {
    fn describe_counter(&self, key: KeyName, _unit: Option<Unit>, description: SharedString) {
        self.0.describe(&key, description);
    }

    fn describe_gauge(&self, key: KeyName, _unit: Option<Unit>, description: SharedString) {
        self.0.describe(&key, description);
    }

    fn describe_histogram(&self, key: KeyName, _unit: Option<Unit>, description: SharedString) {
        self.0.describe(&key, description);
    }

    fn register_counter(&self, key: &Key, metadata: &Metadata<'_>) -> Counter {
        self.0
            .in_room(key, |recorder| recorder.register_counter(key, metadata))
    }

    fn register_gauge(&self, key: &Key, metadata: &Metadata<'_>) -> Gauge {
        self.0
            .in_room(key, |recorder| recorder.register_gauge(key, metadata))
    }

    fn register_histogram(&self, key: &Key, metadata: &Metadata<'_>) -> Histogram {
        self.0
            .in_room(key, |recorder| recorder.register_histogram(key, metadata))
    }
}

#[cfg(test)]
mod tests {
    use metrics::{counter, describe_counter, gauge};

    use super::*;

    fn looks(recorders: &Recorders, looks: u64) {
        for _ in 0..looks {
            recorders.look_after();
        }
    }

    #[test]
    fn a_histogram_has_buckets_that_fit_its_unit() {
        let recorders = Recorders::new();
        metrics::with_local_recorder(&recorders, || {
            metrics::histogram!("shardmill_process_seconds", "plugin" => "a").record(0.2);
            metrics::histogram!("shardmill_state_bytes", "plugin" => "a").record(3_000.0);
            metrics::histogram!("shardmill_guest_magnitude", "plugin" => "a").record(7.0);
        });
        let page = recorders.page();
        for line in [
            "# TYPE shardmill_process_seconds histogram",
            r#"shardmill_process_seconds_bucket{plugin="a",le="0.1"} 0"#,
            r#"shardmill_process_seconds_bucket{plugin="a",le="0.25"} 1"#,
            r#"shardmill_state_bytes_bucket{plugin="a",le="4096"} 1"#,
            r#"shardmill_guest_magnitude_bucket{plugin="a",le="1"} 0"#,
            r#"shardmill_guest_magnitude_bucket{plugin="a",le="10"} 1"#,
        ] {
            assert!(page.contains(line), "{line} is not in\n{page}");
        }
    }

    #[test]
    fn a_plugins_series_end_some_time_after_its_last_note_and_the_others_stay() {
        let recorders = Recorders::new();
        metrics::with_local_recorder(&recorders, || {
            counter!("x_total", "plugin" => "gone").increment(1);
            counter!("x_total", "plugin" => "gone.orders", "kind" => "b").increment(1);
            counter!("requests_total", "table" => "gone").increment(1);
            counter!("requests_total", "sink" => "gone").increment(1);
            looks(&recorders, IDLE_LOOKS_MAX - 1);
            gauge!("y", "plugin" => "alerts").set(2.0);
            assert!(recorders.page().contains("x_total{plugin=\"gone\"} 1"));
            looks(&recorders, 2);
        });
        let page = recorders.page();
        let kept = "# TYPE requests_total counter\nrequests_total{sink=\"gone\"} 1\n\n# TYPE y \
            gauge\ny{plugin=\"alerts\"} 2\n\n";
        assert_eq!(page, kept);
    }

    #[test]
    fn of_many_plugins_that_are_gone_only_the_last_ones_are_kept() {
        let recorders = Recorders::new();
        metrics::with_local_recorder(&recorders, || {
            for number in 0..3 * IDLE_MAX {
                counter!("x_total", "plugin" => format!("plugin-{number}")).increment(1);
                looks(&recorders, 1);
            }
        });
        looks(&recorders, IDLE_LOOKS_MIN);
        let page = recorders.page();
        let kept = page
            .lines()
            .filter(|line| line.starts_with("x_total{"))
            .count();
        assert_eq!(kept, IDLE_MAX, "{page}");
        assert!(page.contains(&format!("plugin-{}\"", 3 * IDLE_MAX - 1)));
        assert!(!page.contains("plugin-0\""));
    }

    #[test]
    fn series_of_one_name_are_together_whichever_plugins_they_are_of_and_say_what_they_mean() {
        let recorders = Recorders::new();
        metrics::with_local_recorder(&recorders, || {
            describe_counter!("x_total", "what it counts");
            counter!("x_total", "plugin" => "a").increment(1);
            counter!("x_total", "plugin" => "b").increment(2);
            counter!("x_total").increment(3);
        });
        let page = recorders.page();
        let began = "# HELP x_total what it counts\n# TYPE x_total counter\nx_total 3\nx_total{";
        assert!(page.starts_with(began), "{page}");
        assert_eq!(page.matches("# TYPE").count(), 1, "{page}");
        assert!(page.contains("{plugin=\"a\"} 1\n") && page.contains("{plugin=\"b\"} 2\n"));
    }
}
