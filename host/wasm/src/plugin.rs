//! One version of a plugin: compiled, linked, and ready to be instantiated for any number of
//! shards.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use shardmill_core::plugin::{PluginDigest, PluginName, ProcessorError};
use shardmill_core::ports::{InstanceContext, PortFuture, ProcessorFactory, RecordProcessor};

use crate::instance::Instance;
use crate::instance::version::Version;

/// One version of a plugin. Cheap to clone; instances keep what they need of it.
#[derive(Clone)]
pub struct Plugin {
    version: Arc<Version>,
}

impl Plugin {
    pub(crate) fn new(version: Arc<Version>) -> Self {
        Self { version }
    }

    /// The plugin's name: its file's, without `.wasm`.
    pub fn name(&self) -> &PluginName {
        &self.version.name
    }

    /// The component's size in bytes.
    pub fn size(&self) -> usize {
        self.version.size
    }

    /// How long compiling took; next to nothing when it came from the cache.
    pub fn compile_time(&self) -> Duration {
        self.version.compile_time
    }
}

impl ProcessorFactory for Plugin {
    fn digest(&self) -> &PluginDigest {
        &self.version.digest
    }

    fn saves_state(&self) -> bool {
        self.version.state.is_some()
    }

    fn ticks(&self) -> bool {
        self.version.ticker.is_some()
    }

    fn contract(&self) -> Option<&str> {
        Some(&self.version.contract)
    }

    fn instantiate(
        &self,
        context: Arc<InstanceContext>,
        state: Option<Bytes>,
    ) -> PortFuture<'_, Result<Box<dyn RecordProcessor>, ProcessorError>> {
        let version = Arc::clone(&self.version);
        Box::pin(async move {
            Ok(Box::new(Instance::start(version, context, state).await?)
                as Box<dyn RecordProcessor>)
        })
    }
}

impl std::fmt::Debug for Plugin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}@{}", self.version.name, self.version.digest)
    }
}
