//! A directory of plugins, as a stream of versions: `NAME.wasm` in, [`FolderEvent`]s out.
//!
//! ```text
//!   file events, or a rescan ──> scan ──> Tracker (pure) ──> read ──> hash ──> compile ──> FolderEvent
//! ```
//!
//! A version is announced when it is compiled. A file that does not become one leaves the last good
//! version alone.

mod event;
mod line;
mod loading;
mod manifests;
mod reading;
mod scan;
mod tracker;
mod watch;
mod watched;
mod writers;

pub use event::{FolderEvent, Refusal};
pub use scan::{components, writers};
pub use watch::{FolderOptions, PluginFolder};
