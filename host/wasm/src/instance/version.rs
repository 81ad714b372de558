//! A version of a plugin, as its instances know it.

use std::sync::Arc;
use std::time::Duration;

use shardmill_core::plugin::{PluginDigest, PluginName};

use crate::Runtime;
use crate::bindings::PluginPre;
use crate::instance::state::InstanceState;
use crate::instance::state_exports::StateExports;
use crate::marks::Newcomer;
use crate::output::PluginOutput;
use crate::shares::PluginShares;
use crate::shares::needs::Needs;

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
    pub(crate) name: PluginName,
    pub(crate) digest: PluginDigest,
    pub(crate) contract: String,
    pub(crate) size: usize,
    pub(crate) compile_time: Duration,
}

impl Version {
    pub(crate) fn name(&self) -> &PluginName {
        &self.name
    }
}
