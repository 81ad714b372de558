//! What instances have of their host, whatever their plugin.

use std::sync::atomic::{AtomicU64, Ordering};

use shardmill_core::plugin::GuestLimits;
use wasmtime::{Cache, Engine};

use crate::engine::{EngineError, Metering, Ticker, new_engine};
use crate::http::{HttpClients, HttpOptions};
use crate::output::LogLines;

/// The engine, and what every instance on it needs. Moves the epoch for as long as it lives, which
/// is as long as an instance may run.
pub(crate) struct InstanceHost {
    engine: Engine,
    http_clients: HttpClients,
    limits: GuestLimits,
    metering: Metering,
    log_lines: LogLines,
    fuel_used: AtomicU64,
    _ticker: Ticker,
}

impl InstanceHost {
    /// Starts the engine. `limits` hold for every instance whose context names no others.
    pub(crate) fn start(
        cache: Option<Cache>,
        metering: Metering,
        limits: GuestLimits,
        http: HttpOptions,
        log_lines: LogLines,
    ) -> Result<Self, EngineError> {
        let engine = new_engine(cache, metering)?;
        let ticker = Ticker::start(&engine)?;
        Ok(Self {
            http_clients: HttpClients::new(http),
            fuel_used: AtomicU64::new(0),
            engine,
            limits,
            metering,
            log_lines,
            _ticker: ticker,
        })
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    pub(crate) fn http_clients(&self) -> &HttpClients {
        &self.http_clients
    }

    pub(crate) fn limits(&self) -> &GuestLimits {
        &self.limits
    }

    pub(crate) fn metering(&self) -> Metering {
        self.metering
    }

    /// Where the log lines of guests go.
    pub(crate) fn log_lines(&self) -> &LogLines {
        &self.log_lines
    }

    /// Fuel that calls of `process` took so far, over all instances.
    pub(crate) fn fuel_used(&self) -> u64 {
        self.fuel_used.load(Ordering::Relaxed)
    }

    pub(crate) fn add_fuel_used(&self, fuel: u64) {
        self.fuel_used.fetch_add(fuel, Ordering::Relaxed);
    }
}
