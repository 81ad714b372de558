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

impl Exchange {
    /// Sends the request when it is its turn among the plugin's; gives the response once its head
    /// is here.
    pub(super) async fn run(
        self,
        queued: Queued,
        request: http::Request<WasiBody>,
        mut tally: Tally,
    ) -> Result<http::Response<WasiBody>, Error> {
        let limits = self.addresses.options().limits;
        let at_most = |asked: Option<Duration>, limit: Duration| {
            asked.map_or(limit, |asked| asked.min(limit))
        };
        let now = Instant::now();
        let deadline = self.call_deadline.min(now + limits.timeout);
        let connect = at_most(self.options.connect_timeout, limits.connect_timeout);
        let first_byte = at_most(self.options.first_byte_timeout, limits.first_byte_timeout);
        let head_deadline = deadline.min(now + connect + first_byte);
        let head = tokio::select! {
            biased;
            () = self.call.cancelled() => Err(Error::ConnectionTerminated),
            head = async {
                let turn = self.turn(queued, head_deadline.min(now + connect)).await?;
                let head = LOOKUPS.scope(Arc::clone(&self.share.lookups), self.head(request, &limits));
                let head = tokio::time::timeout_at(head_deadline, head).await;
                head.unwrap_or(Err(Error::ConnectionReadTimeout)).map(|head| (head, turn))
            } => head,
        };
        let (head, turn) = match head {
            Ok(head) => head,
            Err(error) => {
                tally.tell(outcome_of(&error));
                return Err(error);
            }
        };
        let (mut parts, body) = head.into_parts();
        copy_values(&mut parts.headers);
        tally.tell(Outcome::of_status(parts.status.as_u16()));
        let between_bytes = at_most(
            self.options.between_bytes_timeout,
            limits.between_bytes_timeout,
        );
        let bounds = Bounds {
            bytes_max: limits.response_bytes,
            between_bytes,
            deadline,
            call: self.call,
        };
        let [of_plugin, of_host] = turn;
        let body = ResponseBody::new(
            body,
            bounds,
            tally,
            [self.permit, of_plugin, of_host],
            &self.bodies,
        );
        Ok(http::Response::from_parts(parts, WasiBody::new(body)))
    }

    /// Waits until fewer requests than allowed are in flight, of this plugin and then on this host.
    async fn turn(
        &self,
        queued: Queued,
        deadline: Instant,
    ) -> Result<[OwnedSemaphorePermit; 2], Error> {
        let turn = async {
            let of_plugin = queued.turn().await?;
            Ok::<_, AcquireError>([
                of_plugin,
                Arc::clone(&self.in_flight_total).acquire_owned().await?,
            ])
        };
        if let Ok(Ok(turn)) = tokio::time::timeout_at(deadline, turn).await {
            return Ok(turn);
        }
        let limit = self.addresses.options().limits.in_flight_total;
        let message = format!(
            "a request is refused: {limit} at once are allowed on this host, half of them to one \
                plugin (http.requests-in-flight-total), and none ended in time"
        );
        self.log.write(Level::Warn, "http", &message);
        Err(Error::ConnectionLimitReached)
    }

    async fn head(
        &self,
        request: http::Request<WasiBody>,
        limits: &HttpLimits,
    ) -> Result<http::Response<reqwest::Body>, Error> {
        self.check_literal().await?;
        let (parts, body) = request.into_parts();
        let mut headers = parts.headers;
        // The host says both itself: where the request goes, and how long it is.
        headers.remove(HOST);
        headers.remove(CONTENT_LENGTH);
        if is_too_large(&headers, limits) {
            return Err(Error::HttpRequestHeaderSectionSize(size(
                limits.header_bytes,
            )));
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
        if is_too_large(response.headers(), limits) {
            return Err(Error::HttpResponseHeaderSectionSize(size(
                limits.header_bytes,
            )));
        }
        if response
            .content_length()
            .is_some_and(|bytes| bytes > limits.response_bytes as u64)
        {
            return Err(Error::HttpResponseBodySize(Some(
                limits.response_bytes as u64,
            )));
        }
        Ok(response.into())
    }

    /// An address in the URL is connected to as it stands; no resolver sees it.
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
            .map_err(|refusal| self.told(&refusal))
    }

    /// As the guest sees it; what is no business of the guest's goes to the log.
    fn explained(&self, error: &reqwest::Error) -> Error {
        if let Some(unreachable) = cause::<Unreachable>(error) {
            return self.told(unreachable);
        }
        if error.is_connect() {
            // What is wrong with a certificate, say, the guest's error has no words for.
            let (host, last) = (
                self.url.host_str().unwrap_or_default(),
                causes(error).last().map(ToString::to_string),
            );
            let why = last.unwrap_or_else(|| "no connection".to_owned());
            self.log.write(
                Level::Warn,
                "http",
                &format!("a request to {host} is not sent: {why}"),
            );
        }
        meaning(error)
    }

    fn told(&self, unreachable: &Unreachable) -> Error {
        let host = self.url.host_str().unwrap_or_default();
        let (error, mend) = match unreachable {
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
        self.log.write(
            Level::Warn,
            "http",
            &format!("a request to {host} is not sent: {unreachable}{mend}"),
        );
        error
    }
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
