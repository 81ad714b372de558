//! The engine and its settings. Each setting is a decision about what a plugin may cost or reach.

pub(crate) mod code_cache;
mod metering;
pub(crate) mod wording;

use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use wasmtime::{
    Cache, CacheStore, Config, Engine, EngineWeak, Strategy, WasmBacktraceDetails, WasmFeatures,
};

pub use metering::Metering;

/// How often the epoch moves: how late a deadline may be noticed. 10 ms costs nothing measurable.
pub(crate) const EPOCH_TICK: Duration = Duration::from_millis(10);

/// Stack of a guest, in bytes; wasmtime's default. Deeper recursion traps.
pub const STACK_BYTES: usize = 512 << 10;

/// Why the engine did not start.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The compilation cache's directory cannot be made or used.
    #[error("cannot use {} as compilation cache: {reason}", path.display())]
    Cache {
        /// The directory.
        path: PathBuf,
        /// What is wrong, and how to fix it.
        reason: String,
    },
    /// The machine or the settings do not suit the engine.
    #[error("the WebAssembly engine does not start: {0}")]
    Engine(String),
    /// The thread that moves the epoch could not be started.
    #[error("the WebAssembly engine's clock does not start")]
    Ticker(#[source] std::io::Error),
}

/// Moves the epoch until it is dropped. It has its own thread, so that a busy executor cannot delay
/// a deadline.
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

/// The engine, in the host and in its compiler. All settings but the number of threads are part of
/// the key under which the cache keeps compiled code: were they not the same in both, the host
/// would compile again.
pub(crate) fn new_engine(cache: Option<Cache>, metering: Metering) -> Result<Engine, EngineError> {
    started(&settings(cache, metering))
}

/// The compiler's engine, which takes the code of functions from `functions` where that has it. The
/// code is the same, and so is the key.
pub(crate) fn new_compiler(
    cache: Option<Cache>,
    functions: Arc<dyn CacheStore>,
) -> Result<Engine, EngineError> {
    let mut config = settings(cache, Metering::Deadline);
    config
        .enable_incremental_compilation(functions)
        .map_err(|error| EngineError::Engine(format!("{error:#}")))?;
    started(&config)
}

fn started(config: &Config) -> Result<Engine, EngineError> {
    Engine::new(config).map_err(|error| EngineError::Engine(format!("{error:#}")))
}

fn settings(cache: Option<Cache>, metering: Metering) -> Config {
    let mut config = Config::new();
    config
        .strategy(Strategy::Cranelift)
        .wasm_component_model(true)
        // Cheaper calls, and async components are refused: less code that untrusted bytes can
        // reach.
        .concurrency_support(false)
        .max_wasm_stack(STACK_BYTES)
        // The default asks the environment, on which then depends where the cache has the code that
        // the compiler made.
        .wasm_backtrace_details(WasmBacktraceDetails::Disable)
        .wasm_backtrace_max_frames(std::num::NonZeroUsize::new(16));
    match metering {
        Metering::Deadline => config.epoch_interruption(true),
        // Bits of a NaN differ between machines.
        Metering::Fuel { .. } => config
            .consume_fuel(true)
            .cranelift_nan_canonicalization(true),
    };
    for feature in unneeded_features() {
        config.wasm_features(feature, false);
    }
    config.cache(cache);
    config
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ticker_ends_with_its_owner() {
        let engine = new_engine(None, Metering::Deadline).unwrap();
        let (stop, stopped) = mpsc::channel::<()>();
        drop(stop);
        tick(&engine.weak(), &stopped);
    }

    const ASKED: &str = "SHARDMILL_TEST_ENGINE_KEY";
    const BACKTRACE_DETAILS: &str = "WASMTIME_BACKTRACE_DETAILS";

    fn key_of(engine: &Engine) -> String {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        engine.precompile_compatibility_hash().hash(&mut hasher);
        format!("{:x}", hasher.finish())
    }

    /// Ours, and that of an engine that nothing was said about, as another process has them.
    fn keys_where(details: Option<&str>) -> Vec<String> {
        let mut process = std::process::Command::new(std::env::current_exe().unwrap());
        process
            .args(["--exact", "--nocapture"])
            .arg("engine::tests::where_code_is_kept_does_not_depend_on_the_environment")
            .env(ASKED, "1")
            .env_remove(BACKTRACE_DETAILS)
            .envs(details.map(|value| (BACKTRACE_DETAILS, value)));
        let output = String::from_utf8(process.output().unwrap().stdout).unwrap();
        let keys = output.lines().filter_map(|line| line.split_once("key="));
        keys.map(|(_, key)| key.trim().to_owned()).collect()
    }

    #[test]
    fn where_code_is_kept_does_not_depend_on_the_environment() {
        if std::env::var_os(ASKED).is_some() {
            println!(
                "
key={}",
                key_of(&new_engine(None, Metering::Deadline).unwrap())
            );
            println!(
                "
key={}",
                key_of(&Engine::default())
            );
            return;
        }
        let (without, with) = (keys_where(None), keys_where(Some("1")));
        assert_eq!((without.len(), with.len()), (2, 2));
        assert_eq!(without[0], with[0]);
        assert_ne!(without[1], with[1], "the variable matters to others");
    }
}
