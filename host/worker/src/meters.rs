//! What happens in a worker, for whoever measures it: the page of metrics, and the KCL's metrics
//! where they are wanted.
//!
//! What a shard or a host does is noted here once; which metrics that is, [`Observation`] decides
//! for the KCL's, and [`Meter::note`] for ours. Without [`Meters::gathering`] nothing is kept, and
//! a note costs what the page's metrics cost.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::metrics::SharedString;
use shardmill_core::kcl_metrics::{Level, Observation, Subject, Tally, Values};
use shardmill_core::ports::{LeaseStore, PortFuture, StoreError};
use shardmill_core::stream::ShardId;

use crate::metrics;
use crate::options::WorkerOptions;
use crate::timer::Stopwatch;

/// The tallies of a host. Cheap to clone.
#[derive(Clone, Default)]
pub struct Meters(Option<Arc<Shared>>);

struct Shared {
    level: Level,
    /// Called when it is time to write what is kept.
    ring: Box<dyn Fn() + Send + Sync>,
    // Locked when a holding begins, at each checkpoint, and when all of it is taken.
    tallies: Mutex<BTreeMap<Subject, Arc<Mutex<Tally>>>>,
}

/// What was gathered since the last time.
#[derive(Debug, Default)]
pub struct Gathered {
    /// By what it was observed of. Shards and hosts of which there is nothing new are missing.
    pub values: Vec<(Subject, Values)>,
    /// Values that found no room.
    pub left_out: u64,
}

/// The meters of one worker. Cheap to clone.
#[derive(Clone)]
pub(crate) struct WorkerMeters {
    meters: Meters,
    application: Arc<str>,
    worker: Arc<str>,
    plugin_label: SharedString,
    /// What the lease table knows the stream by, once it does.
    store: Arc<dyn LeaseStore>,
}

/// Notes what happens in one subject. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Meter {
    plugin_label: SharedString,
    tally: Option<(Arc<Shared>, Arc<Mutex<Tally>>)>,
}

impl Meters {
    /// Keeps nothing, and so costs nothing, as where no metrics of the KCL are wanted.
    pub fn off() -> Self {
        Self(None)
    }

    /// Keeps what this level wants until it is taken. Calls `ring` when that should be soon; it
    /// must not wait.
    pub fn gathering(level: Level, ring: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(Shared {
            level,
            ring: Box::new(ring),
            tallies: Mutex::default(),
        })))
    }

    /// All that was noted since the last time. Forgets shards that were given up.
    pub fn take(&self) -> Gathered {
        let mut gathered = Gathered::default();
        let Some(shared) = &self.0 else {
            return gathered;
        };
        let mut gone = Vec::new();
        let mut tallies = shared.lock();
        for (subject, tally) in tallies.iter() {
            // Looked at first: what is noted after this is not gone.
            let is_gone = Arc::strong_count(tally) == 1;
            let (values, left_out) = lock(tally).take();
            gathered.left_out += left_out;
            if !values.is_empty() {
                gathered.values.push((subject.clone(), values));
            }
            if is_gone {
                gone.push(subject.clone());
            }
        }
        for subject in gone {
            tallies.remove(&subject);
        }
        gathered
    }
}

