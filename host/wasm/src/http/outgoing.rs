//! What one instance may send, and what it is sending.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::uri::Scheme;
use http::{HeaderMap, HeaderValue};
use reqwest::{Client, Method, Url};
use shardmill_core::plugin::{HttpHost, HttpLimits, HttpScheme, Permissions, ProcessorError};
use shardmill_core::trace::TraceContext;
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

/// The header of W3C Trace Context.
const TRACEPARENT: &str = "traceparent";

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
    /// The span that requests belong to, if the batch is traced.
    span: Option<TraceContext>,
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
    /// Not a URL that a client takes.
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
            span: None,
        })
    }

    /// Limits of what a guest builds in the host's memory.
    pub(crate) fn fields(&self) -> WasiHttpCtx {
        let mut fields = WasiHttpCtx::new();
        fields.set_field_size_limit(field_bytes_max(&self.hosts, &self.limits()));
        fields
    }

    /// Starts a call that may take this long. A tenth of it is kept for the guest, to report
    /// what became of its requests.
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

    /// Requests belong to this span from now on, or to none.
    pub(crate) fn belong_to(&mut self, span: Option<TraceContext>) {
        self.span = span;
    }

    /// Names the span in the request's headers, unless the guest names one: then it traces itself.
    fn name_span(&self, headers: &mut HeaderMap) {
        let Some(span) = self.span else { return };
        if headers.contains_key(TRACEPARENT) {
            return;
        }
        // Digits and dashes are always a value.
        if let Ok(value) = HeaderValue::from_str(&span.to_string()) {
            headers.insert(TRACEPARENT, value);
        }
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
        let target = Target::of(request)?;
        let Some(client) = self.client_for(&target) else {
            return Err(NotAdmitted::Host(target.url));
        };
        let permit = Arc::clone(&self.call.in_flight).try_acquire_owned();
        Ok(Exchange {
            client: client.clone(),
            url: target.url,
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

    /// `None` if the plugin may not send there.
    fn client_for(&self, target: &Target) -> Option<&Client> {
        let host = target.url.host_str()?;
        let is_granted = self
            .hosts
            .iter()
            .any(|granted| granted.admits(target.scheme, host, target.port));
        if is_granted {
            self.clients.get(&target.port)
        } else {
            None
        }
    }
}

/// Where a request goes, as the client will read it: that takes `0x7f.1` for an address.
struct Target {
    url: Url,
    scheme: HttpScheme,
    port: u16,
}

impl Target {
    fn of(request: &http::Request<WasiBody>) -> Result<Self, NotAdmitted> {
        if request.method() == Method::CONNECT {
            return Err(NotAdmitted::Method);
        }
        let url = Url::parse(&request.uri().to_string()).map_err(|_| NotAdmitted::Uri)?;
        let names_user = !url.username().is_empty() || url.password().is_some();
        if names_user || url.host_str().is_none() {
            return Err(NotAdmitted::Uri);
        }
        let scheme = match request.uri().scheme() {
            Some(scheme) if *scheme == Scheme::HTTP => HttpScheme::Http,
            Some(scheme) if *scheme == Scheme::HTTPS => HttpScheme::Https,
            _ => return Err(NotAdmitted::Uri),
        };
        let port = url.port().unwrap_or(scheme.default_port());
        Ok(Self { url, scheme, port })
    }
}

impl NotAdmitted {
    /// What the guest sees.
    fn error(&self) -> Error {
        match self {
            Self::Uri => Error::HttpRequestUriInvalid,
            Self::Method => Error::HttpRequestMethodInvalid,
            Self::Host(_) => Error::HttpRequestDenied,
            Self::PerCall(_) | Self::InFlight(_) => Error::ConnectionLimitReached,
        }
    }

    fn outcome(&self) -> Outcome {
        match self {
            Self::Uri | Self::Method => Outcome::Failed,
            Self::Host(_) => Outcome::Denied,
            Self::PerCall(_) | Self::InFlight(_) => Outcome::TooMany,
        }
    }

    /// What the operator sees; nothing where no setting would help.
    fn message(&self) -> Option<String> {
        Some(match self {
            Self::Uri | Self::Method => return None,
            Self::Host(url) => {
                let (scheme, host) = (url.scheme(), url.host_str().unwrap_or_default());
                let port = url
                    .port()
                    .map_or_else(String::new, |port| format!(":{port}"));
                format!(
                    "a request to {scheme}://{host}{port} is denied: the plugin is not granted \
                        that host; add it to http under [grants]"
                )
            }
            Self::PerCall(limit) => format!(
                "a request is refused: {limit} in one call are allowed (http.requests-per-call)"
            ),
            Self::InFlight(limit) => format!(
                "a request is refused: {limit} at once are allowed (http.requests-in-flight)"
            ),
        })
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
        mut request: http::Request<WasiBody>,
        options: Option<RequestOptions>,
        _processed: Box<dyn Future<Output = Result<(), Error>> + Send>,
    ) -> Box<dyn Future<Output = Sent> + Send> {
        let mut tally = Tally::new(&self.plugin);
        match self.admit(&request, options) {
            Ok(exchange) => {
                self.name_span(request.headers_mut());
                let queued = Queued::new(&self.share.in_flight);
                Box::new(sent(exchange, queued, request, tally))
            }
            Err(refusal) => {
                if let Some(message) = refusal.message() {
                    self.log.write(Level::Warn, "http", &message);
                }
                tally.note(refusal.outcome());
                Box::new(std::future::ready(Err(refusal.error())))
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

async fn sent(
    exchange: Exchange,
    queued: Queued,
    request: http::Request<WasiBody>,
    tally: Tally,
) -> Sent {
    let response = exchange.run(queued, request, tally).await?;
    // The client drives its connection itself.
    let nothing: Box<dyn Future<Output = _> + Send> = Box::new(std::future::ready(Ok(())));
    Ok((response, nothing))
}
