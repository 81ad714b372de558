//! Sends each piece of output to the sink that its destination names, and dead letters to the sink
//! that the failure policy names.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use shardmill_core::plugin::PluginName;
use shardmill_core::ports::{DeadLetter, DeadLetters, Origin, PortFuture, Sink, SinkError, Tracer};
use shardmill_core::stream::{Emitted, ShardId};
use shardmill_core::trace::TraceContext;

use super::metrics;
use super::unfinished::Unfinished;
use super::write_span::WriteSpan;
use crate::letters::{LetterTarget, Rooms, Storing};

/// All sinks of a host, by name.
#[derive(Default)]
pub struct Router {
    outlets: BTreeMap<String, Outlet>,
    unfinished: Unfinished<(PluginName, ShardId), Emitted, VecDeque<Part>>,
    unfinished_letters: Unfinished<LetterSource, DeadLetter, Storing>,
    rooms: Rooms,
    tracer: Option<Arc<dyn Tracer>>,
}

/// A sink, and how dead letters go there.
#[derive(Clone)]
pub(crate) struct Outlet {
    /// For what plugins emit.
    pub(crate) sink: Arc<dyn Sink>,
    /// For dead letters, if they must not go through the format that is set for output.
    pub(crate) letters: Option<Arc<dyn Sink>>,
    /// Longest line that can be stored, if there is a limit.
    pub(crate) line_bytes_max: Option<usize>,
    /// Whether requests name the span that they belong to.
    pub(crate) names_spans: bool,
}

/// The pieces of a batch that go to one sink. Kept unchanged between tries, so that the sink
/// recognizes it.
type Part = Arc<Vec<Emitted>>;
/// The target, and the plugin and shard that the letters come from.
type LetterSource = (String, PluginName, ShardId);

// === impl Outlet ===

impl Outlet {
    /// A sink that takes lines of any length, and dead letters as they are.
    pub(crate) fn new(sink: Arc<dyn Sink>) -> Self {
        Self {
            sink,
            letters: None,
            line_bytes_max: None,
            names_spans: false,
        }
    }

    /// Whether a line of so many bytes can be stored for certain when something is added to it,
    /// however it is written: as text within an envelope, quotes take two bytes.
    fn has_room_beside(&self, bytes: usize) -> bool {
        self.line_bytes_max.is_none_or(|most| bytes <= most / 4)
    }

    fn for_letters(&self) -> &dyn Sink {
        self.letters.as_deref().unwrap_or(&*self.sink)
    }
}

// === impl Router ===

impl Router {
    /// The same sinks, whose writes are reported to `tracer` if their batches are traced.
    #[must_use]
    pub fn traced_by(mut self, tracer: Option<Arc<dyn Tracer>>) -> Self {
        self.tracer = tracer;
        self
    }

    /// Adds a sink under a name; a later one of the same name replaces it.
    pub(crate) fn add(&mut self, name: &str, outlet: Outlet) {
        self.outlets.insert(name.to_owned(), outlet);
    }

    /// The names that plugins may emit to, and that dead letters may go to.
    pub fn names(&self) -> Vec<String> {
        self.outlets.keys().cloned().collect()
    }

    fn find(&self, name: &str) -> Result<&Outlet, SinkError> {
        // The host function refuses unknown destinations, so this is a mistake of the host, not of
        // the plugin.
        self.outlets.get(name).ok_or_else(|| SinkError {
            sink: name.to_owned(),
            message: "no sink of this name is configured".to_owned(),
        })
    }

    fn letter_target<'a>(
        &'a self,
        name: &'a str,
        plugin: &PluginName,
    ) -> Result<LetterTarget<'a>, SinkError> {
        let outlet = self.find(name)?;
        Ok(LetterTarget {
            name,
            sink: outlet.for_letters(),
            line_bytes_max: outlet.line_bytes_max,
            room: self.rooms.of(plugin),
        })
    }

    /// Returns once all that was written to the sink of that name is stored.
    pub(super) async fn flush_one(&self, name: &str) -> Result<(), SinkError> {
        self.find(name)?.sink.flush().await
    }

    /// Writes the parts in turn, and takes them out of `parts` once they are stored.
    async fn write_parts(
        &self,
        origin: &Arc<Origin>,
        parts: &mut VecDeque<Part>,
    ) -> Result<(), SinkError> {
        while let Some(part) = parts.front() {
            if let Some(first) = part.first() {
                let outlet = self.find(&first.destination)?;
                let written = match self.span_of(origin, outlet) {
                    Some(span) => span.write(&*outlet.sink, origin, part).await,
                    None => {
                        outlet
                            .sink
                            .write(Arc::clone(origin), Arc::clone(part))
                            .await
                    }
                };
                written?;
            }
            parts.pop_front();
        }
        Ok(())
    }
}

