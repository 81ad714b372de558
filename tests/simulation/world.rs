//! What everything in a run shares: true time, dice, counters, the trace that proves determinism;
//! and for each plugin its own tables and history.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use shardmill_invariants::history::{Event, Micros, Place, What};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::bugs::PortBug;
use crate::plugins::{Conduct, PluginPlan};
use crate::stream::Stream;
use crate::tables::Tables;
use crate::trace_file::TraceFile;
use crate::weather::{Fault, Weather};

/// Shared by hosts, cloud and driver of one run, all on one thread.
pub struct Run {
    origin: Instant,
    /// How long all machines were suspended: clocks went on, timers did not.
    suspended: Mutex<Duration>,
    dice: Mutex<fastrand::Rng>,
    weather: Mutex<Weather>,
    record: Mutex<Record>,
    /// What is wrong at the ports of every host, if anything is.
    pub bug: Option<PortBug>,
    /// How many processes of each name run.
    lives: Mutex<BTreeMap<String, u32>>,
    /// Requests on their way: they outlive the host that sent them.
    pub flights: TaskTracker,
}

struct Record {
    counts: BTreeMap<String, u64>,
    trace: DefaultHasher,
    file: Option<TraceFile>,
    deliveries: u64,
    outputs: u64,
    requests: u64,
    is_cured: bool,
    /// Records that were named, by their names.
    named: Vec<Place>,
    names: BTreeMap<Place, usize>,
}

/// What one plugin lives in: its own application on a stream that others may read too.
pub struct World {
    run: Arc<Run>,
    /// Its plugin.
    pub plan: PluginPlan,
    /// DynamoDB.
    pub tables: Tables,
    /// Kinesis.
    pub stream: Arc<Stream>,
    history: Mutex<Vec<Event>>,
    conduct: Mutex<Conduct>,
    /// How often each record that fails at first has been seen.
    failed: Mutex<BTreeMap<(String, Place), u32>>,
}

impl Run {
    /// A run at its beginning, in fair weather; to be made inside of the runtime. What happens is
    /// also written to `file`, if given.
    pub fn new(seed: u64, bug: Option<PortBug>, file: Option<TraceFile>) -> Arc<Self> {
        let record = Record {
            counts: BTreeMap::new(),
            trace: DefaultHasher::new(),
            file,
            deliveries: 0,
            outputs: 0,
            requests: 0,
            is_cured: false,
            named: Vec::new(),
            names: BTreeMap::new(),
        };
        Arc::new(Self {
            origin: Instant::now(),
            suspended: Mutex::default(),
            dice: Mutex::new(fastrand::Rng::with_seed(seed)),
            weather: Mutex::default(),
            record: Mutex::new(record),
            bug,
            lives: Mutex::default(),
            flights: TaskTracker::new(),
        })
    }

    /// True time since the beginning.
    pub fn elapsed(&self) -> Duration {
        self.origin.elapsed() + *lock(&self.suspended)
    }

    /// All machines are suspended for a while, and wake up at once: every clock goes on, but no
    /// timer, and what is on its way waits as well.
    pub fn suspend(&self, lasts: Duration) {
        *lock(&self.suspended) += lasts;
    }

    /// True time since the beginning, in microseconds.
    pub fn now(&self) -> Micros {
        u64::try_from(self.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// The run's dice. Everything happens on one thread, in an order that the seed decides.
    pub fn dice(&self) -> MutexGuard<'_, fastrand::Rng> {
        lock(&self.dice)
    }

    /// What goes wrong at present.
    pub fn weather(&self) -> MutexGuard<'_, Weather> {
        lock(&self.weather)
    }

    /// Whether something of probability `chance` happens now.
    pub fn happens(&self, chance: f64) -> bool {
        chance > 0.0 && self.dice().f64() < chance
    }

    /// Whether a fault of the weather happens now; counted if it does.
    pub fn strikes(&self, fault: Fault) -> bool {
        let chance = self.weather().chance(fault);
        let strikes = self.happens(chance);
        if strikes {
            self.count_fault(fault);
        }
        strikes
    }

    /// A process of this name begins.
    pub fn begins(&self, host: &str) {
        *lock(&self.lives).entry(host.to_owned()).or_default() += 1;
    }

    /// A process of this name ends.
    pub fn ends(&self, host: &str) {
        if let Some(lives) = lock(&self.lives).get_mut(host) {
            *lives -= 1;
        }
    }

