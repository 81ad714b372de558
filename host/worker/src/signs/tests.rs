use ::metrics::{Counter, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder, Unit};
use shardmill_core::time::Moment;

use super::*;

/// Keeps what each series was set to last.
#[derive(Default, Clone)]
pub(crate) struct Kept(pub(crate) Arc<Mutex<BTreeMap<String, f64>>>);

struct Series(Kept, String);

impl GaugeFn for Series {
    fn increment(&self, _: f64) {}

    fn decrement(&self, _: f64) {}

    fn set(&self, value: f64) {
        self.0.0.lock().unwrap().insert(self.1.clone(), value);
    }
}

impl Recorder for Kept {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(Arc::new(Series(self.clone(), key.to_string())))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

struct At(u64);

impl Clock for At {
    fn now(&self) -> Moment {
        Moment::default()
    }

    fn wall_ms(&self) -> u64 {
        self.0
    }
}

fn signs() -> Signs {
    let shard = ShardId::new("shardId-000000000000").unwrap();
    Signs::new(
        StatusBoard::default(),
        &PluginName::new("plugin").unwrap(),
        shard,
        Arc::new(At(10_000)),
    )
}

#[tokio::test(start_paused = true)]
async fn the_gauges_of_a_shard_end_with_its_holding_whoever_sets_them_afterwards() {
    let kept = Kept::default();
    ::metrics::with_local_recorder(&kept, || {
        let signs = signs();
        let owner = signs.owner();
        signs.failed(Why::Sink, 1, "503".to_owned());
        signs.failed(Why::Plugin, 1, "trapped".to_owned());
        signs.clear(Why::Plugin);
        signs.gauge(metrics::PARKED, 3.0);
        signs.unsettled(Some(4_000), 2);
        let values = || kept.0.lock().unwrap().clone();
        let of = |part: &str| {
            values()
                .into_iter()
                .find(|(key, _)| key.contains(part))
                .unwrap()
                .1
        };
        assert_eq!(
            (of("why = sink"), of("why = plugin"), of("parked")),
            (1.0, 0.0, 3.0),
            "{:?}",
            values()
        );
        assert_eq!(
            (of(metrics::OLDEST_UNSETTLED_AGE), of(metrics::HELD_BACK)),
            (6.0, 2.0)
        );
        drop(owner);
        assert!(
            values().values().all(|value| value.is_nan()),
            "{:?}",
            values()
        );
        signs.failed(Why::Row, 1, "late".to_owned());
        signs.look();
        assert!(
            values().values().all(|value| value.is_nan()),
            "{:?}",
            values()
        );
    });
}

#[tokio::test(start_paused = true)]
async fn the_row_says_a_failure_from_the_third_on_and_anew_only_at_powers_of_two() {
    let signs = signs();
    let noted = |attempts| {
        signs.failed(Why::Sink, attempts, format!("no {attempts}"));
        signs.note()
    };
    assert_eq!([noted(1), noted(2)], [None, None]);
    for (attempts, told) in [(3, 3), (4, 4), (5, 4), (7, 4), (8, 8)] {
        assert_eq!(
            noted(attempts),
            Some(format!("attempt {told} failed: no {told}"))
        );
    }
    signs.clear(Why::Sink);
    assert_eq!(signs.note(), None);
}

#[tokio::test(start_paused = true)]
async fn a_stage_that_takes_long_is_reported_until_it_is_left_and_waiting_never_is() {
    let signs = signs();
    signs.enter(Stage::Storing("output in out".to_owned()));
    signs.look();
    assert_eq!(signs.note(), None);
    tokio::time::advance(LONG).await;
    signs.look();
    assert_eq!(
        signs.note().as_deref(),
        Some("storing output in out has taken more than 5s")
    );
    signs.enter(Stage::Reading);
    assert_eq!(signs.note(), None);
    tokio::time::advance(LONG * 9).await;
    signs.look();
    assert_eq!(signs.note(), None);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_took_long_and_then_failed_is_shown_while_it_waits_to_be_tried_again() {
    let signs = signs();
    signs.enter(Stage::InPlugin);
    tokio::time::advance(LONG).await;
    signs.look();
    signs.failed(Why::Plugin, 3, "cut off after 5s".to_owned());
    signs.enter(Stage::Waiting);
    assert_eq!(
        signs.note().as_deref(),
        Some("attempt 3 failed: cut off after 5s")
    );
    signs.clear(Why::Plugin);
    assert_eq!(signs.note(), None);
}
