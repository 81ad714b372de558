//! Where a host's outputs and dead letters go: what is stored outlives the host, what is only
//! accepted does not.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use shardmill_core::ports::{DeadLetter, DeadLetters, Origin, PortFuture, Sink, SinkError};
use shardmill_core::stream::Emitted;
use shardmill_invariants::history::What;

use crate::bugs::PortBug;
use crate::plugin::place_of;
use crate::poison::DEAD_LETTER_SINK;
use crate::weather::Fault;
use crate::world::{World, lock};

/// The plugin's configuration value that makes it emit.
pub const EMITS: &str = "emits";

/// The plugin's configuration value that has it called because time has passed.
pub const TICKS: &str = "ticks";

/// The sinks of one host; they refuse as the weather has it.
pub struct SimulatedSink {
    world: Arc<World>,
    bug: Option<PortBug>,
    accepted: Mutex<Vec<u64>>,
}

/// An output that a sink knows again.
pub fn emitted(id: u64) -> Emitted {
    Emitted {
        destination: "out".to_owned(),
        key: String::new(),
        data: Bytes::from(id.to_string()),
    }
}

fn id_of(emitted: &Emitted) -> u64 {
    let text = std::str::from_utf8(&emitted.data).expect("as emitted");
    text.parse().expect("as emitted")
}

impl SimulatedSink {
    /// Sinks with `bug`, if it is one of theirs.
    pub fn new(world: Arc<World>, bug: Option<PortBug>) -> Self {
        Self {
            world,
            bug,
            accepted: Mutex::default(),
        }
    }

    async fn answer(&self) -> Result<(), SinkError> {
        tokio::time::sleep(Duration::from_millis(1)).await;
        if self.world.strikes(Fault::SinkError) {
            return Err(SinkError {
                sink: "out".to_owned(),
                message: "not now".to_owned(),
            });
        }
        Ok(())
    }

    async fn accept(&self, emitted: Arc<Vec<Emitted>>) -> Result<(), SinkError> {
        self.answer().await?;
        let mut accepted = lock(&self.accepted);
        for id in emitted.iter().map(id_of) {
            let is_dropped = self.bug == Some(PortBug::DropsOutput) && id % 10 == 0;
            if !is_dropped {
                accepted.push(id);
            }
        }
        Ok(())
    }

    async fn store(&self) -> Result<(), SinkError> {
        let answer = self.answer().await;
        let mut accepted = lock(&self.accepted);
        if accepted.is_empty() || self.bug == Some(PortBug::FlushStoresNothing) {
            return answer;
        }
        // A sink over a network may have stored some of what it did not acknowledge.
        let count = if answer.is_ok() {
            accepted.len()
        } else {
            self.world.dice().usize(..=accepted.len())
        };
        for output in accepted.iter().take(count) {
            self.world.note(What::Stored { output: *output });
        }
        if answer.is_ok() {
            accepted.clear();
            self.world.count("reached: output stored");
        }
        answer
    }
}

impl Sink for SimulatedSink {
    fn write(
        &self,
        _: Arc<Origin>,
        emitted: Arc<Vec<Emitted>>,
    ) -> PortFuture<'_, Result<(), SinkError>> {
        Box::pin(self.accept(emitted))
    }

    fn flush(&self) -> PortFuture<'_, Result<(), SinkError>> {
        Box::pin(self.store())
    }
}

impl DeadLetters for SimulatedSink {
    fn store<'a>(
        &'a self,
        sink: &'a str,
        letters: Arc<Vec<DeadLetter>>,
    ) -> PortFuture<'a, Result<(), SinkError>> {
        Box::pin(async move {
            assert_eq!(sink, DEAD_LETTER_SINK);
            self.answer().await?;
            let chance = self.world.weather().chance(Fault::DeadLetterError);
            let is_refused = self.world.happens(chance);
            // A sink over a network may have stored what it did not acknowledge.
            if !is_refused || self.world.dice().bool() {
                for letter in letters.iter() {
                    let (shard, at) = (letter.shard.to_string(), place_of(&letter.record.position));
                    self.world.note(What::DeadLettered { shard, at });
                }
            }
            if is_refused {
                self.world.count("fault: DeadLetterError");
                return Err(SinkError {
                    sink: sink.to_owned(),
                    message: "not now".to_owned(),
                });
            }
            Ok(())
        })
    }
}
