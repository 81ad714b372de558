//! What a guest writes (output, log lines and measurements), kept within limits until the host
//! passes it on.

mod emit_buffer;
mod guest_identity;
mod guest_log;
mod line_stream;
mod log_budget;
mod log_lines;
mod measurement_names;
mod plugin_output;
mod shard_gauges;

pub(crate) use emit_buffer::{EmitBuffer, PIECE_BYTES, UnknownDestination};
pub(crate) use guest_identity::GuestIdentity;
pub(crate) use guest_log::GuestLog;
pub(crate) use line_stream::LineStream;
pub use log_lines::LogLines;
pub(crate) use measurement_names::{MeasurementKind, MeasurementNames, PREFIX};
pub(crate) use plugin_output::{PluginOutput, is_measurement_name};
pub(crate) use shard_gauges::InstanceGauges;
