//! What a plugin may call: one file for each interface that it imports.

mod bulk_emit;
mod config;
mod context;
mod emit;
mod logging;
mod metrics;
mod request_line;

use wasmtime::component::{HasSelf, Linker};

use crate::bindings::shardmill::processor;
use crate::bindings::wasi::config::store as wasi_config;
use crate::bindings::wasi::logging::logging as wasi_logging;
use crate::instance::state::InstanceState;

/// Links everything that plugins are given.
pub(crate) fn add_to_linker(linker: &mut Linker<InstanceState>) -> wasmtime::Result<()> {
    wasmtime_wasi::p2::add_to_linker_async(linker)?;
    wasmtime_wasi_http::p2::add_only_http_to_linker_async(linker)?;
    request_line::add_to_linker(linker)?;
    wasi_config::add_to_linker::<_, HasSelf<InstanceState>>(linker, |state| state)?;
    wasi_logging::add_to_linker::<_, HasSelf<InstanceState>>(linker, |state| state)?;
    processor::types::add_to_linker::<_, HasSelf<InstanceState>>(linker, |state| state)?;
    processor::context::add_to_linker::<_, HasSelf<InstanceState>>(linker, |state| state)?;
    processor::emit::add_to_linker::<_, HasSelf<InstanceState>>(linker, |state| state)?;
    processor::bulk_emit::add_to_linker::<_, HasSelf<InstanceState>>(linker, |state| state)?;
    processor::metrics::add_to_linker::<_, HasSelf<InstanceState>>(linker, |state| state)
}
