//! The one door into guest code.

use std::time::Duration;

use shardmill_core::plugin::ProcessorError;
use tokio::runtime::Handle;
use tokio::time::error::Elapsed;
use wasmtime::Store;

use super::entry::Entry;
use super::failure::{explain, reported};
use super::state::InstanceState;
use crate::bindings::shardmill::processor::types as wit;
use crate::engine::EPOCH_TICK;

/// How much later than the epoch the outer timeout comes. It is for guests that wait inside a host
/// function, where epochs do not count; guest code itself must always be stopped by the epoch, so
/// that no running future is dropped.
const TIMEOUT_GRACE: Duration = Duration::from_millis(100);

/// What a call returned: the guest's own answer, the engine's error, or nothing in time.
type Returned<T> = Result<wasmtime::Result<Result<T, wit::Error>>, Elapsed>;

/// Sets the deadline, runs the call to its end, and names what went wrong.
pub(super) fn entered<T>(
    store: &mut Store<InstanceState>,
    entry: Entry,
    call: impl AsyncFnOnce(&mut Store<InstanceState>) -> wasmtime::Result<Result<T, wit::Error>>,
) -> Result<T, ProcessorError> {
    prepare(store, entry)?;
    let deadline = entry.deadline + TIMEOUT_GRACE;
    let returned = Handle::current().block_on(tokio::time::timeout(deadline, call(store)));
    store.data().http.close();
    store.data().end_lines();
    store.data_mut().settle_handles();
    judge(returned, store.data(), entry)
}

fn prepare(store: &mut Store<InstanceState>, entry: Entry) -> Result<(), ProcessorError> {
    store.set_hostcall_fuel(entry.hostcall_bytes);
    store.data_mut().limiter.forget_denial();
    store.data_mut().http.open(entry.deadline);
    entry
        .metering
        .refill(store, epochs(entry.deadline))
        .map_err(|error| ProcessorError::Host {
            message: format!("{error:#}"),
        })
}

/// A deadline in epochs. One more, because the current one is already running out.
fn epochs(deadline: Duration) -> u64 {
    u64::try_from(deadline.as_millis() / EPOCH_TICK.as_millis())
        .unwrap_or(u64::MAX - 1)
        .saturating_add(1)
}

fn judge<T>(
    returned: Returned<T>,
    state: &InstanceState,
    entry: Entry,
) -> Result<T, ProcessorError> {
    let share = state.limiter.share();
    match returned {
        // If the guest went on without it, its output is incomplete.
        _ if state.limiter.is_output_denied() => Err(share.denial()),
        Ok(Ok(Ok(answer))) => Ok(answer),
        // Whatever the guest made of it: the host denied it memory that it is entitled to.
        _ if share.is_denied() => Err(share.denial()),
        Err(Elapsed { .. }) => Err(ProcessorError::DeadlineExceeded {
            call: entry.call,
            limit: entry.deadline,
        }),
        Ok(Err(error)) => Err(explain(&error, state, entry)),
        Ok(Ok(Err(error))) => Err(reported(&error, state.log.redactor())),
    }
}
