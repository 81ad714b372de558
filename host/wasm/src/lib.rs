//! Plugins: bytes in, record processors out.
//!
//! ```text
//!   plugins/NAME.wasm ──> folder ──> read what it is ──> compile ──> link ──> Plugin ──> one Instance a shard
//! ```
//!
//! [`Runtime`] holds the engine; [`Plugin`] is one version of a plugin and implements core's `ProcessorFactory`;
//! [`folder`] turns a directory into a stream of versions. A plugin can harm only itself: every entry has a deadline,
//! every resource a limit, and WASI is linked with nothing behind it.

mod bindings;
mod bytes_kind;
mod delivery;
mod engine;
mod failure;
pub mod folder;
mod host_functions;
mod inspection;
mod instance;
mod instance_state;
mod limiter;
mod load_error;
mod metering;
mod outcome;
mod plugin;
mod runtime;
mod signatures;
mod state_exports;
mod world;

pub use bytes_kind::BytesKind;
pub use engine::EngineError;
pub use inspection::{InspectedImport, Inspection};
pub use load_error::LoadError;
pub use metering::Metering;
pub use plugin::Plugin;
pub use runtime::{Runtime, RuntimeOptions};

/// A component that fits the contract and does nothing: what delivering to it costs, delivering to any plugin costs. Its
/// text lies beside it.
pub const EMPTY_COMPONENT: &[u8] = include_bytes!("empty_component.wasm");
