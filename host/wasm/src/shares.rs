//! What plugins share of a host's engine: memory for instances, memory for compiled code, and
//! threads to run on. Each plugin has its own share of each, which others cannot take.

pub(crate) mod code_budget;
pub(crate) mod memory_budget;
pub(crate) mod needs;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use shardmill_core::plugin::{PluginName, ProcessorError};
use shardmill_core::shares::Membership;
use shardmill_core::shares::pool::{Member, Pool};

use self::code_budget::{CodeBudget, CodeMember};
use self::memory_budget::{MemoryBudget, MemoryMember};

/// Concurrent calls that each plugin is guaranteed. On hosts with more plugins than this allows,
/// they share what there is.
const CALLS_FLOOR: usize = 16;

/// The shares of all plugins.
pub(crate) struct Shares {
    memory: MemoryBudget,
    code: CodeBudget,
    threads: Pool,
    // Held by versions and their instances: a plugin keeps its share while it is reloaded.
    plugins: Mutex<HashMap<PluginName, Weak<PluginShares>>>,
}

/// One plugin's shares, on all of its streams.
pub(crate) struct PluginShares {
    pub(crate) memory: MemoryMember,
    pub(crate) code: CodeMember,
    threads: Member,
}

impl Shares {
    /// `memory_bytes` for all instances, `code_bytes` for the code of all versions, `calls_max`
    /// calls at a time.
    pub(crate) fn new(memory_bytes: usize, code_bytes: usize, calls_max: usize) -> Self {
        Self {
            memory: MemoryBudget::new(memory_bytes),
            code: CodeBudget::new(code_bytes),
            threads: Pool::new(calls_max, CALLS_FLOOR),
            plugins: Mutex::default(),
        }
    }

    /// The shares of the plugin `name`.
    pub(crate) fn of(&self, name: &PluginName) -> Arc<PluginShares> {
        let mut plugins = self.plugins.lock().unwrap_or_else(PoisonError::into_inner);
        plugins.retain(|_, shares| shares.strong_count() > 0);
        if let Some(shares) = plugins.get(name).and_then(Weak::upgrade) {
            return shares;
        }
        let shares = Arc::new(PluginShares {
            memory: self.memory.join(),
            code: self.code.join(),
            threads: self.threads.join(Membership::Guaranteed),
        });
        plugins.insert(name.clone(), Arc::downgrade(&shares));
        shares
    }
}

impl PluginShares {
    /// Runs guest code on a blocking thread, in its turn. Async threads renew leases; some blocking
    /// threads are left for the host's own work, such as looking up names and writing files, and
    /// some for each other plugin.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        call: impl FnOnce() -> Result<T, ProcessorError> + Send + 'static,
    ) -> Result<T, ProcessorError> {
        let turn = self.threads.take(1).await;
        let call = move || {
            // Held until the call is over, even if its caller no longer waits.
            let _turn = turn;
            call()
        };
        let host = |error: tokio::task::JoinError| ProcessorError::Host {
            message: error.to_string(),
        };
        tokio::task::spawn_blocking(call).await.map_err(host)?
    }
}
