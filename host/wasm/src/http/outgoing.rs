//! What one instance may send, and what it is sending.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::uri::Scheme;
use reqwest::{Client, Method, Url};
use shardmill_core::plugin::{HttpHost, HttpLimits, HttpScheme, Permissions, ProcessorError};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody, WasiHttpCtx, WasiHttpHooks};

use super::clients::{HttpClients, PluginShare};
use super::exchange::Exchange;
use super::queue::Queued;
use super::resolver::Addresses;
use super::response_body::CallBodies;
use super::tally::{Outcome, Tally};
use crate::bindings::wasi::logging::logging::Level;
use crate::output::GuestLog;

/// Bytes of a set of headers that a guest builds, for one that may send nothing: it can hold a
/// thousand of them.
const FIELD_BYTES_UNGRANTED: usize = 8 << 10;
/// What an entry costs besides its text, twice over; wasmtime's limit counts it.
const FIELD_BYTES_EACH: usize = 160;
/// Bytes of a body that a guest may write ahead of what is sent. Small, because bodies that are
/// never sent hold them too.
pub(crate) const BODY_CHUNK_BYTES: usize = 16 << 10;

type Sent = Result<
    (
        http::Response<WasiBody>,
        Box<dyn Future<Output = Result<(), Error>> + Send>,
    ),
    Error,
>;

/// The requests of one instance.
pub(crate) struct Outgoing {
    plugin: String,
    hosts: Vec<HttpHost>,
    clients: BTreeMap<u16, Client>,
    addresses: Arc<Addresses>,
    /// Of all instances of all plugins.
    in_flight_total: Arc<Semaphore>,
    /// Of all instances of this plugin.
    share: Arc<PluginShare>,
    log: GuestLog,
    /// Ends with the instance.
    life: CancellationToken,
    call: Call,
}

/// One call into the guest. Requests do not outlive it.
struct Call {
    end: CancellationToken,
    deadline: Instant,
    requests: usize,
    in_flight: Arc<Semaphore>,
    bodies: Arc<CallBodies>,
}

/// Why a request is not sent.
enum NotAdmitted {
    /// No URL, or none that a client takes.
    Uri,
    /// A method that makes a tunnel.
    Method,
    /// To a host that is not granted.
    Host(Url),
    /// More than allowed in one call.
    PerCall(usize),
    /// More than allowed at once.
    InFlight(usize),
}

impl Outgoing {
    /// Blocks while certificates are read, the first time that a port is granted.
    pub(crate) fn new(
        plugin: &str,
        permissions: &Permissions,
        clients: &HttpClients,
        log: GuestLog,
        life: CancellationToken,
    ) -> Result<Self, ProcessorError> {
        let addresses = Arc::clone(clients.addresses());
        let limits = addresses.options().limits;
        Ok(Self {
            plugin: plugin.to_owned(),
            hosts: permissions.http.clone(),
            clients: clients.of_ports(permissions.http.iter().map(HttpHost::port).collect())?,
            call: Call::new(Duration::ZERO, &limits, &life),
            life,
            addresses,
            in_flight_total: Arc::clone(clients.in_flight()),
            share: clients.share_of(plugin),
            log,
        })
    }

    /// Limits of what a guest builds in the host's memory.
    pub(crate) fn fields(&self) -> WasiHttpCtx {
        let mut fields = WasiHttpCtx::new();
        fields.set_field_size_limit(field_bytes_max(&self.hosts, &self.limits()));
        fields
    }

    /// Starts a call that may take this long. A tenth of it is kept for the guest, to tell what
    /// became of its requests.
    pub(crate) fn open(&mut self, deadline: Duration) {
        self.close();
        self.call = Call::new(
            deadline.saturating_sub(deadline / 10),
            &self.limits(),
            &self.life,
        );
    }

    /// Ends the call, and whatever it has not finished: also responses that the guest keeps and
    /// does not read.
    pub(crate) fn close(&self) {
        self.call.end.cancel();
        self.call.bodies.close();
    }

    /// Requests of the call that are on their way, or whose responses are not read to their end.
    pub(crate) fn in_flight(&self) -> usize {
        self.limits()
            .in_flight
            .saturating_sub(self.call.in_flight.available_permits())
    }

    fn limits(&self) -> HttpLimits {
        self.addresses.options().limits
    }

