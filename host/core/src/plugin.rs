//! A plugin as the core sees it: a name, a version, limits.

mod identity;
mod limits;
mod processor_error;

pub use identity::{InvalidPluginName, PluginDigest, PluginName};
pub use limits::GuestLimits;
pub use processor_error::{InstanceFate, ProcessorError};
