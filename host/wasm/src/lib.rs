//! Plugins: bytes in, record processors out.
//!
//! ```text
//!   plugins/NAME.wasm ──> folder ──> load: what is it? ──> compiler ──> runtime: link ──> Plugin ──> one instance a shard
//!                                                                          imports ──┘    instance ──┘
//! ```
//!
//! [`Runtime`] holds the engine; [`Plugin`] is one version of a plugin and implements core's
//! `ProcessorFactory`; [`folder`] turns a directory into a stream of versions. A plugin can harm
//! only itself: every entry has a deadline, every resource a limit, and WASI is linked with nothing
//! behind it.
//!
//! By stage, in the order in which a file passes them. Each uses those below it, and none above:
//!
//! | Folder | What happens there |
//! |---|---|
//! | `folder` | the plugins folder is watched, and its files are read |
//! | `runtime` | one version is read, compiled and linked; what all plugins share |
//! | `imports` | the functions that a plugin may call |
//! | `compiler` | another process compiles |
//! | `instance` | one instance runs: its state, its calls, its limits, why a call failed |
//! | `marks` | versions on trial are marked, so that the next run knows what the last one died of |
//! | `load` | bytes are judged before anything runs: what they are, whose, what they import |
//! | `http` | requests of plugins are sent |
//! | `output` | what a guest writes is bounded: output, log lines, measurements |
//! | `secrets` | secrets are read, and kept out of text |
//! | `shares` | memory and threads are divided among plugins |
//! | `engine` | wasmtime is set up: its settings, its clock, its cache, what bounds a call |
//! | `wall` | the system denies the process what it does not need |

mod bindings;
mod blocking;
mod compiler;
mod engine;
pub mod folder;
mod http;
mod imports;
mod instance;
mod load;
mod marks;
pub mod metrics;
mod output;
mod plugin;
mod runtime;
mod secrets;
mod shares;
mod text;
pub mod wall;

pub use compiler::{CompileFailure, CompileJob, CompileLimits, Compiler, CompilerProgram};
pub use engine::code_cache::{
    beside_cache, check_cache, own_folder, refuse_others_file, refuse_others_folder, try_cache,
};
pub use engine::{EngineError, Metering, STACK_BYTES};
pub use http::{Endpoint, HttpOptions};
pub use load::{
    BytesKind, Integrity, IntegrityError, IntegrityRules, InvalidKey, LoadError, PublicKey,
    SignedVersion, digest_of,
};
pub use marks::Marks;
pub use output::LogLines;
pub use plugin::Plugin;
pub use runtime::{GUEST_CALLS_MAX, InspectedImport, Inspection, Runtime, RuntimeOptions};
pub use secrets::check_secret;

/// Tells the metrics recorder what the metrics are.
pub fn describe_metrics() {
    http::metrics::describe();
}

/// A component that fits the contract and does nothing: delivering to it costs as much as
/// delivering to any plugin costs at least. Its source is in the same folder.
pub const EMPTY_COMPONENT: &[u8] = include_bytes!("empty_component.wasm");
