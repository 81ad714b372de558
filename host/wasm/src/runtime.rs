//! The engine with everything around it that all plugins share.

mod inspection;
mod loading;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use shardmill_core::plugin::{GuestLimits, PluginDigest, PluginName};
use tokio::sync::Semaphore;
use wasmtime::component::Linker;

use crate::bindings::PluginPre;
use crate::blocking::blocking;
use crate::engine::code_cache::CodeCache;
use crate::imports::add_to_linker;
use crate::instance::bulk_export::BulkExport;
use crate::instance::host::InstanceHost;
use crate::instance::state::InstanceState;
use crate::instance::state_exports::StateExports;
use crate::instance::ticker_export::TickerExport;
use crate::instance::version::Version;
use crate::output::{LogLines, MeasurementNames, PluginOutput};
use crate::shares::{PluginShares, Shares};
use crate::{CompileLimits, Compiler, EngineError, HttpOptions, LoadError, Marks, Metering};

pub use inspection::{InspectedImport, Inspection};

/// Concurrent guest calls, each on its own thread. The host must have some more blocking threads
/// than this.
pub const GUEST_CALLS_MAX: usize = 512;
/// Compilations at once. One: it may use every core that it is given, and a temporary cache is
/// emptied after each.
const COMPILATIONS_MAX: usize = 1;

/// Names of plugins, over the life of the process, that may measure. What was measured stays on the
/// page of metrics, so files that come and go under new names would make it grow for ever.
const MEASURING_PLUGINS_MAX: usize = 256;

/// What the engine is started with.
#[derive(Debug, Clone)]
pub struct RuntimeOptions {
    /// Where compiled code is kept between runs, private to this user; `None` compiles each time.
    pub cache_dir: Option<PathBuf>,
    /// Limits of every instance whose context names no others, and of a plugin's log lines.
    pub limits: GuestLimits,
    /// How components are compiled.
    pub compiler: Compiler,
    /// What compiling one component may cost.
    pub compile_limits: CompileLimits,
    /// Linear memory of all instances together, in bytes.
    pub instances_memory_bytes: usize,
    /// Compiled code of all loaded versions together, in bytes.
    pub code_memory_bytes: usize,
    /// Calls of guests at once; see [`GUEST_CALLS_MAX`].
    pub calls_max: usize,
    /// What holds for the HTTP requests of plugins that may make any.
    pub http: HttpOptions,
    /// What bounds a call. By fuel, code differs from what the compiler in another process makes:
    /// this process compiles.
    pub metering: Metering,
    /// Where the log lines of guests go.
    pub log_lines: LogLines,
    /// What is remembered of versions that a host died of. Nothing.
    pub marks: Marks,
}

impl Default for RuntimeOptions {
    fn default() -> Self {
        Self {
            cache_dir: None,
            limits: GuestLimits::default(),
            compiler: Compiler::default(),
            compile_limits: CompileLimits::default(),
            // 16 instances at the limit of one, or some 900 small ones.
            instances_memory_bytes: 1 << 30,
            // Commands load what they were told to; a host sets its own limit.
            code_memory_bytes: 1 << 40,
            calls_max: GUEST_CALLS_MAX,
            http: HttpOptions::default(),
            metering: Metering::default(),
            log_lines: LogLines::default(),
            marks: Marks::default(),
        }
    }
}

/// Compiles plugins. Cheap to clone; the engine stops with the last clone and the last instance.
#[derive(Clone)]
pub struct Runtime {
    shared: Arc<Shared>,
}

struct Shared {
    host: Arc<InstanceHost>,
    linker: Linker<InstanceState>,
    /// None if nothing is kept and this process compiles.
    code_cache: Option<CodeCache>,
    compilations: Semaphore,
    shares: Shares,
    // Outlives versions: a plugin gets no new budget by being reloaded.
    outputs: Mutex<HashMap<PluginName, Arc<PluginOutput>>>,
    measurement_names: Arc<MeasurementNames>,
    /// Versions that somebody still has: the same bytes are compiled and charged for once.
    loaded: Mutex<HashMap<(PluginName, PluginDigest), Weak<Version>>>,
    compiler: Compiler,
    compile_limits: CompileLimits,
    marks: Marks,
}

