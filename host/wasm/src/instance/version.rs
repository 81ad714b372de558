//! A version of a plugin, as its instances know it.

use std::sync::Arc;
use std::time::Duration;

use shardmill_core::plugin::{PluginDigest, PluginName, ProcessorError};

use super::bulk_export::BulkExport;
use super::host::InstanceHost;
use super::state::InstanceState;
use super::state_exports::StateExports;
use super::ticker_export::TickerExport;
use crate::bindings::PluginPre;
use crate::marks::Newcomer;
use crate::metrics;
use crate::output::PluginOutput;
use crate::shares::PluginShares;
use crate::shares::code_budget::HeldCode;
use crate::shares::needs::Needs;

/// What every instance of a version shares.
pub(crate) struct Version {
    pub(crate) pre: PluginPre<InstanceState>,
    pub(crate) state: Option<StateExports>,
    pub(crate) bulk: Option<BulkExport>,
    pub(crate) ticker: Option<TickerExport>,
    /// Bytes of one instance outside of its memories and tables.
    pub(crate) instance_bytes: usize,
    /// The plugin's share of memory for code, which the version gives back at its end.
    pub(crate) _code: HeldCode,
    pub(crate) output: Arc<PluginOutput>,
    pub(crate) needs: Needs,
    pub(crate) shares: Arc<PluginShares>,
    /// Marks its calls for as long as nothing is known of it.
    pub(crate) newcomer: Arc<Newcomer>,
    pub(crate) host: Arc<InstanceHost>,
    pub(crate) name: PluginName,
    pub(crate) digest: PluginDigest,
    pub(crate) contract: String,
    pub(crate) size: usize,
    pub(crate) compile_time: Duration,
}

impl Version {
    /// Counts a call that failed because all instances together had no memory left.
    pub(crate) fn count_denial(&self, error: &ProcessorError) {
        if matches!(error, ProcessorError::HostMemory { .. }) {
            ::metrics::counter!(metrics::MEMORY_DENIED, "plugin" => self.name.to_string())
                .increment(1);
        }
    }
}
