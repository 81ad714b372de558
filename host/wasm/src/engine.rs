//! The engine and its settings. Each setting is a decision about what a plugin may cost or reach.

use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use wasmtime::{Cache, CacheConfig, Config, Engine, EngineWeak, Strategy, WasmFeatures};

use crate::Metering;

/// How often the epoch moves: how late a deadline may be noticed. 10 ms costs nothing measurable.
pub(crate) const EPOCH_TICK: Duration = Duration::from_millis(10);

/// Stack of a guest, in bytes; wasmtime's default. Deeper recursion traps.
pub(crate) const STACK_BYTES: usize = 512 << 10;

/// Why the engine did not start.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The compilation cache's directory cannot be made or used.
    #[error("cannot use {} as compilation cache: {reason}", path.display())]
    Cache {
        /// The directory.
        path: PathBuf,
        /// What is wrong, and how to mend it.
        reason: String,
    },
    /// The machine or the settings do not suit the engine.
    #[error("the WebAssembly engine does not start: {0}")]
    Engine(String),
    /// The thread that moves the epoch could not be started.
    #[error("the WebAssembly engine's clock does not start")]
    Ticker(#[source] std::io::Error),
}

/// Moves the epoch until it is dropped. On a thread of its own, so that no busy executor can hold a deadline up.
pub(crate) struct Ticker {
    _stop: mpsc::Sender<()>,
}

impl Ticker {
    pub(crate) fn start(engine: &Engine) -> Result<Self, EngineError> {
        let (stop, stopped) = mpsc::channel::<()>();
        let engine = engine.weak();
        std::thread::Builder::new()
            .name("epoch-ticker".to_owned())
            .spawn(move || tick(&engine, &stopped))
            .map_err(EngineError::Ticker)?;
        Ok(Self { _stop: stop })
    }
}

fn tick(engine: &EngineWeak, stopped: &mpsc::Receiver<()>) {
    while stopped.recv_timeout(EPOCH_TICK) == Err(mpsc::RecvTimeoutError::Timeout) {
        match engine.upgrade() {
            Some(engine) => engine.increment_epoch(),
            None => return,
        }
    }
}

pub(crate) fn new_engine(cache_dir: Option<&Path>, metering: Metering) -> Result<Engine, EngineError> {
    let mut config = Config::new();
    config
        .strategy(Strategy::Cranelift)
        .wasm_component_model(true)
        // Cheaper calls, and async components are refused: less code that untrusted bytes can reach.
        .concurrency_support(false)
        .max_wasm_stack(STACK_BYTES)
        .wasm_backtrace_max_frames(std::num::NonZeroUsize::new(16));
    match metering {
        Metering::Deadline => config.epoch_interruption(true),
        // Bits of a NaN differ between machines.
        Metering::Fuel { .. } => config.consume_fuel(true).cranelift_nan_canonicalization(true),
    };
    for feature in unneeded_features() {
        config.wasm_features(feature, false);
    }
    if let Some(directory) = cache_dir {
        config.cache(Some(open_cache(directory)?));
    }
    Engine::new(&config).map_err(|error| EngineError::Engine(format!("{error:#}")))
}

/// Proposals that no toolchain we name needs; each is code that untrusted bytes could reach.
fn unneeded_features() -> [WasmFeatures; 11] {
    [
        WasmFeatures::GC,
        WasmFeatures::EXCEPTIONS,
        WasmFeatures::LEGACY_EXCEPTIONS,
        WasmFeatures::THREADS,
        WasmFeatures::SHARED_EVERYTHING_THREADS,
        WasmFeatures::MEMORY64,
        WasmFeatures::CUSTOM_PAGE_SIZES,
        WasmFeatures::STACK_SWITCHING,
        WasmFeatures::RELAXED_SIMD,
        WasmFeatures::WIDE_ARITHMETIC,
        WasmFeatures::FUNCTION_REFERENCES,
    ]
}

fn open_cache(directory: &Path) -> Result<Cache, EngineError> {
    let refuse = |reason: String| EngineError::Cache { path: directory.to_owned(), reason };
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(|error| refuse(error.to_string()))?;
    // wasmtime wants an absolute path without links in it.
    let directory = directory.canonicalize().map_err(|error| refuse(error.to_string()))?;
    let metadata = directory.metadata().map_err(|error| refuse(error.to_string()))?;
    // What lies in the cache is run as native code: whoever can write there owns this process.
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err(refuse("it belongs to another user; give one that this user owns".to_owned()));
    }
    if metadata.mode() & 0o022 != 0 {
        return Err(refuse("others may write to it; run chmod 700 on it".to_owned()));
    }
    let mut config = CacheConfig::new();
    config.with_directory(&directory);
    Cache::new(config).map_err(|error| refuse(format!("{error:#}")))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_cache_is_private_and_a_shared_directory_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let cache = folder.path().join("cache");
        new_engine(Some(&cache), Metering::Deadline).unwrap();
        assert_eq!(cache.metadata().unwrap().mode() & 0o777, 0o700);

        std::fs::set_permissions(&cache, std::fs::Permissions::from_mode(0o777)).unwrap();
        let error = new_engine(Some(&cache), Metering::Deadline).err().unwrap().to_string();
        assert!(error.contains("chmod 700"), "{error}");
    }

    #[test]
    fn the_ticker_ends_with_its_owner() {
        let engine = new_engine(None, Metering::Deadline).unwrap();
        let (stop, stopped) = mpsc::channel::<()>();
        drop(stop);
        tick(&engine.weak(), &stopped);
    }
}
