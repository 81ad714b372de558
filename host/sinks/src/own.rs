//! The sinks that one plugin has written to, so that it never waits for a sink that only others
//! use.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use shardmill_core::ports::{Origin, PortFuture, Sink, SinkError};
use shardmill_core::stream::Emitted;

use super::Router;

/// A plugin's view of all sinks: it may emit to any of them, and flushes those that it has emitted
/// to.
pub struct OwnSinks {
    router: Arc<Router>,
    /// By name; added before they are written to. Never held across an await.
    used: Mutex<BTreeSet<String>>,
}

impl OwnSinks {
    /// A view that has emitted nothing yet.
    pub fn new(router: Arc<Router>) -> Self {
        Self {
            router,
            used: Mutex::default(),
        }
    }

    fn note(&self, emitted: &[Emitted]) {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        for piece in emitted {
            if !used.contains(&piece.destination) {
                used.insert(piece.destination.clone());
            }
        }
    }

    fn used(&self) -> BTreeSet<String> {
        self.used
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl Sink for OwnSinks {
    fn write(
        &self,
        origin: Arc<Origin>,
        emitted: Arc<Vec<Emitted>>,
    ) -> PortFuture<'_, Result<(), SinkError>> {
        self.note(&emitted);
        self.router.write(origin, emitted)
    }

    fn flush(&self) -> PortFuture<'_, Result<(), SinkError>> {
        Box::pin(async move {
            for name in self.used() {
                self.router.flush_one(&name).await?;
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use shardmill_core::plugin::PluginName;
    use shardmill_core::stream::ShardId;

    use super::*;
    use crate::router::Outlet;

    /// Takes everything and stores nothing.
    struct Broken;

    impl Sink for Broken {
        fn write(
            &self,
            _: Arc<Origin>,
            _: Arc<Vec<Emitted>>,
        ) -> PortFuture<'_, Result<(), SinkError>> {
            Box::pin(async { Ok(()) })
        }

        fn flush(&self) -> PortFuture<'_, Result<(), SinkError>> {
            Box::pin(async {
                Err(SinkError {
                    sink: "broken".to_owned(),
                    message: "disk full".to_owned(),
                })
            })
        }
    }

    /// Takes and stores everything.
    struct Sound;

    impl Sink for Sound {
        fn write(
            &self,
            _: Arc<Origin>,
            _: Arc<Vec<Emitted>>,
        ) -> PortFuture<'_, Result<(), SinkError>> {
            Box::pin(async { Ok(()) })
        }

        fn flush(&self) -> PortFuture<'_, Result<(), SinkError>> {
            Box::pin(async { Ok(()) })
        }
    }

    #[tokio::test]
    async fn a_sink_that_fails_holds_up_only_plugins_that_emit_to_it() {
        let mut router = Router::default();
        router.add("broken", Outlet::new(Arc::new(Broken)));
        router.add("sound", Outlet::new(Arc::new(Sound)));
        let router = Arc::new(router);
        let (first, second) = (OwnSinks::new(Arc::clone(&router)), OwnSinks::new(router));
        let origin = Arc::new(Origin {
            plugin: PluginName::new("plugin").unwrap(),
            shard: ShardId::new("shardId-000000000000").unwrap(),
            through: None,
            trace: None,
        });
        let emit = |destination: &str| {
            let (destination, key) = (destination.to_owned(), String::new());
            Arc::new(vec![Emitted {
                destination,
                key,
                data: "line".into(),
            }])
        };
        first
            .write(Arc::clone(&origin), emit("broken"))
            .await
            .unwrap();
        second.write(origin, emit("sound")).await.unwrap();
        assert!(first.flush().await.is_err());
        assert!(second.flush().await.is_ok());
    }
}