impl Shared {
    fn tally_of(&self, subject: Subject) -> Arc<Mutex<Tally>> {
        let mut tallies = self.lock();
        let tally = tallies
            .entry(subject)
            .or_insert_with(|| Arc::new(Mutex::new(Tally::new(self.level))));
        Arc::clone(tally)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Subject, Arc<Mutex<Tally>>>> {
        self.tallies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn lock(tally: &Mutex<Tally>) -> MutexGuard<'_, Tally> {
    tally.lock().unwrap_or_else(PoisonError::into_inner)
}

impl WorkerMeters {
    /// The meters of a worker whose leases are in `store`.
    pub(crate) fn new(
        meters: &Meters,
        options: &WorkerOptions,
        store: &Arc<dyn LeaseStore>,
    ) -> Self {
        Self {
            meters: meters.clone(),
            application: options.application.as_str().into(),
            worker: options.worker.as_str().into(),
            plugin_label: metrics::label(&options.plugin),
            store: Arc::clone(store),
        }
    }

    /// Of the worker itself.
    pub(crate) fn of_worker(&self) -> Meter {
        self.of(None)
    }

    /// Of one shard.
    pub(crate) fn of_shard(&self, shard: &ShardId) -> Meter {
        self.of(Some(shard))
    }

    fn of(&self, shard: Option<&ShardId>) -> Meter {
        let tally = self.meters.0.as_ref().map(|shared| {
            let subject = Subject {
                application: self.application.to_string(),
                worker: self.worker.to_string(),
                stream_id: shard.and_then(|_| self.store.stream_prefix()),
                shard: shard.cloned(),
            };
            (Arc::clone(shared), shared.tally_of(subject))
        });
        Meter {
            plugin_label: self.plugin_label.clone(),
            tally,
        }
    }

    /// The same call, whose time and end are noted in the meter of the worker, or of `shard`.
    pub(crate) fn timed<'a, T: 'a>(
        &'a self,
        shard: Option<ShardId>,
        observed: impl FnOnce(Duration, bool) -> Observation + Send + 'a,
        call: PortFuture<'a, Result<T, StoreError>>,
    ) -> PortFuture<'a, Result<T, StoreError>> {
        Box::pin(async move {
            let started = Stopwatch::start();
            let answer = call.await;
            let took = started.elapsed();
            self.of(shard.as_ref())
                .note(&observed(took, answer.is_ok()));
            answer
        })
    }
}

impl Meter {
    /// Notes what happened, now.
    pub(crate) fn note(&self, observation: &Observation) {
        self.show(observation);
        if let Some((shared, tally)) = &self.tally
            && lock(tally).note(observation)
        {
            (shared.ring)();
        }
    }

    /// On the page of metrics.
    fn show(&self, observation: &Observation) {
        let (name, took) = match observation {
            Observation::Read { took, .. } => (metrics::READ_SECONDS, took),
            Observation::Heartbeat { took, .. } => (metrics::HEARTBEAT_SECONDS, took),
            Observation::Checkpoint { took, .. } => (metrics::CHECKPOINT_SECONDS, took),
            Observation::Called { took } => (metrics::PROCESS_SECONDS, took),
            _ => return,
        };
        ::metrics::histogram!(name, "plugin" => self.plugin_label.clone())
            .record(took.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use shardmill_core::kcl_metrics::VALUES_MAX;

    use super::*;

    fn subject(shard: &str) -> Subject {
        Subject {
            application: "orders".to_owned(),
            worker: "host-1".to_owned(),
            stream_id: None,
            shard: ShardId::new(shard).ok(),
        }
    }

    fn meter(meters: &Meters, shard: &str) -> Meter {
        let shared = meters.0.as_ref().unwrap();
        Meter {
            plugin_label: "orders".into(),
            tally: Some((Arc::clone(shared), shared.tally_of(subject(shard)))),
        }
    }

    const CALLED: Observation = Observation::Called {
        took: Duration::from_millis(2),
    };

    #[test]
    fn what_a_shard_did_last_is_still_told_once_after_it_was_given_up() {
        let meters = Meters::gathering(Level::Detailed, || {});
        let given_up = meter(&meters, "shardId-000000000000");
        let held = meter(&meters, "shardId-000000000001");
        given_up.note(&CALLED);
        drop(given_up);
        held.note(&CALLED);
        let first: Vec<_> = meters.take().values.into_iter().map(|(at, _)| at).collect();
        assert_eq!(
            first,
            [
                subject("shardId-000000000000"),
                subject("shardId-000000000001")
            ]
        );
        held.note(&CALLED);
        let second = meters.take();
        assert_eq!(second.values.len(), 1);
        assert_eq!(meters.0.as_ref().unwrap().lock().len(), 1);
        assert!(meters.take().values.is_empty());
    }

    #[test]
    fn a_shard_with_many_values_rings_and_what_finds_no_room_is_counted() {
        let rung = Arc::new(AtomicUsize::new(0));
        let bell = Arc::clone(&rung);
        let meters = Meters::gathering(Level::Detailed, move || {
            bell.fetch_add(1, Ordering::Relaxed);
        });
        let meter = meter(&meters, "shardId-000000000000");
        for _ in 0..VALUES_MAX {
            meter.note(&CALLED);
        }
        assert!(rung.load(Ordering::Relaxed) > 0);
        meter.note(&CALLED);
        assert_eq!(meters.take().left_out, 1);
    }

    #[test]
    fn nothing_is_kept_where_nothing_is_wanted() {
        let meters = Meters::off();
        assert!(meters.take().values.is_empty());
        assert!(meters.0.is_none());
    }
}
