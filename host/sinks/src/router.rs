//! Sends each piece of output to the sink that its destination names, and dead letters to the sink
//! that is named.

use std::collections::BTreeMap;
use std::sync::Arc;

use shardmill_core::plugin::PluginName;
use shardmill_core::ports::{DeadLetter, DeadLetters, Origin, PortFuture, Sink, SinkError};
use shardmill_core::stream::{Emitted, ShardId};

use super::metrics;
use super::unfinished::Unfinished;
use crate::letters::{Rooms, Storing, Way};

/// All sinks of a host, by name.
#[derive(Default)]
pub struct Router {
    outlets: BTreeMap<String, Outlet>,
    unfinished: Unfinished<(PluginName, ShardId), Emitted, Vec<Part>>,
    unfinished_letters: Unfinished<LetterSource, DeadLetter, Storing>,
    rooms: Rooms,
}

/// A sink, and what dead letters need to know of it.
#[derive(Clone)]
pub struct Outlet {
    /// For what plugins emit.
    pub sink: Arc<dyn Sink>,
    /// For dead letters, if they must not go through the format that is set for output.
    pub letters: Option<Arc<dyn Sink>>,
    /// Longest line that can be stored, if there is a limit.
    pub line_bytes_max: Option<usize>,
}

/// What of a batch goes to one sink. Kept as it is between tries, so that the sink knows it again.
type Part = Arc<Vec<Emitted>>;
/// The target, and whose letters they are.
type LetterSource = (String, PluginName, ShardId);

// === impl Outlet ===

impl Outlet {
    /// A sink that takes lines of any length, and dead letters as they are.
    pub fn new(sink: Arc<dyn Sink>) -> Self {
        Self {
            sink,
            letters: None,
            line_bytes_max: None,
        }
    }

    fn for_letters(&self) -> &dyn Sink {
        self.letters.as_deref().unwrap_or(&*self.sink)
    }
}

// === impl Router ===

impl Router {
    /// Adds a sink under a name; a later one of the same name replaces it.
    pub fn add(&mut self, name: &str, outlet: Outlet) {
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

    /// Returns once all that was written to the sink of that name is stored.
    pub(super) async fn flush_one(&self, name: &str) -> Result<(), SinkError> {
        self.find(name)?.sink.flush().await
    }

    /// Writes the parts in turn. What is left when one fails is given back with the error.
    async fn write_parts(
        &self,
        origin: &Arc<Origin>,
        parts: Vec<Part>,
    ) -> Result<(), (Vec<Part>, SinkError)> {
        let mut parts = parts.into_iter();
        while let Some(part) = parts.next() {
            let Some(first) = part.first() else { continue };
            let written = match self.find(&first.destination) {
                Ok(outlet) => {
                    outlet
                        .sink
                        .write(Arc::clone(origin), Arc::clone(&part))
                        .await
                }
                Err(error) => Err(error),
            };
            if let Err(error) = written {
                return Err((std::iter::once(part).chain(parts).collect(), error));
            }
        }
        Ok(())
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
            let parts = self
                .unfinished
                .take(&source, &emitted)
                .unwrap_or_else(|| by_destination(&emitted));
            self.write_parts(&origin, parts)
                .await
                .map_err(|(left, error)| {
                    self.unfinished.keep(source, &emitted, left);
                    error
                })
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
            let outlet = self.find(target)?;
            let way = Way {
                sink: outlet.for_letters(),
                target,
                line_bytes_max: outlet.line_bytes_max,
                room: self.rooms.of(&first.plugin),
            };
            let source = (target.to_owned(), first.plugin.clone(), first.shard.clone());
            let earlier = self.unfinished_letters.take(&source, &letters);
            let mut storing = earlier.unwrap_or_default();
            if let Err(error) = storing.finish(&way, &letters).await {
                self.unfinished_letters.keep(source, &letters, storing);
                return Err(error);
            }
            for letter in letters.iter() {
                let labels = [
                    ("sink", target.to_owned()),
                    ("plugin", letter.plugin.to_string()),
                ];
                ::metrics::counter!(metrics::DEAD_LETTERS, &labels).increment(1);
            }
            Ok(())
        })
    }
}

/// One part for each destination, each in the order of the batch.
fn by_destination(emitted: &Arc<Vec<Emitted>>) -> Vec<Part> {
    let Some(first) = emitted.first() else {
        return Vec::new();
    };
    if emitted
        .iter()
        .all(|piece| piece.destination == first.destination)
    {
        return vec![Arc::clone(emitted)];
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
