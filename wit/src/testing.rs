//! Stand-ins for the host, so that a processor can be tested with a plain `cargo test`: what it
//! emits is kept, and configuration comes from [`configure`]. Each thread has its own values, as
//! each test has its own thread. Does nothing in a component.

use std::cell::RefCell;
use std::collections::HashMap;

use crate::StartPosition;

/// One piece that a processor emitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Emitted {
    /// The sink's name, as the plugin gave it.
    pub destination: String,
    /// The key for sinks that order or partition by key; may be empty.
    pub key: String,
    /// The payload, as the plugin passed it.
    pub data: Vec<u8>,
}

thread_local! {
    static CONFIG: RefCell<HashMap<String, String>> = RefCell::default();
    static START: RefCell<StartPosition> = const { RefCell::new(StartPosition::Oldest) };
    static EMITTED: RefCell<Vec<Emitted>> = RefCell::default();
}

/// Sets a configuration value for this thread.
pub fn configure(key: &str, value: &str) {
    CONFIG.with_borrow_mut(|config| config.insert(key.to_owned(), value.to_owned()));
}

/// Sets where the records of this thread's instance begin; at the oldest one if this was not called.
pub fn start_at(position: StartPosition) {
    START.set(position);
}

/// Takes what this thread has emitted so far.
pub fn take_emitted() -> Vec<Emitted> {
    EMITTED.with_borrow_mut(std::mem::take)
}

#[cfg(not(target_arch = "wasm32"))]
pub(crate) fn start_position() -> StartPosition {
    START.with_borrow(Clone::clone)
}

#[cfg(not(target_arch = "wasm32"))]
pub(crate) fn configured(key: &str) -> Option<String> {
    CONFIG.with_borrow(|config| config.get(key).cloned())
}

#[cfg(not(target_arch = "wasm32"))]
#[expect(
    clippy::unnecessary_wraps,
    reason = "same signature as the host's function"
)]
pub(crate) fn keep(destination: &str, key: &str, data: &[u8]) -> Result<(), crate::EmitError> {
    let piece = Emitted {
        destination: destination.to_owned(),
        key: key.to_owned(),
        data: data.to_vec(),
    };
    EMITTED.with_borrow_mut(|emitted| emitted.push(piece));
    Ok(())
}