    /// Whether the process of this name that runs is the only one. Of several, nobody can tell
    /// which of them an event is about.
    pub fn is_alone(&self, host: &str) -> bool {
        lock(&self.lives).get(host) == Some(&1)
    }

    /// Counts a fault, or a rare state that was reached.
    pub fn count(&self, what: &str) {
        let mut record = lock(&self.record);
        match record.counts.get_mut(what) {
            Some(count) => *count += 1,
            None => drop(record.counts.insert(what.to_owned(), 1)),
        }
    }

    /// Counts a fault of the weather.
    pub fn count_fault(&self, fault: Fault) {
        self.count(&format!("fault: {fault:?}"));
    }

    /// From here on every version of each plugin can handle poison.
    pub fn cure(&self) {
        lock(&self.record).is_cured = true;
    }

    /// Whether poison is harmless.
    pub fn is_cured(&self) -> bool {
        lock(&self.record).is_cured
    }

    /// A short name of a record: a state that lists all of a shard's must fit in an item of
    /// DynamoDB.
    pub fn name(&self, place: &Place) -> usize {
        let mut record = lock(&self.record);
        if let Some(name) = record.names.get(place) {
            return *name;
        }
        let name = record.named.len();
        record.named.push(place.clone());
        record.names.insert(place.clone(), name);
        name
    }

    /// The record of that name.
    pub fn named(&self, name: usize) -> Place {
        lock(&self.record).named[name].clone()
    }

    /// A number that no delivery and no instance had before.
    pub fn next_delivery(&self) -> u64 {
        let mut record = lock(&self.record);
        record.deliveries += 1;
        record.deliveries
    }

    /// A number that no output had before.
    pub fn next_output(&self) -> u64 {
        let mut record = lock(&self.record);
        record.outputs += 1;
        record.outputs
    }

    /// Puts a request into the trace.
    pub fn trace(&self, host: &str, operation: &str, body: &[u8]) {
        let at = self.now();
        let mut record = lock(&self.record);
        (at, host, operation, body).hash(&mut record.trace);
        record.requests += 1;
        if let Some(file) = &record.file {
            file.line(format_args!(
                "{at:>12} {host} {operation} {}",
                String::from_utf8_lossy(body)
            ));
        }
    }

    /// The hash of every request so far: simulated time, host, operation, body.
    pub fn trace_hash(&self) -> u64 {
        lock(&self.record).trace.finish()
    }

    /// Requests of hosts so far, each attempt counted.
    pub fn requests(&self) -> u64 {
        lock(&self.record).requests
    }

    /// The counters so far.
    pub fn counts(&self) -> BTreeMap<String, u64> {
        lock(&self.record).counts.clone()
    }
}

impl World {
    /// The world of the plugin of `plan` at its beginning.
    pub fn new(run: Arc<Run>, plan: PluginPlan, tables: Tables, stream: Arc<Stream>) -> Arc<Self> {
        let (history, failed) = (Mutex::default(), Mutex::default());
        let conduct = Mutex::new(plan.conduct);
        let world = Arc::new(Self {
            run,
            plan,
            tables,
            stream,
            history,
            conduct,
            failed,
        });
        world.stream.is_read_by(&world);
        world
    }

    /// The run.
    pub fn run(&self) -> &Arc<Run> {
        &self.run
    }

    /// Adds to the plugin's history.
    pub fn note(&self, what: What) {
        let at = self.now();
        let record = lock(&self.run.record);
        if let Some(file) = &record.file {
            file.line(format_args!("{at:>12} {} {what:?}", self.plan.name()));
        }
        lock(&self.history).push(Event { at, what });
    }

    /// What its plugin does with records at present.
    pub fn conduct(&self) -> Conduct {
        *lock(&self.conduct)
    }

    /// From here on its plugin does nothing wrong by itself.
    pub fn recover(&self) {
        let mut conduct = lock(&self.conduct);
        if conduct.is_troubled() {
            *conduct = Conduct::Usual;
        }
    }

    /// Counts how often a record was seen that fails at first, by whomever.
    pub fn fails_again(&self, shard: &str, at: &Place) -> u32 {
        let mut failed = lock(&self.failed);
        let count = failed.entry((shard.to_owned(), at.clone())).or_default();
        *count += 1;
        *count
    }

    /// The history so far.
    pub fn history(&self) -> MutexGuard<'_, Vec<Event>> {
        lock(&self.history)
    }
}

impl Deref for World {
    type Target = Run;

    fn deref(&self) -> &Run {
        &self.run
    }
}

/// Everything is on one thread: a poisoned lock means that the run has failed already.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
