//! Enhanced fan-out on a fake stream, by the rules of the real one: a subscription a consumer and
//! shard, five minutes long, taken over by the next one but not within five seconds; an event at
//! least every five seconds. With faults to order.

mod subscription;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use shardmill_core::ports::{
    ConsumerState, PortFuture, ReadError, SubscribeError, Subscription, Subscriptions,
};
use shardmill_core::stream::{ConsumerArn, ConsumerName, FanOutConsumer, ReadFrom, ShardId};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::fake_stream::FakeStream;

pub use subscription::FakeSubscription;

/// AWS limit.
const TAKES_OVER_AFTER: Duration = Duration::from_secs(5);
/// How long a consumer is in the making.
const CREATION: Duration = Duration::from_secs(1);
/// AWS limit.
const CONSUMERS_MAX: usize = 20;

/// What goes wrong with the running subscription to a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Break {
    /// Its connection is cut.
    Cut,
    /// The next event's records are out of order; then it is cut.
    OutOfOrder,
    /// The next event has the records of the one before once more.
    Repeats,
    /// Nothing more comes.
    Stall,
    /// Events go on to come, without records and without the end of the shard.
    Mute,
}

/// The fake.
pub struct FakeFanOut {
    stream: Arc<FakeStream>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// Records of one event, if set.
    event_records: Option<u32>,
    consumers: BTreeMap<String, Consumer>,
    registrations: u32,
    subscriptions: BTreeMap<(String, ShardId), Running>,
    made: u64,
    /// Errors of the next calls of `subscribe`.
    refusals: VecDeque<SubscribeError>,
    /// How many of the next calls of `subscribe` hang.
    unanswered: usize,
    /// Errors of the next calls of `ensure_consumer`.
    no_consumer: VecDeque<SubscribeError>,
    /// Where each subscription started.
    starts: Vec<(ShardId, ReadFrom)>,
    records_pushed: usize,
    events_pushed: usize,
    /// Subscriptions that nobody has dropped.
    open: usize,
}

struct Consumer {
    arn: ConsumerArn,
    made_at: Instant,
}

struct Running {
    id: u64,
    made_at: Instant,
    fault: Option<Break>,
    changed: Arc<Notify>,
}

impl FakeFanOut {
    /// Nobody is registered.
    pub fn new(stream: Arc<FakeStream>) -> Self {
        Self {
            stream,
            state: Arc::default(),
        }
    }

    /// Events hold at most this many records.
    pub fn set_event_records(&self, records: u32) {
        self.state().event_records = Some(records);
    }

    /// Registers a consumer, as somebody else would; it is ready at once.
    ///
    /// # Panics
    ///
    /// Never: its ARN is valid.
    pub fn register(&self, name: &str) -> ConsumerArn {
        let mut state = self.state();
        let arn = state.register(name);
        if let Some(consumer) = state.consumers.get_mut(name) {
            consumer.made_at = Instant::now()
                .checked_sub(CREATION)
                .unwrap_or_else(Instant::now);
        }
        arn
    }

    /// The ARN of a registered consumer.
    ///
    /// # Panics
    ///
    /// If there is none of that name.
    pub fn arn(&self, name: &str) -> ConsumerArn {
        self.state()
            .consumers
            .get(name)
            .expect("a registered consumer")
            .arn
            .clone()
    }

    /// Deregisters a consumer, as somebody else would: its subscriptions end.
    pub fn deregister(&self, name: &str) {
        self.state().deregister(name);
    }

    /// Names of the registered consumers.
    pub fn consumers(&self) -> Vec<String> {
        self.state().consumers.keys().cloned().collect()
    }

    /// Breaks the running subscription to `shard`. Returns whether there was one.
    pub fn break_off(&self, shard: &ShardId, how: Break) -> bool {
        let mut state = self.state();
        let mut running = state
            .subscriptions
            .iter_mut()
            .filter(|((_, of), _)| of == shard);
        let found = running.next().map(|(_, running)| {
            running.fault = Some(how);
            running.changed.notify_one();
        });
        found.is_some()
    }

    /// The next call of `subscribe` fails so.
    pub fn refuse_next(&self, error: SubscribeError) {
        self.state().refusals.push_back(error);
    }

    /// The next calls of `subscribe` are never answered.
    pub fn leave_next_unanswered(&self, times: usize) {
        self.state().unanswered += times;
    }

    fn is_left_unanswered(&self) -> bool {
        let mut state = self.state();
        let is_left = state.unanswered > 0;
        state.unanswered -= usize::from(is_left);
        is_left
    }

    /// The next calls for a consumer fail so.
    pub fn no_consumer(&self, error: &SubscribeError, times: usize) {
        self.state()
            .no_consumer
            .extend(std::iter::repeat_n(error.clone(), times));
    }

    /// Where each subscription to `shard` started, in order.
    pub fn starts(&self, shard: &ShardId) -> Vec<ReadFrom> {
        self.state()
            .starts
            .iter()
            .filter(|(of, _)| of == shard)
            .map(|(_, from)| from.clone())
            .collect()
    }

    /// Records pushed so far, repeated ones included.
    pub fn records_pushed(&self) -> usize {
        self.state().records_pushed
    }

    /// Subscriptions that are held open now.
    pub fn open_subscriptions(&self) -> usize {
        self.state().open
    }

