//! Traces of batches, sent to a collector over OTLP: protobuf over HTTP.
//!
//! Whoever has a span leaves it in a bounded queue and goes on; one task sends what is there. A
//! collector that is slow, down or refuses costs spans, which are counted, and nothing else.

mod carrying;
mod collector;
mod export;
mod message;
mod metrics;
mod names;
mod producers;
mod queue;
mod resource;
mod settings;
mod spans;
mod tracer;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use shardmill_config::Config;
use shardmill_core::ports::Tracer;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub(crate) use self::metrics::describe;

use self::collector::Collector;
use self::export::Exporter;
use self::settings::{Settings, Standard};
use self::tracer::OtlpTracer;

/// How long the last spans of a host may take to be sent, once all else has ended: a collector
/// answers within milliseconds, and no restart waits for one that does not.
const LAST_SPANS_WITHIN: Duration = Duration::from_secs(2);

/// Where traces go, and the task that sends them.
pub struct Traces {
    tracer: Arc<OtlpTracer>,
    exporter: Exporter,
}

impl Traces {
    /// `None` if nothing is traced. Sends nothing yet.
    ///
    /// # Errors
    /// A header's value cannot be read, or no client can be made.
    pub fn of(config: &Config) -> anyhow::Result<Option<Self>> {
        let standard = Standard::of_process();
        if !config.traces.is_enabled || standard.is_disabled() {
            return Ok(None);
        }
        let settings = Settings::new(&config.traces, &standard);
        for ignored in &settings.ignored {
            tracing::warn!(
                ignored,
                code = "otel-variable",
                "a variable of OpenTelemetry cannot be used"
            );
        }
        let resource = resource::of(&settings, config.worker_id.as_str());
        let collector = Collector::new(&settings).context("cannot send traces")?;
        let (queue, spans) = queue::bounded();
        Ok(Some(Self {
            tracer: Arc::new(OtlpTracer::new(&settings, queue)),
            exporter: Exporter::new(collector, spans, resource),
        }))
    }

    /// What takes spans over, for pipelines and sinks.
    pub fn tracer(&self) -> Arc<dyn Tracer> {
        Arc::clone(&self.tracer) as Arc<dyn Tracer>
    }

    /// Sends spans in a task, until [`Sending::finish`].
    pub fn send(self) -> Sending {
        let endpoint = self.exporter.address();
        tracing::info!(endpoint, "batches are traced");
        let stop = CancellationToken::new();
        let mut task = JoinSet::new();
        task.spawn(self.exporter.run(stop.clone()));
        Sending { stop, task }
    }
}

/// The task that sends spans. Ends with this.
pub struct Sending {
    stop: CancellationToken,
    task: JoinSet<()>,
}

impl Sending {
    /// Sends what is there, for a bounded time, and ends the task.
    pub async fn finish(self) {
        self.stop.cancel();
        let _ = tokio::time::timeout(LAST_SPANS_WITHIN, self.task.join_all()).await;
    }
}
