//! One version of a plugin: compiled, linked, and ready to be instantiated for any number of shards.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use shardmill_core::plugin::{PluginDigest, PluginName, ProcessorError};
use shardmill_core::ports::{InstanceContext, PortFuture, ProcessorFactory, RecordProcessor};

use crate::Runtime;
use crate::bindings::PluginPre;
use crate::host_functions::PluginOutput;
use crate::instance::Instance;
use crate::instance_state::InstanceState;
use crate::marks::Newcomer;
use crate::needs::Needs;
use crate::plugin_shares::PluginShares;
use crate::runtime::Compiled;
use crate::state_exports::StateExports;

/// One version of a plugin. Cheap to clone; instances keep what they need of it.
#[derive(Clone)]
pub struct Plugin {
    version: Arc<Version>,
}

/// What every instance of a version shares.
pub(crate) struct Version {
    pub(crate) pre: PluginPre<InstanceState>,
    pub(crate) state: Option<StateExports>,
    /// Bytes of one instance outside of its memories and tables.
    pub(crate) instance_bytes: usize,
    pub(crate) output: Arc<PluginOutput>,
    pub(crate) needs: Needs,
    pub(crate) shares: Arc<PluginShares>,
    /// Marks its calls for as long as nothing is known of it.
    pub(crate) newcomer: Arc<Newcomer>,
    /// Keeps the epoch moving for as long as an instance may run.
    pub(crate) runtime: Runtime,
    name: PluginName,
    digest: PluginDigest,
    contract: String,
    size: usize,
    compile_time: Duration,
}

impl Plugin {
    pub(crate) fn new(
        runtime: Runtime,
        name: PluginName,
        digest: PluginDigest,
        size: usize,
        compiled: Compiled,
        newcomer: Arc<Newcomer>,
    ) -> Self {
        let output = runtime.output_of(&name, runtime.limits());
        let shares = runtime.shares_of(&name);
        let Compiled { pre, state, instance_bytes, contract, compile_time } = compiled;
        let needs = Needs::default();
        let version = Version {
            pre,
            state,
            instance_bytes,
            output,
            needs,
            shares,
            newcomer,
            runtime,
            name,
            digest,
            contract,
            size,
            compile_time,
        };
        Self { version: Arc::new(version) }
    }

    /// The plugin's name.
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

impl Version {
    pub(crate) fn name(&self) -> &PluginName {
        &self.name
    }
}

impl ProcessorFactory for Plugin {
    fn digest(&self) -> &PluginDigest {
        &self.version.digest
    }

    fn saves_state(&self) -> bool {
        self.version.state.is_some()
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
        Box::pin(
            async move { Ok(Box::new(Instance::start(version, context, state).await?) as Box<dyn RecordProcessor>) },
        )
    }
}

impl std::fmt::Debug for Plugin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}@{}", self.version.name, self.version.digest)
    }
}