    /// Events pushed so far.
    pub fn events_pushed(&self) -> usize {
        self.state().events_pushed
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// As [`Subscriptions::ensure_consumer`], at once.
    pub fn ensure(&self, wanted: &FanOutConsumer) -> Result<ConsumerState, SubscribeError> {
        let mut state = self.state();
        if let Some(error) = state.no_consumer.pop_front() {
            return Err(error);
        }
        let found = match wanted {
            FanOutConsumer::Named(name) => state.consumers.get(name.as_str()),
            FanOutConsumer::Given(arn) => state
                .consumers
                .values()
                .find(|consumer| consumer.arn == *arn),
        };
        match (found, wanted) {
            (Some(consumer), _) if consumer.made_at.elapsed() < CREATION => {
                Ok(ConsumerState::Creating)
            }
            (Some(consumer), _) => Ok(ConsumerState::Active(consumer.arn.clone())),
            (None, FanOutConsumer::Named(_)) if state.consumers.len() >= CONSUMERS_MAX => {
                Err(SubscribeError::ConsumerLimit {
                    message: "20 consumers".to_owned(),
                })
            }
            (None, FanOutConsumer::Named(name)) => {
                state.register(name.as_str());
                Ok(ConsumerState::Creating)
            }
            (None, FanOutConsumer::Given(arn)) => Err(SubscribeError::ConsumerNotFound {
                message: arn.to_string(),
            }),
        }
    }

    /// As [`Subscriptions::subscribe`], at once.
    pub fn open(
        &self,
        consumer: &ConsumerArn,
        shard: &ShardId,
        from: &ReadFrom,
    ) -> Result<FakeSubscription, SubscribeError> {
        let mut state = self.state();
        if let Some(error) = state.refusals.pop_front() {
            return Err(error);
        }
        if !state.consumers.values().any(|known| known.arn == *consumer) {
            return Err(SubscribeError::ConsumerNotFound {
                message: consumer.to_string(),
            });
        }
        let next = self
            .stream
            .place(shard, from)
            .map_err(|error| as_subscribe_error(&error))?;
        let key = (consumer.to_string(), shard.clone());
        if state
            .subscriptions
            .get(&key)
            .is_some_and(|running| running.made_at.elapsed() < TAKES_OVER_AFTER)
        {
            return Err(SubscribeError::InUse {
                message: "subscribed less than 5 s ago".to_owned(),
            });
        }
        state.starts.push((shard.clone(), from.clone()));
        state.made += 1;
        state.open += 1;
        let (id, made_at, changed) = (state.made, Instant::now(), Arc::new(Notify::new()));
        let running = Running {
            id,
            made_at,
            fault: None,
            changed: Arc::clone(&changed),
        };
        if let Some(before) = state.subscriptions.insert(key.clone(), running) {
            before.changed.notify_one();
        }
        Ok(FakeSubscription {
            stream: Arc::clone(&self.stream),
            state: Arc::clone(&self.state),
            key,
            id,
            made_at,
            changed,
            news: self.stream.news(),
            next,
            continuation: self.stream.last_sequence(),
            heard_at: made_at,
            event_records: state.event_records.unwrap_or(100),
            last_records: Vec::new(),
            is_over: false,
        })
    }
}

impl State {
    fn register(&mut self, name: &str) -> ConsumerArn {
        self.registrations += 1;
        let text = format!(
            "arn:aws:kinesis:us-east-1:000000000000:stream/stream/consumer/{name}:{}",
            self.registrations
        );
        let arn = ConsumerArn::new(&text).expect("a valid ARN");
        self.consumers.insert(
            name.to_owned(),
            Consumer {
                arn: arn.clone(),
                made_at: Instant::now(),
            },
        );
        arn
    }

    fn deregister(&mut self, name: &str) {
        let Some(consumer) = self.consumers.remove(name) else {
            return;
        };
        self.subscriptions.retain(|(arn, _), running| {
            let stays = arn != consumer.arn.as_str();
            if !stays {
                running.changed.notify_one();
            }
            stays
        });
    }
}

impl Subscriptions for FakeFanOut {
    fn ensure_consumer<'a>(
        &'a self,
        consumer: &'a FanOutConsumer,
    ) -> PortFuture<'a, Result<ConsumerState, SubscribeError>> {
        Box::pin(async move {
            tokio::task::yield_now().await;
            self.ensure(consumer)
        })
    }

    fn remove_consumer<'a>(
        &'a self,
        name: &'a ConsumerName,
    ) -> PortFuture<'a, Result<(), SubscribeError>> {
        Box::pin(async move {
            self.deregister(name.as_str());
            Ok(())
        })
    }

    fn subscribe<'a>(
        &'a self,
        consumer: &'a ConsumerArn,
        shard: &'a ShardId,
        from: &'a ReadFrom,
    ) -> PortFuture<'a, Result<Box<dyn Subscription>, SubscribeError>> {
        Box::pin(async move {
            tokio::task::yield_now().await;
            if self.is_left_unanswered() {
                return std::future::pending().await;
            }
            self.open(consumer, shard, from)
                .map(|subscription| Box::new(subscription) as Box<dyn Subscription>)
        })
    }
}

fn as_subscribe_error(error: &ReadError) -> SubscribeError {
    let message = error.to_string();
    match error {
        ReadError::NotFound { .. } => SubscribeError::NotFound { message },
        ReadError::Refused { .. } | ReadError::KeyUnusable { .. } => {
            SubscribeError::Refused { message }
        }
        ReadError::Throttled { .. } => SubscribeError::Throttled { message },
        ReadError::Unavailable { .. } | ReadError::ExpiredIterator => {
            SubscribeError::Unavailable { message }
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
