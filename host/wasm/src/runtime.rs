//! The engine with everything around it that all plugins share.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use sha2::{Digest, Sha256};
use shardmill_core::plugin::{GuestLimits, PluginDigest, PluginName};
use tokio::sync::Semaphore;
use wasmtime::Engine;
use wasmtime::component::{Component, Linker};

use crate::bindings::PluginPre;
use crate::engine::{Ticker, new_engine};
use crate::host_functions::{PluginOutput, add_to_linker};
use crate::instance_state::InstanceState;
use crate::state_exports::StateExports;
use crate::world::World;
use crate::{EngineError, Inspection, LoadError, Metering, Plugin, signatures};

/// What the engine is started with.
#[derive(Debug, Clone)]
pub struct RuntimeOptions {
    /// Where compiled code is kept between runs, private to this user; `None` compiles each time.
    pub cache_dir: Option<PathBuf>,
    /// Limits of every instance whose context names no others, and of a plugin's log lines.
    pub limits: GuestLimits,
    /// Compilations at once. One: a compilation uses every core already.
    pub compilations_max: usize,
    /// What bounds a call.
    pub metering: Metering,
}

impl Default for RuntimeOptions {
    fn default() -> Self {
        Self { cache_dir: None, limits: GuestLimits::default(), compilations_max: 1, metering: Metering::Deadline }
    }
}

/// Compiles plugins. Cheap to clone; the engine stops with the last clone.
#[derive(Clone)]
pub struct Runtime {
    shared: Arc<Shared>,
}

struct Shared {
    engine: Engine,
    linker: Linker<InstanceState>,
    options: RuntimeOptions,
    compilations: Semaphore,
    // Outlives versions: a plugin gets no new budget by being reloaded. One entry a plugin name, so as many as files.
    outputs: Mutex<HashMap<PluginName, Arc<PluginOutput>>>,
    fuel_used: AtomicU64,
    _ticker: Ticker,
}

/// A component that fits the contract.
pub(crate) struct Compiled {
    pub(crate) pre: PluginPre<InstanceState>,
    pub(crate) state: Option<StateExports>,
    pub(crate) compile_time: Duration,
}

impl Runtime {
    /// Starts the engine.
    pub fn new(options: RuntimeOptions) -> Result<Self, EngineError> {
        let engine = new_engine(options.cache_dir.as_deref(), options.metering)?;
        let mut linker = Linker::new(&engine);
        add_to_linker(&mut linker).map_err(|error| EngineError::Engine(format!("{error:#}")))?;
        let ticker = Ticker::start(&engine)?;
        let compilations = Semaphore::new(options.compilations_max.max(1));
        let shared = Shared {
            engine,
            linker,
            options,
            compilations,
            outputs: Mutex::default(),
            fuel_used: AtomicU64::new(0),
            _ticker: ticker,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Reads, checks and compiles one version of a plugin, off the async threads.
    pub async fn load(&self, name: PluginName, bytes: Bytes) -> Result<Plugin, LoadError> {
        let (digest, size) = (digest_of(&bytes), bytes.len());
        let compiled = self.on_blocking_thread(move |runtime| runtime.compile(&bytes)).await??;
        Ok(Plugin::new(self.clone(), name, digest, size, compiled))
    }

    /// Tells all there is to know about some bytes without running them; for people.
    pub async fn inspect(&self, bytes: Bytes) -> Result<Inspection, LoadError> {
        self.on_blocking_thread(move |runtime| Inspection::of(&runtime, &bytes)).await
    }

    pub(crate) fn compile(&self, bytes: &[u8]) -> Result<Compiled, LoadError> {
        World::read(bytes)?.check()?;
        let started = Instant::now();
        let component = Component::new(&self.shared.engine, bytes).map_err(|error| refused_by_compiler(&error))?;
        let compile_time = started.elapsed();
        signatures::check(&self.shared.engine, &component)?;
        let mismatch = |error: wasmtime::Error| LoadError::Mismatch { message: format!("{error:#}") };
        let pre = self.shared.linker.instantiate_pre(&component).map_err(mismatch)?;
        let state = StateExports::of(&component);
        Ok(Compiled { pre: PluginPre::new(pre).map_err(mismatch)?, state, compile_time })
    }

    /// Fuel that calls of `process` took so far, over all instances; 0 unless metered by [`Metering::Fuel`].
    pub fn fuel_used(&self) -> u64 {
        self.shared.fuel_used.load(Ordering::Relaxed)
    }

    pub(crate) fn add_fuel_used(&self, fuel: u64) {
        self.shared.fuel_used.fetch_add(fuel, Ordering::Relaxed);
    }

    pub(crate) fn metering(&self) -> Metering {
        self.shared.options.metering
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.shared.engine
    }

    pub(crate) fn limits(&self) -> &GuestLimits {
        &self.shared.options.limits
    }

    pub(crate) fn output_of(&self, name: &PluginName, limits: &GuestLimits) -> Arc<PluginOutput> {
        let mut outputs = self.shared.outputs.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(outputs.entry(name.clone()).or_insert_with(|| Arc::new(PluginOutput::new(limits))))
    }

    async fn on_blocking_thread<T, F>(&self, work: F) -> Result<T, LoadError>
    where
        T: Send + 'static,
        F: FnOnce(Self) -> T + Send + 'static,
    {
        let host = |message: String| LoadError::Host { message };
        // The permit is held here, not on the thread: waiting compilations occupy no thread.
        let _permit = self.shared.compilations.acquire().await.map_err(|error| host(error.to_string()))?;
        let runtime = self.clone();
        tokio::task::spawn_blocking(move || work(runtime)).await.map_err(|error| host(error.to_string()))
    }
}

/// The identity of a version.
pub(crate) fn digest_of(bytes: &[u8]) -> PluginDigest {
    let hex = hex::encode(Sha256::digest(bytes));
    // SHA-256 has 64 hex digits, always.
    PluginDigest::from_hex(&hex).unwrap_or_else(|| unreachable!("a SHA-256 is 64 hex digits"))
}

fn refused_by_compiler(error: &wasmtime::Error) -> LoadError {
    let message: String = format!("{error:#}").chars().take(1_000).collect();
    if message.contains("async") {
        return LoadError::Async { message };
    }
    if error.downcast_ref::<wasmparser::BinaryReaderError>().is_some() || message.contains("(at offset") {
        return LoadError::Malformed { message };
    }
    LoadError::Compile { message }
}
