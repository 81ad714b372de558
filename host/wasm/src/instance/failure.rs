//! From what the engine says to what the pipeline acts on.

use shardmill_core::plugin::{Lack, ProcessorError};
use wasmtime::{FrameInfo, Trap, WasmBacktrace};

use crate::Metering;
use crate::bindings::shardmill::processor::types::Error as GuestError;
use crate::engine::STACK_BYTES;
use crate::instance::entry::Entry;
use crate::instance::limiter::{INSTANCES_MAX, MEMORIES_MAX, TABLES_MAX};
use crate::instance::state::{InstanceState, RANDOM_BYTES_MAX};
use crate::secrets::redactor::Redactor;
use crate::text::{SAID_BYTES_MAX, clean, shown};

/// Bytes of a guest's message that are kept: it ends in logs, metrics and dead letters.
pub(crate) const MESSAGE_BYTES_MAX: usize = 1 << 10;
/// Bytes of a trap's message with its frames.
const TRAP_BYTES_MAX: usize = 4 << 10;
/// Bytes of a function's or a module's name, which are the plugin's own. With them, all frames fit.
const NAME_BYTES_MAX: usize = 80;
/// Errors that one was caused by. The engine has two or three.
const CAUSES_MAX: usize = 8;
/// How wasmtime begins its list of frames, which has every name in it at its full length.
const FRAMES: &str = "error while executing at wasm backtrace";
/// How wasmtime words it when a guest passes more to the host than it may; the error has no type of
/// its own.
const HOSTCALL_FUEL: &str = "fuel allocated for hostcalls has been exhausted";

/// How wasmtime words the limits on numbers of things, of which few have a type of their own.
fn counted(message: &str, state: &InstanceState) -> Option<(&'static str, u64)> {
    let limits = [
        (
            "instance count too high",
            "core instances",
            INSTANCES_MAX as u64,
        ),
        ("memory count too high", "memories", MEMORIES_MAX as u64),
        ("table count too high", "tables", TABLES_MAX as u64),
        (
            "resource table has no free keys",
            "handles",
            state.handles_max as u64,
        ),
        (
            "store handle limit exceeded",
            "handles",
            state.handles_max as u64,
        ),
        (
            "exceeds limit 65536",
            "random bytes in one call",
            RANDOM_BYTES_MAX,
        ),
    ];
    limits
        .into_iter()
        .find(|(words, ..)| message.contains(words))
        .map(|(_, what, limit)| (what, limit))
}

/// What the guest returned as its error.
pub(crate) fn reported(error: &GuestError, redactor: &Redactor) -> ProcessorError {
    let said = |kind: &str, message: &str| {
        clean(
            &format!("{kind}{}", redactor.shown(message, MESSAGE_BYTES_MAX)),
            MESSAGE_BYTES_MAX,
        )
    };
    match error {
        GuestError::Misconfigured(message) => ProcessorError::NotReady {
            lack: Lack::Configuration,
            message: said("misconfigured: ", message),
        },
        GuestError::Unavailable(message) => ProcessorError::NotReady {
            lack: Lack::Service,
            message: said("unavailable: ", message),
        },
        GuestError::Other(message) => ProcessorError::Reported {
            message: said("", message),
        },
    }
}

/// Why a call did not come back.
pub(crate) fn explain(
    error: &wasmtime::Error,
    state: &InstanceState,
    entry: Entry,
) -> ProcessorError {
    let Entry {
        call,
        deadline: limit,
        hostcall_bytes,
        metering,
    } = entry;
    let trap = error.downcast_ref::<Trap>();
    if trap == Some(&Trap::Interrupt) {
        return ProcessorError::DeadlineExceeded { call, limit };
    }
    if let (Some(Trap::OutOfFuel), Metering::Fuel { per_call }) = (trap, metering) {
        return ProcessorError::LimitExceeded {
            what: "fuel in one call",
            limit: per_call,
        };
    }
    if trap == Some(&Trap::StackOverflow) {
        return ProcessorError::LimitExceeded {
            what: "stack bytes",
            limit: STACK_BYTES as u64,
        };
    }
    if let Some(denial) = state.limiter.denial() {
        return denial;
    }
    let message = causes(error);
    if message.contains(HOSTCALL_FUEL) {
        return ProcessorError::LimitExceeded {
            what: "bytes passed to the host in one call",
            limit: hostcall_bytes as u64,
        };
    }
    if let Some((what, limit)) = counted(&message, state) {
        return ProcessorError::LimitExceeded { what, limit };
    }
    let message = match frames(error) {
        Some(frames) => format!("{message}, in {frames}"),
        None => message,
    };
    // A panic says why on standard error, and only then traps.
    let message = match state.stderr.take_last_lines() {
        Some(said) => format!("{said} ({message})"),
        None => message,
    };
    ProcessorError::Trapped {
        message: state.log.redactor().shown(&message, TRAP_BYTES_MAX),
    }
}

/// What went wrong, without where: no name of the plugin's is in it, so that none is taken for the
/// engine's words.
fn causes(error: &wasmtime::Error) -> String {
    let said = error
        .chain()
        .take(CAUSES_MAX)
        .map(|cause| shown(cause, SAID_BYTES_MAX));
    let causes: Vec<String> = said.filter(|said| !said.starts_with(FRAMES)).collect();
    causes.join(": ")
}

/// Where it was, the innermost function first. Names are shown as they stand in the file: what a
/// compiler packed into one can be far larger than itself.
fn frames(error: &wasmtime::Error) -> Option<String> {
    let trace = error.downcast_ref::<WasmBacktrace>()?;
    let frames: Vec<String> = trace.frames().iter().map(frame).collect();
    (!frames.is_empty()).then(|| frames.join(" < "))
}

fn frame(frame: &FrameInfo) -> String {
    let module = clean(frame.module().name().unwrap_or("?"), NAME_BYTES_MAX);
    let function = match frame.func_name() {
        Some(name) => clean(name, NAME_BYTES_MAX),
        None => format!("function {}", frame.func_index()),
    };
    match frame.module_offset() {
        Some(offset) => format!("{module}!{function} at {offset:#x}"),
        None => format!("{module}!{function}"),
    }
}
