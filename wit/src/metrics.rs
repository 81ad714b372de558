//! Measurements, exported with the host's own. Names are 1 to 64 of `a-z`, `0-9` and `_`, starting
//! with a letter.

#[cfg(target_arch = "wasm32")]
use crate::bindings::shardmill::processor::metrics;

/// Adds to a counter.
pub fn counter(name: &str, add: u64) {
    #[cfg(target_arch = "wasm32")]
    metrics::counter(name, add);
    #[cfg(not(target_arch = "wasm32"))]
    let _ = (name, add);
}

/// Sets a gauge to a value; the last one counts.
pub fn gauge(name: &str, value: f64) {
    #[cfg(target_arch = "wasm32")]
    metrics::gauge(name, value);
    #[cfg(not(target_arch = "wasm32"))]
    let _ = (name, value);
}

/// Records one value in a histogram.
pub fn histogram(name: &str, value: f64) {
    #[cfg(target_arch = "wasm32")]
    metrics::histogram(name, value);
    #[cfg(not(target_arch = "wasm32"))]
    let _ = (name, value);
}
