//! From what the engine says to what the pipeline acts on.

use shardmill_core::plugin::ProcessorError;
use wasmtime::Trap;

use crate::Metering;
use crate::bindings::shardmill::processor::types::Error as GuestError;
use crate::engine::STACK_BYTES;
use crate::host_functions::clean;
use crate::instance::Entry;
use crate::instance_state::InstanceState;

/// Bytes of a guest's message that are kept: it ends in logs, metrics and dead letters.
pub(crate) const MESSAGE_BYTES_MAX: usize = 1 << 10;
/// Bytes of a trap's message with its frames.
const TRAP_BYTES_MAX: usize = 4 << 10;
/// How wasmtime words it when a guest passes more to the host than it may; the error has no type of its own.
const HOSTCALL_FUEL: &str = "fuel allocated for hostcalls has been exhausted";

/// What the guest returned as its error.
pub(crate) fn reported(error: &GuestError) -> ProcessorError {
    let (kind, message) = match error {
        GuestError::Misconfigured(message) => ("misconfigured: ", message),
        GuestError::Unavailable(message) => ("unavailable: ", message),
        GuestError::Other(message) => ("", message),
    };
    ProcessorError::Reported { message: clean(&format!("{kind}{message}"), MESSAGE_BYTES_MAX) }
}

/// Why a call did not come back.
pub(crate) fn explain(error: &wasmtime::Error, state: &InstanceState, entry: Entry) -> ProcessorError {
    let Entry { call, deadline: limit, hostcall_bytes, metering } = entry;
    let trap = error.downcast_ref::<Trap>();
    if trap == Some(&Trap::Interrupt) {
        return ProcessorError::DeadlineExceeded { call, limit };
    }
    if let (Some(Trap::OutOfFuel), Metering::Fuel { per_call }) = (trap, metering) {
        return ProcessorError::LimitExceeded { what: "fuel in one call", limit: per_call };
    }
    if trap == Some(&Trap::StackOverflow) {
        return ProcessorError::LimitExceeded { what: "stack bytes", limit: STACK_BYTES as u64 };
    }
    if let Some(denial) = state.limiter.denial() {
        return denial;
    }
    let message = format!("{error:#}");
    if message.contains(HOSTCALL_FUEL) {
        return ProcessorError::LimitExceeded {
            what: "bytes passed to the host in one call",
            limit: hostcall_bytes as u64,
        };
    }
    // A panic says why on standard error, and only then traps.
    let message = match state.stderr.take_last_lines() {
        Some(said) => format!("{said} ({message})"),
        None => message,
    };
    ProcessorError::Trapped { message: clean(&message, TRAP_BYTES_MAX) }
}
