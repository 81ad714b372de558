//! The application's fan-out consumer on this host: one task makes sure that it exists, and readers
//! see its state.

use std::sync::Arc;
use std::time::Duration;

use ::metrics::SharedString;
use shardmill_core::backoff::Backoff;
use shardmill_core::plugin::PluginName;
use shardmill_core::ports::{ConsumerState, SubscribeError, Subscriptions};
use shardmill_core::stream::{ConsumerArn, FanOutConsumer};
use tokio::sync::watch;

use crate::metrics;
use crate::status::{FanOutStatus, StatusBoard};
use crate::timer::Stopwatch;

/// If a consumer cannot be registered, the host tries again, less and less often: an operator may
/// have made room for it meanwhile.
const ASK_AGAIN: Backoff = match Backoff::new(Duration::from_secs(1), Duration::from_mins(5)) {
    Some(backoff) => backoff,
    None => Backoff::standard(),
};
/// Kinesis makes a consumer in some seconds; `DescribeStreamConsumer` allows 20 calls a second for
/// the account.
const IS_IT_READY: Backoff = match Backoff::new(Duration::from_millis(500), Duration::from_secs(10))
{
    Some(backoff) => backoff,
    None => Backoff::standard(),
};
/// Far longer than Kinesis takes for a consumer: after so many questions, polling meanwhile counts
/// as a fallback.
const READY_WITHIN_ASKS: u32 = 12;
/// A consumer that was good for this long counts as lost for the first time.
const GOOD_FOR: Duration = Duration::from_mins(1);

/// Whether shards can be subscribed to.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Registration {
    /// Asked for, or being made.
    NotYet,
    /// They can, with this consumer.
    Usable(ConsumerArn),
    /// It is not available now.
    Unusable,
}

/// What readers see of the consumer.
#[derive(Clone)]
pub(crate) struct FanOutView {
    pub(crate) subscriptions: Arc<dyn Subscriptions>,
    registration: Arc<watch::Sender<Registration>>,
}

/// Makes sure that there is a consumer.
pub(crate) struct ConsumerKeeper {
    view: FanOutView,
    consumer: FanOutConsumer,
    plugin_label: SharedString,
    status: StatusBoard,
}

impl FanOutView {
    /// The consumer to subscribe with; `None` if none is available now.
    pub(crate) fn usable(&self) -> Option<ConsumerArn> {
        match &*self.registration.borrow() {
            Registration::Usable(consumer) => Some(consumer.clone()),
            Registration::NotYet | Registration::Unusable => None,
        }
    }

    /// Returns once there is a consumer to subscribe with.
    pub(crate) async fn until_usable(&self) {
        let mut registration = self.registration.subscribe();
        // The sender lives as long as this view.
        let _ = registration
            .wait_for(|registration| matches!(registration, Registration::Usable(_)))
            .await;
    }

    /// Asks for this consumer again, since Kinesis answered a reader that it is not registered.
    pub(crate) fn lost(&self, consumer: &ConsumerArn) {
        self.registration.send_if_modified(|registration| {
            let is_news = *registration == Registration::Usable(consumer.clone());
            if is_news {
                *registration = Registration::NotYet;
            }
            is_news
        });
    }
}

impl ConsumerKeeper {
    pub(crate) fn new(
        subscriptions: Arc<dyn Subscriptions>,
        consumer: FanOutConsumer,
        plugin: &PluginName,
        status: StatusBoard,
    ) -> (Self, FanOutView) {
        let view = FanOutView {
            subscriptions,
            registration: Arc::new(watch::channel(Registration::NotYet).0),
        };
        let keeper = Self {
            view: view.clone(),
            consumer,
            plugin_label: metrics::label(plugin),
            status,
        };
        (keeper, view)
    }

