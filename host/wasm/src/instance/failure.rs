//! From what the engine says to what the pipeline acts on.

use rustix::io::Errno;
use shardmill_core::plugin::{Lack, ProcessorError};
use wasmtime::{FrameInfo, Trap, WasmBacktrace};

use super::entry::Entry;
use super::limiter::{INSTANCES_MAX, MEMORIES_MAX, TABLES_MAX};
use super::state::{InstanceState, RANDOM_BYTES_MAX};
use crate::bindings::shardmill::processor::types::Error as GuestError;
use crate::engine::wording::{self, Limit};
use crate::engine::{Metering, STACK_BYTES};
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

/// Why a call did not return.
pub(crate) fn explain(
    error: &wasmtime::Error,
    state: &InstanceState,
    entry: Entry,
) -> ProcessorError {
    if let Some(stopped) = stopped(error, entry) {
        return stopped;
    }
    if let Some(denial) = state.limiter.denial() {
        return denial;
    }
    let message = causes(error);
    if is_refused_by_system(error) {
        let refused = state.log.redactor().shown(&message, TRAP_BYTES_MAX);
        return ProcessorError::Host {
            message: format!(
                "{refused}; it may need more address space (LimitAS=, ulimit -v), memory maps \
                    (vm.max_map_count) or open files"
            ),
        };
    }
    if let Some(limit) = wording::limit_exceeded(&message) {
        return exceeded(limit, state, entry);
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

/// Whether the operating system refused what the engine needs for an instance. No plugin and no
/// record is to blame for that, whichever met it.
fn is_refused_by_system(error: &wasmtime::Error) -> bool {
    const SCARCE: [Errno; 6] = [
        Errno::NOMEM,
        Errno::AGAIN,
        Errno::MFILE,
        Errno::NFILE,
        Errno::FBIG,
        Errno::NOSPC,
    ];
    error.chain().any(|cause| {
        let refused = cause.downcast_ref::<Errno>().copied();
        let refused = refused.or_else(|| Errno::from_io_error(cause.downcast_ref()?));
        refused.is_some_and(|refused| SCARCE.contains(&refused))
    })
}

/// If the engine stopped the call, the limit that the call exceeded.
fn stopped(error: &wasmtime::Error, entry: Entry) -> Option<ProcessorError> {
    match (error.downcast_ref::<Trap>()?, entry.metering) {
        (Trap::Interrupt, _) => Some(ProcessorError::DeadlineExceeded {
            call: entry.call,
            limit: entry.deadline,
        }),
        (Trap::OutOfFuel, Metering::Fuel { per_call, .. }) => Some(ProcessorError::LimitExceeded {
            what: "fuel in one call",
            limit: per_call,
        }),
        (Trap::StackOverflow, _) => Some(ProcessorError::LimitExceeded {
            what: "stack bytes",
            limit: STACK_BYTES as u64,
        }),
        _ => None,
    }
}

fn exceeded(limit: Limit, state: &InstanceState, entry: Entry) -> ProcessorError {
    let (what, limit) = match limit {
        Limit::HostcallBytes => (
            "bytes passed to the host in one call",
            entry.hostcall_bytes as u64,
        ),
        Limit::CoreInstances => ("core instances", INSTANCES_MAX as u64),
        Limit::Memories => ("memories", MEMORIES_MAX as u64),
        Limit::Tables => ("tables", TABLES_MAX as u64),
        Limit::Handles => ("handles", state.handles_max as u64),
        Limit::RandomBytes => ("random bytes in one call", RANDOM_BYTES_MAX),
    };
    ProcessorError::LimitExceeded { what, limit }
}

/// What went wrong, without where: no name of the plugin's is in it, so that none is taken for the
/// engine's words.
fn causes(error: &wasmtime::Error) -> String {
    let said = error
        .chain()
        .take(CAUSES_MAX)
        .map(|cause| shown(cause, SAID_BYTES_MAX));
    let causes: Vec<String> = said
        .filter(|said| !wording::is_list_of_frames(said))
        .collect();
    causes.join(": ")
}

/// Where it happened, the innermost function first. Names are shown exactly as in the file, because
/// a name that a compiler packed can unpack to something far larger.
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
