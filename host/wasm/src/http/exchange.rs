//! One request and its response: sent by the host, within all limits.

use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::Body as _;
use reqwest::header::{CONTENT_LENGTH, HOST, HeaderMap, HeaderValue};
use reqwest::{Client, Url};
use shardmill_core::plugin::HttpLimits;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody};

use super::clients::PluginShare;
use super::meaning::{cause, causes, meaning, outcome_of};
use super::queue::Queued;
use super::resolver::{Addresses, LOOKUPS, Unreachable};
use super::response_body::{Bounds, CallBodies, ResponseBody};
use super::tally::{Outcome, Tally};
use crate::bindings::wasi::logging::logging::Level;
use crate::output::GuestLog;

/// A request that was admitted, and what it is held to.
pub(super) struct Exchange {
    pub(super) url: Url,
    pub(super) client: Client,
    pub(super) addresses: Arc<Addresses>,
    pub(super) options: RequestOptions,
    /// The end of the time that the call of the plugin has for requests.
    pub(super) call_deadline: Instant,
    /// Ends with the call.
    pub(super) call: CancellationToken,
    /// Where a response is kept that the guest has not read to its end.
    pub(super) bodies: Arc<CallBodies>,
    /// Where the request waits its turn among those of all instances.
    pub(super) in_flight_total: Arc<Semaphore>,
    /// What the plugin may have of that, and of look-ups.
    pub(super) share: Arc<PluginShare>,
    pub(super) log: GuestLog,
    pub(super) permit: OwnedSemaphorePermit,
}

/// When the parts of an exchange must be over.
struct Deadlines {
    turn: Instant,
    head: Instant,
    body: Instant,
    between_bytes: Duration,
}

/// The head of a response, and the places that it holds among the plugin's requests and the host's
/// while its body is read.
struct Head {
    response: http::Response<reqwest::Body>,
    places: [OwnedSemaphorePermit; 2],
}

impl Deadlines {
    /// What the guest asks for, within the limits.
    fn new(asked: &RequestOptions, limits: &HttpLimits, call_deadline: Instant) -> Self {
        let connect = at_most(limits.connect_timeout, asked.connect_timeout);
        let first_byte = at_most(limits.first_byte_timeout, asked.first_byte_timeout);
        let now = Instant::now();
        let body = call_deadline.min(now + limits.timeout);
        let head = body.min(now + connect + first_byte);
        Self {
            turn: head.min(now + connect),
            head,
            body,
            between_bytes: at_most(limits.between_bytes_timeout, asked.between_bytes_timeout),
        }
    }
}

fn at_most(limit: Duration, asked: Option<Duration>) -> Duration {
    asked.map_or(limit, |asked| asked.min(limit))
}

impl Exchange {
    /// Sends the request when it is its turn among the plugin's; returns the response once its head
    /// is here.
    pub(super) async fn run(
        self,
        queued: Queued,
        request: http::Request<WasiBody>,
        mut tally: Tally,
    ) -> Result<http::Response<WasiBody>, Error> {
        let deadlines = Deadlines::new(&self.options, self.limits(), self.call_deadline);
        let head = tokio::select! {
            biased;
            () = self.call.cancelled() => Err(Error::ConnectionTerminated),
            head = self.head_in_turn(queued, request, &deadlines) => head,
        };
        match head {
            Ok(head) => Ok(self.respond(head, &deadlines, tally)),
            Err(error) => {
                tally.note(outcome_of(&error));
                Err(error)
            }
        }
    }

    fn limits(&self) -> &HttpLimits {
        &self.addresses.options().limits
    }

    async fn head_in_turn(
        &self,
        queued: Queued,
        request: http::Request<WasiBody>,
        deadlines: &Deadlines,
    ) -> Result<Head, Error> {
        let places = self.turn(queued, deadlines.turn).await?;
        let response = LOOKUPS.scope(Arc::clone(&self.share.lookups), self.send(request));
        let response = tokio::time::timeout_at(deadlines.head, response).await;
        Ok(Head {
            response: response.unwrap_or(Err(Error::ConnectionReadTimeout))?,
            places,
        })
    }

    fn respond(
        self,
        head: Head,
        deadlines: &Deadlines,
        mut tally: Tally,
    ) -> http::Response<WasiBody> {
        let (mut parts, body) = head.response.into_parts();
        copy_values(&mut parts.headers);
        tally.note(Outcome::of_status(parts.status.as_u16()));
        let bounds = Bounds {
            bytes_max: self.limits().response_bytes,
            between_bytes: deadlines.between_bytes,
            deadline: deadlines.body,
            call: self.call,
        };
        let [of_plugin, of_host] = head.places;
        let permits = [self.permit, of_plugin, of_host];
        let body = ResponseBody::new(body, bounds, tally, permits, &self.bodies);
        http::Response::from_parts(parts, WasiBody::new(body))
    }