    /// Runs for as long as the worker does.
    pub(crate) async fn run(self) {
        let (mut failures, mut asked) = (0_u32, 0_u32);
        loop {
            let ensured = self
                .view
                .subscriptions
                .ensure_consumer(&self.consumer)
                .await;
            let wait = match ensured {
                Ok(ConsumerState::Active(arn)) => {
                    let was_good = self.usable(arn).await;
                    asked = 0;
                    failures = if was_good { 1 } else { failures + 1 };
                    let reason = "the consumer no longer exists".to_owned();
                    self.unusable("not_found", reason, failures);
                    // Once at once, since most likely somebody deregistered it; then ever less.
                    if failures == 1 {
                        Duration::ZERO
                    } else {
                        ASK_AGAIN.delay(failures, fastrand::f64())
                    }
                }
                Ok(state @ (ConsumerState::Creating | ConsumerState::Deleting)) => {
                    asked = asked.saturating_add(1);
                    self.not_ready(&state, asked);
                    IS_IT_READY.delay(asked, fastrand::f64())
                }
                Err(error) => {
                    failures = failures.saturating_add(1);
                    self.unusable(why(&error), error.to_string(), failures);
                    ASK_AGAIN.delay(failures, fastrand::f64())
                }
            };
            tokio::time::sleep(wait).await;
        }
    }

    /// Offers the consumer to the readers, until one of them cannot subscribe with it. Returns
    /// whether it was good for long.
    async fn usable(&self, arn: ConsumerArn) -> bool {
        let usable = Stopwatch::start();
        tracing::info!(consumer = %arn, "subscribing with enhanced fan-out");
        let shown = FanOutStatus {
            consumer: arn.to_string(),
            unusable: None,
        };
        self.status.update(|status| status.fan_out = Some(shown));
        let mut registration = self.view.registration.subscribe();
        self.view
            .registration
            .send_replace(Registration::Usable(arn));
        let _ = registration
            .wait_for(|registration| !matches!(registration, Registration::Usable(_)))
            .await;
        usable.elapsed() >= GOOD_FOR
    }

    /// A consumer that is being made is not a failure, unless that takes far too long.
    fn not_ready(&self, state: &ConsumerState, asked: u32) {
        let doing = if *state == ConsumerState::Creating {
            "made"
        } else {
            "deleted"
        };
        let reason = format!("the consumer is still being {doing}");
        if asked >= READY_WITHIN_ASKS {
            self.unusable("not_ready", reason, asked - READY_WITHIN_ASKS + 1);
        } else {
            self.show(reason);
        }
    }

    /// Counted and logged once for each time that it becomes so; shown for as long as it is.
    fn unusable(&self, kind: &'static str, reason: String, failures: u32) {
        let is_news =
            self.view.registration.send_replace(Registration::Unusable) != Registration::Unusable;
        if is_news {
            let plugin = self.plugin_label.clone();
            ::metrics::counter!(metrics::FAN_OUT_FALLBACKS, "plugin" => plugin, "reason" => kind)
                .increment(1);
            tracing::warn!(
                consumer = %self.consumer,
                reason,
                code = "fan-out-unavailable",
                "enhanced fan-out is unavailable, polling for now"
            );
        } else {
            tracing::debug!(consumer = %self.consumer, reason, failures, "enhanced fan-out is \
                still unavailable");
        }
        self.show(reason);
    }

    fn show(&self, reason: String) {
        let shown = FanOutStatus {
            consumer: self.consumer.to_string(),
            unusable: Some(reason),
        };
        self.status.update(|status| status.fan_out = Some(shown));
    }
}

/// The reason of a fallback, as the metric has it.
fn why(error: &SubscribeError) -> &'static str {
    match error {
        SubscribeError::ConsumerNotFound { .. } => "not_found",
        SubscribeError::ConsumerLimit { .. } => "limit",
        SubscribeError::Refused { .. } => "refused",
        SubscribeError::InUse { .. }
        | SubscribeError::Throttled { .. }
        | SubscribeError::NotFound { .. }
        | SubscribeError::Unavailable { .. } => "unavailable",
    }
}