impl Router {
    /// The span of one write, if its batch is traced.
    fn span_of(&self, origin: &Origin, outlet: &Outlet) -> Option<WriteSpan> {
        let tracer = self.tracer.as_ref()?;
        let batch = origin.trace.as_ref()?;
        Some(WriteSpan::begin(tracer, batch, outlet.names_spans))
    }

    /// The pieces by sink, with the batch's span written into them if that is wanted: once, so that
    /// a sink recognizes a part that it was given before.
    fn parts(&self, origin: &Origin, emitted: &Arc<Vec<Emitted>>) -> VecDeque<Part> {
        let (Some(tracer), Some(trace)) = (&self.tracer, &origin.trace) else {
            return by_destination(emitted);
        };
        let carrying = |piece: &Emitted| self.carrying(&**tracer, piece, trace.context);
        let carrying: Vec<Option<Bytes>> = emitted.iter().map(carrying).collect();
        if carrying.iter().all(Option::is_none) {
            return by_destination(emitted);
        }
        let mut pieces = Vec::clone(emitted);
        for (piece, carrying) in pieces.iter_mut().zip(carrying) {
            if let Some(carrying) = carrying {
                piece.data = carrying;
            }
        }
        by_destination(&Arc::new(pieces))
    }

    fn carrying(
        &self,
        tracer: &dyn Tracer,
        piece: &Emitted,
        context: TraceContext,
    ) -> Option<Bytes> {
        let outlet = self.outlets.get(&piece.destination)?;
        if !outlet.has_room_beside(piece.data.len()) {
            return None;
        }
        tracer.carrying(&piece.data, context)
    }
}

impl Sink for Router {
    fn write(
        &self,
        origin: Arc<Origin>,
        emitted: Arc<Vec<Emitted>>,
    ) -> PortFuture<'_, Result<(), SinkError>> {
        Box::pin(async move {
            let source = (origin.plugin.clone(), origin.shard.clone());
            let earlier = self.unfinished.take(&source, &emitted);
            let mut parts = earlier.unwrap_or_else(|| self.parts(&origin, &emitted));
            let written = self.write_parts(&origin, &mut parts).await;
            if written.is_err() && !are_all_of(&emitted, &parts) {
                self.unfinished.keep(source, &emitted, parts);
            }
            written
        })
    }

    fn flush(&self) -> PortFuture<'_, Result<(), SinkError>> {
        Box::pin(async move {
            for outlet in self.outlets.values() {
                outlet.sink.flush().await?;
            }
            Ok(())
        })
    }
}

impl DeadLetters for Router {
    fn store<'a>(
        &'a self,
        target: &'a str,
        letters: Arc<Vec<DeadLetter>>,
    ) -> PortFuture<'a, Result<(), SinkError>> {
        Box::pin(async move {
            let Some(first) = letters.first() else {
                return Ok(());
            };
            let source = (target.to_owned(), first.plugin.clone(), first.shard.clone());
            let target = self.letter_target(target, &first.plugin)?;
            let earlier = self.unfinished_letters.take(&source, &letters);
            let mut storing = earlier.unwrap_or_default();
            if let Err(error) = storing.finish(&target, &letters).await {
                self.unfinished_letters.keep(source, &letters, storing);
                return Err(error);
            }
            count_letters(target.name, &letters);
            Ok(())
        })
    }
}

fn count_letters(target: &str, letters: &[DeadLetter]) {
    for letter in letters {
        let labels = [
            ("sink", target.to_owned()),
            ("plugin", letter.plugin.to_string()),
        ];
        ::metrics::counter!(metrics::DEAD_LETTERS, &labels).increment(1);
    }
}

/// Whether what is left is the batch itself: the next try finds that again, and whoever keeps it
/// would keep it alive when its owner has dropped it.
fn are_all_of(emitted: &Part, parts: &VecDeque<Part>) -> bool {
    parts.iter().any(|part| Arc::ptr_eq(part, emitted))
}

/// One part for each destination, each in the order of the batch.
fn by_destination(emitted: &Arc<Vec<Emitted>>) -> VecDeque<Part> {
    let Some(first) = emitted.first() else {
        return VecDeque::new();
    };
    if emitted
        .iter()
        .all(|piece| piece.destination == first.destination)
    {
        return VecDeque::from([Arc::clone(emitted)]);
    }
    let mut by_destination: BTreeMap<&str, Vec<Emitted>> = BTreeMap::new();
    for piece in emitted.iter() {
        by_destination
            .entry(&piece.destination)
            .or_default()
            .push(piece.clone());
    }
    by_destination.into_values().map(Arc::new).collect()
}

#[cfg(test)]
mod tests;