    /// Waits until fewer requests than allowed are in flight, of this plugin and then on this host.
    async fn turn(
        &self,
        queued: Queued,
        deadline: Instant,
    ) -> Result<[OwnedSemaphorePermit; 2], Error> {
        let turn = async {
            let of_plugin = queued.turn().await?;
            let of_host = Arc::clone(&self.in_flight_total).acquire_owned().await?;
            Ok::<_, AcquireError>([of_plugin, of_host])
        };
        if let Ok(Ok(turn)) = tokio::time::timeout_at(deadline, turn).await {
            return Ok(turn);
        }
        let limit = self.limits().in_flight_total;
        self.warn(&format!(
            "a request is refused: {limit} at once are allowed on this host, half of them to one \
                plugin (http.requests-in-flight-total), and none ended in time"
        ));
        Err(Error::ConnectionLimitReached)
    }

    async fn send(
        &self,
        request: http::Request<WasiBody>,
    ) -> Result<http::Response<reqwest::Body>, Error> {
        self.check_literal().await?;
        let limits = self.limits();
        let (parts, body) = request.into_parts();
        let mut headers = parts.headers;
        // The host says both itself: where the request goes, and how long it is.
        headers.remove(HOST);
        headers.remove(CONTENT_LENGTH);
        if is_too_large(&headers, limits) {
            let most = size(limits.header_bytes);
            return Err(Error::HttpRequestHeaderSectionSize(most));
        }
        let body = collected(body, limits.request_bytes).await?;
        let request = self
            .client
            .request(parts.method, self.url.clone())
            .headers(headers)
            .body(body);
        let response = request
            .send()
            .await
            .map_err(|error| self.explained(&error))?;
        check_head(&response, limits)?;
        Ok(response.into())
    }

    /// A URL may contain an address, which is connected to directly and never passes the resolver.
    async fn check_literal(&self) -> Result<(), Error> {
        let literal = self
            .url
            .host_str()
            .and_then(|host| host.trim_matches(['[', ']']).parse::<IpAddr>().ok());
        let (Some(address), Some(port)) = (literal, self.url.port_or_known_default()) else {
            return Ok(());
        };
        self.addresses
            .check(address, port)
            .await
            .map_err(|refusal| self.unreachable(&refusal))
    }

    /// As the guest sees it. What concerns only the operator goes to the log.
    fn explained(&self, error: &reqwest::Error) -> Error {
        if let Some(unreachable) = cause::<Unreachable>(error) {
            return self.unreachable(unreachable);
        }
        if error.is_connect() {
            // The guest's error cannot say what is wrong with a certificate, for example.
            let why = causes(error).last().map(ToString::to_string);
            let why = why.unwrap_or_else(|| "no connection".to_owned());
            self.warn_not_sent(&why);
        }
        meaning(error)
    }

    fn unreachable(&self, unreachable: &Unreachable) -> Error {
        let (error, fix) = match unreachable {
            Unreachable::Refused(refusal) if !refusal.can_be_allowed() => (
                Error::DestinationIpProhibited,
                ", which no plugin may reach",
            ),
            Unreachable::Refused(_) => (
                Error::DestinationIpProhibited,
                "; to allow it, add its network to http.allow-private in the host's configuration",
            ),
            Unreachable::HostsOwn(_) => (Error::DestinationIpProhibited, ""),
            Unreachable::Unknown(_) => (
                Error::DnsError {
                    rcode: None,
                    info_code: None,
                },
                "",
            ),
        };
        self.warn_not_sent(&format!("{unreachable}{fix}"));
        error
    }

    fn warn_not_sent(&self, why: &str) {
        let host = self.url.host_str().unwrap_or_default();
        self.warn(&format!("a request to {host} is not sent: {why}"));
    }

    fn warn(&self, message: &str) {
        self.log.write(Level::Warn, "http", message);
    }
}

fn check_head(response: &reqwest::Response, limits: &HttpLimits) -> Result<(), Error> {
    if is_too_large(response.headers(), limits) {
        let most = size(limits.header_bytes);
        return Err(Error::HttpResponseHeaderSectionSize(most));
    }
    let most = limits.response_bytes as u64;
    if response.content_length().is_some_and(|bytes| bytes > most) {
        return Err(Error::HttpResponseBodySize(Some(most)));
    }
    Ok(())
}

/// All of a request's body, so that what the host holds is bounded before anything is sent.
async fn collected(mut body: WasiBody, bytes_max: usize) -> Result<Bytes, Error> {
    let mut bytes = BytesMut::new();
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        let Ok(data) = frame?.into_data() else {
            continue;
        };
        if bytes.len() + data.len() > bytes_max {
            return Err(Error::HttpRequestBodySize(Some(bytes_max as u64)));
        }
        bytes.extend_from_slice(&data);
    }
    Ok(bytes.freeze())
}

fn is_too_large(headers: &HeaderMap, limits: &HttpLimits) -> bool {
    let bytes: usize = headers
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len())
        .sum();
    headers.len() > limits.headers || bytes > limits.header_bytes
}

/// Lets go of what was read from the connection, which each value is a part of: a guest may keep
/// them.
fn copy_values(headers: &mut HeaderMap) {
    for value in headers.values_mut() {
        // What was a value is one.
        if let Ok(copy) = HeaderValue::from_bytes(value.as_bytes()) {
            *value = copy;
        }
    }
}

fn size(bytes: usize) -> Option<u32> {
    u32::try_from(bytes).ok()
}