/// A component that fits the contract.
pub(crate) struct Compiled {
    pub(crate) contract: String,
    pub(crate) pre: PluginPre<InstanceState>,
    pub(crate) state: Option<StateExports>,
    pub(crate) bulk: Option<BulkExport>,
    pub(crate) ticker: Option<TickerExport>,
    /// Bytes of one instance outside of its memories and tables.
    pub(crate) instance_bytes: usize,
    pub(crate) code_bytes: usize,
    pub(crate) compile_time: Duration,
}

impl Runtime {
    /// Starts the engine, its clock and its caches. Fails if the engine or the code cache cannot be
    /// set up.
    pub fn new(options: RuntimeOptions) -> Result<Self, EngineError> {
        let code_cache = open_code_cache(&options)?;
        let cache = code_cache.as_ref().map(|code| code.cache().clone());
        let host = InstanceHost::start(
            cache,
            options.metering,
            options.limits,
            options.http,
            options.log_lines,
        )?;
        let mut linker = Linker::new(host.engine());
        add_to_linker(&mut linker).map_err(|error| EngineError::Engine(format!("{error:#}")))?;
        let shared = Shared {
            host: Arc::new(host),
            linker,
            code_cache,
            compilations: Semaphore::new(COMPILATIONS_MAX),
            shares: Shares::new(
                options.instances_memory_bytes,
                options.code_memory_bytes,
                options.calls_max,
            ),
            outputs: Mutex::default(),
            measurement_names: Arc::default(),
            loaded: Mutex::default(),
            compiler: options.compiler,
            compile_limits: options.compile_limits,
            marks: options.marks,
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    /// What is remembered of versions that a host died of.
    pub fn marks(&self) -> &Marks {
        &self.shared.marks
    }

    /// How often compiled code was found in the cache, and how often this process compiled and put
    /// it there.
    pub fn cache_hits_and_misses(&self) -> (usize, usize) {
        let cache = self.shared.code_cache.as_ref().map(CodeCache::cache);
        cache.map_or((0, 0), |cache| (cache.cache_hits(), cache.cache_misses()))
    }

    /// Fuel that calls of `process` took so far, over all instances; 0 unless metered by
    /// [`Metering::Fuel`].
    pub fn fuel_used(&self) -> u64 {
        self.shared.host.fuel_used()
    }

    fn shares_of(&self, name: &PluginName) -> Arc<PluginShares> {
        self.shared.shares.of(name)
    }

    fn output_of(&self, name: &PluginName) -> Arc<PluginOutput> {
        let mut outputs = self
            .shared
            .outputs
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let limits = self.shared.host.limits();
        if let Some(output) = outputs.get(name) {
            return Arc::clone(output);
        }
        // What may not measure is forgotten with its last version.
        outputs.retain(|_, output| output.may_measure() || Arc::strong_count(output) > 1);
        let measuring = outputs.values().filter(|output| output.may_measure());
        let output = if measuring.count() < MEASURING_PLUGINS_MAX {
            let names = Arc::clone(&self.shared.measurement_names);
            Arc::new(PluginOutput::new(limits, names))
        } else {
            Arc::new(PluginOutput::without_measurements(limits))
        };
        outputs.insert(name.clone(), Arc::clone(&output));
        output
    }
}

fn open_code_cache(options: &RuntimeOptions) -> Result<Option<CodeCache>, EngineError> {
    Ok(match (&options.cache_dir, &options.compiler) {
        (Some(directory), _) => Some(CodeCache::open(directory)?),
        (None, Compiler::Child(_)) => Some(CodeCache::temporary()?),
        (None, Compiler::InProcess) => None,
    })
}

/// Off the async threads, which renew leases.
async fn on_blocking_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, LoadError> {
    blocking(work)
        .await
        .map_err(|message| LoadError::Host { message })
}