    fn admit(
        &mut self,
        request: &http::Request<WasiBody>,
        options: Option<RequestOptions>,
    ) -> Result<Exchange, NotAdmitted> {
        let limits = self.limits();
        self.call.requests += 1;
        if self.call.requests > limits.per_call {
            return Err(NotAdmitted::PerCall(limits.per_call));
        }
        if request.method() == Method::CONNECT {
            return Err(NotAdmitted::Method);
        }
        // Judged as the client will read it, which takes `0x7f.1` for an address.
        let url = Url::parse(&request.uri().to_string()).map_err(|_| NotAdmitted::Uri)?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(NotAdmitted::Uri);
        }
        let scheme = match request.uri().scheme() {
            Some(scheme) if *scheme == Scheme::HTTP => HttpScheme::Http,
            Some(scheme) if *scheme == Scheme::HTTPS => HttpScheme::Https,
            _ => return Err(NotAdmitted::Uri),
        };
        let port = url.port().unwrap_or(scheme.default_port());
        let host = url.host_str().ok_or(NotAdmitted::Uri)?;
        let is_granted = self
            .hosts
            .iter()
            .any(|granted| granted.admits(scheme, host, port));
        let Some(client) = self.clients.get(&port).filter(|_| is_granted) else {
            return Err(NotAdmitted::Host(url));
        };
        let permit = Arc::clone(&self.call.in_flight).try_acquire_owned();
        Ok(Exchange {
            client: client.clone(),
            url,
            addresses: Arc::clone(&self.addresses),
            options: options.unwrap_or_default(),
            call_deadline: self.call.deadline,
            call: self.call.end.clone(),
            bodies: Arc::clone(&self.call.bodies),
            in_flight_total: Arc::clone(&self.in_flight_total),
            share: Arc::clone(&self.share),
            log: self.log.clone(),
            permit: permit.map_err(|_| NotAdmitted::InFlight(limits.in_flight))?,
        })
    }

    /// Tells the operator, and gives what the guest is told.
    fn refuse(&self, refusal: &NotAdmitted) -> (Error, Outcome) {
        let (error, outcome, message) = match refusal {
            NotAdmitted::Uri => return (Error::HttpRequestUriInvalid, Outcome::Failed),
            NotAdmitted::Method => return (Error::HttpRequestMethodInvalid, Outcome::Failed),
            NotAdmitted::Host(url) => {
                let (scheme, host) = (url.scheme(), url.host_str().unwrap_or_default());
                let port = url
                    .port()
                    .map_or_else(String::new, |port| format!(":{port}"));
                let message = format!(
                    "a request to {scheme}://{host}{port} is denied: the plugin is not granted \
                        that host; add it to http under [grants]"
                );
                (Error::HttpRequestDenied, Outcome::Denied, message)
            }
            NotAdmitted::PerCall(limit) => {
                let message = format!(
                    "a request is refused: {limit} in one call are allowed (http.requests-per-call)"
                );
                (Error::ConnectionLimitReached, Outcome::TooMany, message)
            }
            NotAdmitted::InFlight(limit) => {
                let message = format!(
                    "a request is refused: {limit} at once are allowed (http.requests-in-flight)"
                );
                (Error::ConnectionLimitReached, Outcome::TooMany, message)
            }
        };
        self.log.write(Level::Warn, "http", &message);
        (error, outcome)
    }
}

/// Bytes of a set of headers that a guest builds, as wasmtime counts them, if it may send to these
/// hosts.
pub(crate) fn field_bytes_max(hosts: &[HttpHost], limits: &HttpLimits) -> usize {
    if hosts.is_empty() {
        FIELD_BYTES_UNGRANTED
    } else {
        limits.header_bytes + limits.headers * FIELD_BYTES_EACH
    }
}

impl Call {
    fn new(time: Duration, limits: &HttpLimits, life: &CancellationToken) -> Self {
        Self {
            end: life.child_token(),
            deadline: Instant::now() + time,
            requests: 0,
            in_flight: Arc::new(Semaphore::new(limits.in_flight)),
            bodies: Arc::default(),
        }
    }
}

impl WasiHttpHooks for Outgoing {
    fn send_request(
        &mut self,
        request: http::Request<WasiBody>,
        options: Option<RequestOptions>,
        _processed: Box<dyn Future<Output = Result<(), Error>> + Send>,
    ) -> Box<dyn Future<Output = Sent> + Send> {
        let mut tally = Tally::new(&self.plugin);
        match self.admit(&request, options) {
            Ok(exchange) => {
                let queued = Queued::new(&self.share.in_flight);
                Box::new(async move {
                    let response = exchange.run(queued, request, tally).await?;
                    // The client drives its connection itself.
                    let nothing: Box<dyn Future<Output = _> + Send> =
                        Box::new(std::future::ready(Ok(())));
                    Ok((response, nothing))
                })
            }
            Err(refusal) => {
                let (error, outcome) = self.refuse(&refusal);
                tally.tell(outcome);
                Box::new(std::future::ready(Err(error)))
            }
        }
    }

    /// The host names the host that it connects to.
    fn set_host_header(&mut self) -> bool {
        false
    }

    fn p2_outgoing_body_chunk_size(&mut self) -> usize {
        BODY_CHUNK_BYTES
    }
}
