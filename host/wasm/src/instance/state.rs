//! What the host keeps for one instance, and the Store around it.

use std::sync::Arc;

use shardmill_core::plugin::{GuestLimits, Permissions, PluginName, ProcessorError};
use shardmill_core::ports::{Charge, InstanceContext, LastOutput};
use tokio_util::sync::CancellationToken;
use wasmtime::Store;
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};
use wasmtime_wasi_http::{WasiHttpCtx, WasiHttpCtxView, WasiHttpView};

use super::handles::{Adds, Handles};
use super::host::InstanceHost;
use super::limiter::GuestLimiter;
use crate::engine::Metering;
use crate::http::Outgoing;
use crate::output::{
    EmitBuffer, GuestIdentity, GuestLog, InstanceGauges, LineStream, PluginOutput,
};
use crate::secrets::Secrets;
use crate::secrets::redactor::Redactor;
use crate::shares::memory_budget::MemoryShare;

/// Random bytes in one call. Seeds take 32.
pub(crate) const RANDOM_BYTES_MAX: u64 = 64 << 10;

/// The state behind the host functions.
pub(crate) struct InstanceState {
    pub(crate) identity: Arc<InstanceContext>,
    /// What its measurements are labelled with.
    pub(crate) label: PluginName,
    pub(crate) limiter: GuestLimiter,
    pub(crate) emit: EmitBuffer,
    pub(crate) log: GuestLog,
    pub(crate) output: Arc<PluginOutput>,
    pub(crate) gauges: InstanceGauges,
    pub(crate) stdout: LineStream,
    pub(crate) stderr: LineStream,
    pub(crate) handles_max: usize,
    pub(crate) secrets: Secrets,
    pub(crate) http: Outgoing,
    http_fields: WasiHttpCtx,
    handles: Handles,
    wasi: WasiCtx,
}

/// What a new instance gets from its host, beyond who it is.
pub(crate) struct Surroundings {
    pub(crate) host: Arc<InstanceHost>,
    pub(crate) output: Arc<PluginOutput>,
    /// Whether it runs in the shadow of the plugin, under a label of its own.
    pub(crate) is_shadow: bool,
    /// Of the memory of all instances.
    pub(crate) share: MemoryShare,
    /// Bytes of that share for what the engine keeps outside of memories and tables.
    pub(crate) instance_bytes: usize,
    /// Cancelled when nobody waits for the instance any more.
    pub(crate) life: CancellationToken,
}

impl InstanceState {
    pub(crate) fn new_store(
        identity: Arc<InstanceContext>,
        limits: &GuestLimits,
        surroundings: Surroundings,
    ) -> Result<Store<Self>, ProcessorError> {
        let host = Arc::clone(&surroundings.host);
        let state = Self::new(identity, limits, surroundings)?;
        let mut store = Store::new(host.engine(), state);
        store.limiter(|state| &mut state.limiter);
        store.set_max_component_handles(limits.handles);
        store.epoch_deadline_trap();
        Ok(store)
    }

    fn new(
        identity: Arc<InstanceContext>,
        limits: &GuestLimits,
        given: Surroundings,
    ) -> Result<Self, ProcessorError> {
        let limiter = GuestLimiter::new(limits, given.share, given.instance_bytes)?;
        let permissions = &identity.permissions;
        let secrets = Secrets::read(&permissions.secrets)?;
        let output = Arc::clone(&given.output);
        let lines = given.host.log_lines().clone();
        let label = label_of(&identity, given.is_shadow);
        let log = GuestLog::new(
            GuestIdentity {
                label: label.clone(),
                application: identity.application.clone(),
                shard: identity.shard.clone(),
                is_shadow: given.is_shadow,
            },
            limits,
            output,
            Redactor::of(&secrets),
            lines,
        );
        let clients = given.host.http_clients();
        let http = Outgoing::new(
            label.as_str(),
            permissions,
            clients,
            log.clone(),
            given.life,
        )?;
        let stdout = LineStream::stdout(log.clone());
        let stderr = LineStream::stderr(log.clone());
        let gauges = given.output.gauges();
        let gauges = gauges.of_instance(label.as_str(), identity.shard.as_str());
        Ok(Self {
            gauges,
            limiter,
            emit: EmitBuffer::new(&identity, limits),
            wasi: wasi(&stdout, &stderr, permissions, given.host.metering()),
            handles: Handles::new(limits.handles, permissions, &clients.limits()),
            http_fields: http.fields(),
            http,
            secrets,
            handles_max: limits.handles,
            log,
            output: given.output,
            stdout,
            stderr,
            label,
            identity,
        })
    }

    /// Takes of the memory no more for the guest's handles than what they keep, now that its call
    /// has ended.
    pub(crate) fn settle_handles(&mut self) {
        self.handles.settle(&mut self.limiter);
    }

    /// What the last call emitted before the instance goes, with what it takes of the memory.
    pub(crate) fn take_last_output(&mut self) -> LastOutput {
        let emitted = self.emit.take();
        if emitted.is_empty() {
            return LastOutput::default();
        }
        let charge: Charge = Box::new(self.limiter.part_with_output());
        LastOutput {
            emitted,
            charges: vec![charge],
        }
    }

    /// Writes out what the guest logged without ending the line, and how much was dropped.
    pub(crate) fn end_lines(&self) {
        self.stdout.end_line();
        self.stderr.end_line();
        self.log.report_dropped();
    }
}

fn label_of(identity: &InstanceContext, is_shadow: bool) -> PluginName {
    if is_shadow {
        identity.plugin.shadow()
    } else {
        identity.plugin.clone()
    }
}

/// All of WASI 0.2 and nothing behind it but granted variables: no arguments, files, sockets or
/// name lookup.
fn wasi(
    stdout: &LineStream,
    stderr: &LineStream,
    permissions: &Permissions,
    metering: Metering,
) -> WasiCtx {
    let mut wasi = WasiCtx::builder();
    metering.prepare(&mut wasi);
    for name in &permissions.env {
        // What is not set here is not set there, and what is not text cannot be passed on.
        if let Ok(value) = std::env::var(name) {
            wasi.env(name, value);
        }
    }
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
        let table = self
            .handles
            .for_call(&mut self.limiter, Adds::Handles, self.http.in_flight());
        WasiCtxView {
            ctx: &mut self.wasi,
            table,
        }
    }
}

impl WasiHttpView for InstanceState {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        let table = self
            .handles
            .for_call(&mut self.limiter, Adds::Http, self.http.in_flight());
        WasiHttpCtxView {
            hooks: &mut self.http,
            table,
            ctx: &mut self.http_fields,
        }
    }
}
