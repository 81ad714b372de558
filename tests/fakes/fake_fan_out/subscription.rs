//! A running subscription of the fake.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use shardmill_core::ports::{PortFuture, ShardEvent, ShardIterator, SubscribeError, Subscription};
use shardmill_core::stream::{SequenceNumber, ShardId};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::{Break, State, as_subscribe_error, lock};
use crate::fake_stream::FakeStream;

/// AWS limit.
const LIFETIME: Duration = Duration::from_mins(5);
/// As real Kinesis is seen to do.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// How long a record takes to be pushed.
const PUSH_AFTER: Duration = Duration::from_millis(50);

/// A subscription to a shard of the fake.
pub struct FakeSubscription {
    pub(super) stream: Arc<FakeStream>,
    pub(super) state: Arc<Mutex<State>>,
    pub(super) key: (String, ShardId),
    pub(super) id: u64,
    pub(super) made_at: Instant,
    pub(super) changed: Arc<Notify>,
    /// Of the stream.
    pub(super) news: watch::Receiver<()>,
    pub(super) next: ShardIterator,
    pub(super) continuation: SequenceNumber,
    pub(super) heard_at: Instant,
    pub(super) event_records: u32,
    pub(super) last_records: Vec<shardmill_core::stream::Record>,
    pub(super) is_over: bool,
}

impl FakeSubscription {
    /// What there is now, if anything.
    fn look(&mut self) -> Option<Result<Option<ShardEvent>, SubscribeError>> {
        let fault = match lock(&self.state).subscriptions.get_mut(&self.key) {
            Some(running) if running.id == self.id => running.fault,
            Some(_) => {
                return Some(Err(SubscribeError::InUse {
                    message: "taken over".to_owned(),
                }));
            }
            None => {
                return Some(Err(SubscribeError::ConsumerNotFound {
                    message: self.key.0.clone(),
                }));
            }
        };
        match fault {
            Some(Break::Cut) => {
                return Some(Err(SubscribeError::Unavailable {
                    message: "cut off".to_owned(),
                }));
            }
            Some(Break::Stall) => return None,
            _ if self.made_at.elapsed() >= LIFETIME => return Some(Ok(None)),
            Some(Break::Mute) => return self.heartbeat().map(|event| Ok(Some(event))),
            Some(Break::OutOfOrder | Break::Repeats) | None => {}
        }
        let mut fetched = match self.stream.look_on(&self.next, self.event_records) {
            Ok(fetched) => fetched,
            Err(error) => return Some(Err(as_subscribe_error(&error))),
        };
        let is_over = fetched.next.is_none();
        let is_due = !fetched.records.is_empty() || is_over || self.heard_at.elapsed() >= HEARTBEAT;
        if !is_due {
            return None;
        }
        self.heard_at = Instant::now();
        if let Some(next) = fetched.next.take() {
            self.next = next;
        }
        if !fetched.records.is_empty() {
            // There may be more than one event holds.
            self.news.mark_changed();
        }
        if let Some(last) = fetched.records.last() {
            self.continuation = last.position.sequence.clone();
        }
        if fault == Some(Break::Repeats) && !fetched.records.is_empty() {
            let new = std::mem::replace(&mut fetched.records, self.last_records.clone());
            fetched.records.extend(new);
        } else {
            self.last_records.clone_from(&fetched.records);
        }
        if fault == Some(Break::OutOfOrder) && fetched.records.len() > 1 {
            fetched.records.reverse();
            self.set_fault(Some(Break::Cut));
        }
        self.is_over = is_over;
        let mut state = lock(&self.state);
        state.records_pushed += fetched.records.len();
        state.events_pushed += 1;
        let event = ShardEvent {
            records: fetched.records,
            next: (!is_over).then(|| self.continuation.clone()),
            millis_behind_latest: fetched.millis_behind_latest.or(Some(0)),
            children: fetched.children,
        };
        let event = event.in_order().map(Some);
        Some(event.map_err(|error| as_subscribe_error(&error)))
    }

    /// An event without records, if one is due.
    fn heartbeat(&mut self) -> Option<ShardEvent> {
        if self.heard_at.elapsed() < HEARTBEAT {
            return None;
        }
        self.heard_at = Instant::now();
        lock(&self.state).events_pushed += 1;
        Some(ShardEvent {
            next: Some(self.continuation.clone()),
            millis_behind_latest: Some(0),
            ..ShardEvent::default()
        })
    }

    fn set_fault(&self, fault: Option<Break>) {
        if let Some(running) = lock(&self.state).subscriptions.get_mut(&self.key) {
            running.fault = fault;
        }
    }
}

impl Drop for FakeSubscription {
    fn drop(&mut self) {
        lock(&self.state).open -= 1;
    }
}

impl Subscription for FakeSubscription {
    fn next(&mut self) -> PortFuture<'_, Result<Option<ShardEvent>, SubscribeError>> {
        Box::pin(async move {
            if self.is_over {
                return Ok(None);
            }
            loop {
                let due = (self.heard_at + HEARTBEAT).min(self.made_at + LIFETIME);
                // One that is stalled has been due for long.
                let due = due.max(Instant::now() + PUSH_AFTER);
                tokio::select! {
                    () = self.changed.notified() => {}
                    _ = self.news.changed() => tokio::time::sleep(PUSH_AFTER).await,
                    () = tokio::time::sleep_until(due) => {}
                }
                if let Some(answer) = self.look() {
                    return answer;
                }
            }
        })
    }
}
