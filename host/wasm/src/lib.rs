//! Plugins: bytes in, record processors out.
//!
//! ```text
//!   plugins/NAME.wasm ──> folder ──> read what it is ──> compile ──> link ──> Plugin ──> one Instance a shard
//! ```
//!
//! [`Runtime`] holds the engine; [`Plugin`] is one version of a plugin and implements core's
//! `ProcessorFactory`;
//! [`folder`] turns a directory into a stream of versions. A plugin can harm only itself: every
//! entry has a deadline, every resource a limit, and WASI is linked with nothing behind it.

mod bindings;
mod bytes_kind;
mod code_cache;
mod compiler;
mod delivery;
mod engine;
mod entry;
mod failure;
pub mod folder;
mod footprint;
mod guest_output;
mod handles;
mod host_functions;
mod http;
mod inspection;
mod instance;
mod instance_state;
mod integrity;
mod limiter;
mod load_error;
mod marks;
mod memory_budget;
mod metering;
pub mod metrics;
mod needs;
mod outcome;
mod plugin;
mod plugin_shares;
mod redactor;
mod runtime;
mod secrets;
mod signatures;
mod state_exports;
mod text;
mod version;
pub mod wall;
mod world;

pub use bytes_kind::BytesKind;
pub use code_cache::{beside_cache, try_cache};
pub use compiler::{CompileFailure, CompileJob, CompileLimits, Compiler, CompilerProgram};
pub use engine::EngineError;
pub use http::{Endpoint, HttpOptions};
pub use inspection::{InspectedImport, Inspection};
pub use integrity::{
    Integrity, IntegrityError, IntegrityRules, InvalidKey, PublicKey, SignedVersions,
};
pub use load_error::LoadError;
pub use marks::Marks;
pub use metering::Metering;
pub use plugin::Plugin;
pub use runtime::{GUEST_CALLS_MAX, Runtime, RuntimeOptions, digest_of};

/// Tells the metrics recorder what the metrics are.
pub fn describe_metrics() {
    http::metrics::describe();
}

/// A component that fits the contract and does nothing: what delivering to it costs, delivering to
/// any plugin costs. Its text lies beside it.
pub const EMPTY_COMPONENT: &[u8] = include_bytes!("empty_component.wasm");
