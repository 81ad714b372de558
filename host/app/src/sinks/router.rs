//! Sends each piece of output to the sink that its destination names.

use std::collections::BTreeMap;
use std::sync::Arc;

use shardmill_core::ports::{Origin, PortFuture, Sink, SinkError};
use shardmill_core::stream::Emitted;

/// All sinks of a host, by name.
#[derive(Clone, Default)]
pub struct Router {
    sinks: BTreeMap<String, Arc<dyn Sink>>,
}

impl Router {
    /// Adds a sink under a name; a later one of the same name replaces it.
    pub fn add(&mut self, name: &str, sink: Arc<dyn Sink>) {
        self.sinks.insert(name.to_owned(), sink);
    }

    /// The names that plugins may emit to.
    pub fn names(&self) -> Vec<String> {
        self.sinks.keys().cloned().collect()
    }

    fn find(&self, name: &str) -> Result<&Arc<dyn Sink>, SinkError> {
        // The host function refuses unknown destinations, so this is a mistake of the host, not of the plugin.
        self.sinks.get(name).ok_or_else(|| SinkError {
            sink: name.to_owned(),
            message: "no sink of this name is configured".to_owned(),
        })
    }
}

impl Sink for Router {
    fn write(&self, origin: Arc<Origin>, emitted: Arc<Vec<Emitted>>) -> PortFuture<'_, Result<(), SinkError>> {
        Box::pin(async move {
            let Some(first) = emitted.first() else { return Ok(()) };
            if emitted.iter().all(|piece| piece.destination == first.destination) {
                return self.find(&first.destination)?.write(origin, emitted).await;
            }
            let mut by_destination: BTreeMap<&str, Vec<Emitted>> = BTreeMap::new();
            for piece in emitted.iter() {
                by_destination.entry(&piece.destination).or_default().push(piece.clone());
            }
            for (destination, pieces) in by_destination {
                self.find(destination)?.write(Arc::clone(&origin), Arc::new(pieces)).await?;
            }
            Ok(())
        })
    }

    fn flush(&self) -> PortFuture<'_, Result<(), SinkError>> {
        Box::pin(async move {
            for sink in self.sinks.values() {
                sink.flush().await?;
            }
            Ok(())
        })
    }
}
