//! Sends spans, some hundred at a time. Nobody waits for it.

use std::time::Duration;

use prost::Message;
use shardmill_core::backoff::Backoff;
use shardmill_core::trace::Span;
use tokio_util::sync::CancellationToken;

use super::collector::{Answer, Collector};
use super::message::{ExportRequest, Resource, ResourceSpans, Scope, ScopeSpans};
use super::metrics::{Dropped, count_dropped, count_sent};
use super::names::SCHEMA_URL;
use super::queue::Waiting;
use super::spans::message_of;

/// Spans of one request, as in OpenTelemetry's own batch processor.
const REQUEST_SPANS_MAX: usize = 512;
/// How long a span waits for others: somebody who looks for a trace waits as well.
const LINGER: Duration = Duration::from_secs(1);
/// Tries of one request. The queue fills meanwhile, and newer spans are worth as much.
const TRIES_MAX: u32 = 4;
/// The first wait and the longest: all tries together take some ten seconds, within which a
/// collector restarts.
const WAITS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(5));
/// Nobody may silence the exporter for longer at a time.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// See the module's description.
pub(super) struct Exporter {
    collector: Collector,
    waiting: Waiting,
    resource: Resource,
    trouble: Trouble,
}

/// What is said of a collector that takes nothing: once, and once when it is over.
#[derive(Default)]
struct Trouble {
    is_said: bool,
    dropped: u64,
}

impl Exporter {
    pub(super) fn new(collector: Collector, waiting: Waiting, resource: Resource) -> Self {
        Self {
            collector,
            waiting,
            resource,
            trouble: Trouble::default(),
        }
    }

    /// Where spans are sent to, for the log.
    pub(super) fn address(&self) -> String {
        self.collector.address()
    }

    /// Sends what comes until `stop`, and then what is left, each only once.
    pub(super) async fn run(mut self, stop: CancellationToken) {
        while let Some(spans) = self.collect(&stop).await {
            self.deliver(spans, &stop).await;
        }
    }

    /// The next spans to send; `None` if there are none and none are waited for any more.
    async fn collect(&mut self, stop: &CancellationToken) -> Option<Vec<Span>> {
        let mut spans = Vec::new();
        let first = self.waiting.take(&mut spans, REQUEST_SPANS_MAX);
        if stop.run_until_cancelled(first).await == Some(0) {
            return None;
        }
        let mut linger = std::pin::pin!(tokio::time::sleep(LINGER));
        while spans.len() < REQUEST_SPANS_MAX {
            let room = REQUEST_SPANS_MAX - spans.len();
            tokio::select! {
                biased;
                () = stop.cancelled() => {
                    self.waiting.take_ready(&mut spans, room);
                    break;
                }
                () = &mut linger => break,
                more = self.waiting.take(&mut spans, room) => if more == 0 { break },
            }
        }
        (!spans.is_empty()).then_some(spans)
    }

    /// Sends spans, several times if need be.
    async fn deliver(&mut self, spans: Vec<Span>, stop: &CancellationToken) {
        let count = spans.len() as u64;
        let body = bytes::Bytes::from(self.request(&spans).encode_to_vec());
        drop(spans);
        let backoff = Backoff::new(WAITS.0, WAITS.1).unwrap_or(Backoff::standard());
        for tried in 1..=TRIES_MAX {
            match self.collector.send(body.clone()).await {
                Answer::Taken { refused, problem } => {
                    return self.taken(count, refused.min(count), &problem);
                }
                Answer::Never { problem } => {
                    return self.trouble.lose(Dropped::Refused, count, &problem);
                }
                Answer::Later { problem, wait } => {
                    let pause = backoff.delay(tried, fastrand::f64());
                    let pause = pause.max(wait.unwrap_or_default()).min(PAUSE_MAX);
                    self.trouble.say(&problem);
                    let is_last = tried == TRIES_MAX || stop.is_cancelled();
                    let waited = stop.run_until_cancelled(tokio::time::sleep(pause));
                    if is_last || waited.await.is_none() {
                        return self.trouble.lose(Dropped::Unsent, count, &problem);
                    }
                }
            }
        }
    }

    fn taken(&mut self, sent: u64, refused: u64, problem: &str) {
        count_sent(sent - refused);
        if refused > 0 {
            self.trouble.lose(Dropped::Refused, refused, problem);
        } else {
            self.trouble.end();
        }
    }

    fn request(&self, spans: &[Span]) -> ExportRequest {
        let scope = Scope {
            name: "shardmill".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let spans = ScopeSpans {
            scope: Some(scope),
            spans: spans.iter().map(message_of).collect(),
            schema_url: SCHEMA_URL.to_owned(),
        };
        ExportRequest {
            resource_spans: vec![ResourceSpans {
                resource: Some(self.resource.clone()),
                scope_spans: vec![spans],
            }],
        }
    }
}

impl Trouble {
    fn say(&mut self, problem: &str) {
        if !self.is_said {
            self.is_said = true;
            tracing::warn!(
                problem,
                code = "spans-dropped",
                "the collector takes no spans; records are processed all the \
                same, and traces will be missing"
            );
        }
    }

    fn lose(&mut self, why: Dropped, spans: u64, problem: &str) {
        count_dropped(why, spans);
        self.dropped += spans;
        self.say(problem);
    }

    fn end(&mut self) {
        if std::mem::take(&mut self.is_said) {
            let dropped = std::mem::take(&mut self.dropped);
            tracing::info!(dropped, "the collector takes spans again");
        }
    }
}
