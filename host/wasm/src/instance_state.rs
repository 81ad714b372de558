//! What the host keeps for one instance, and the Store around it.

use std::sync::Arc;

use shardmill_core::plugin::GuestLimits;
use shardmill_core::ports::InstanceContext;
use wasmtime::component::ResourceTable;
use wasmtime::{Engine, Store};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};
use wasmtime_wasi_config::WasiConfigVariables;

use crate::Metering;
use crate::host_functions::{EmitBuffer, GuestLog, LineStream, PluginOutput};
use crate::limiter::GuestLimiter;

/// Handles that a guest may hold at once: streams, pollables, errors. A well-behaved one holds a handful.
const HANDLES_MAX: usize = 1_024;
/// Random bytes in one call. Seeds take 32.
const RANDOM_BYTES_MAX: u64 = 64 << 10;

/// The state behind the host functions.
pub(crate) struct InstanceState {
    pub(crate) identity: Arc<InstanceContext>,
    pub(crate) limiter: GuestLimiter,
    pub(crate) emit: EmitBuffer,
    pub(crate) log: GuestLog,
    pub(crate) output: Arc<PluginOutput>,
    pub(crate) stdout: LineStream,
    pub(crate) stderr: LineStream,
    pub(crate) config: WasiConfigVariables,
    table: ResourceTable,
    wasi: WasiCtx,
}

impl InstanceState {
    pub(crate) fn new_store(
        engine: &Engine,
        identity: Arc<InstanceContext>,
        limits: &GuestLimits,
        output: Arc<PluginOutput>,
        metering: Metering,
    ) -> Store<Self> {
        let log = GuestLog::new(&identity, limits, Arc::clone(&output));
        let stdout = LineStream::stdout(log.clone());
        let stderr = LineStream::stderr(log.clone());
        let mut table = ResourceTable::new();
        table.set_max_capacity(HANDLES_MAX);
        let state = Self {
            limiter: GuestLimiter::new(limits),
            emit: EmitBuffer::new(&identity, limits),
            config: identity.config.iter().cloned().collect(),
            wasi: empty_wasi(&stdout, &stderr, metering),
            identity,
            log,
            output,
            stdout,
            stderr,
            table,
        };
        let mut store = Store::new(engine, state);
        store.limiter(|state| &mut state.limiter);
        store.set_hostcall_fuel(limits.hostcall_bytes);
        store.set_max_component_handles(HANDLES_MAX);
        store.epoch_deadline_trap();
        store
    }

    /// Writes out what the guest logged without ending the line, and how much was dropped.
    pub(crate) fn end_lines(&self) {
        self.stdout.end_line();
        self.stderr.end_line();
        self.log.report_dropped();
    }
}

/// All of WASI 0.2 and nothing behind it: no environment, arguments, files, sockets or name lookup.
fn empty_wasi(stdout: &LineStream, stderr: &LineStream, metering: Metering) -> WasiCtx {
    let mut wasi = WasiCtx::builder();
    metering.prepare(&mut wasi);
    wasi.stdout(stdout.clone())
        .stderr(stderr.clone())
        .max_random_size(RANDOM_BYTES_MAX)
        .allow_tcp(false)
        .allow_udp(false)
        .allow_ip_name_lookup(false)
        .socket_addr_check(|_, _| Box::pin(async { false }))
        .build()
}

impl WasiView for InstanceState {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}
