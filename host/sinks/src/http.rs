//! An HTTP endpoint as a sink: each request is a `POST` of some pieces.
//!
//! 2xx means stored. Answers that are worth another try (429, 408, 425, 5xx, no answer) and those
//! that are not (other 3xx and 4xx) both come back as errors and block, visibly; nothing is
//! dropped, since the endpoint may be fixed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, StatusCode, Url};
use shardmill_core::ports::Origin;
use shardmill_core::stream::Emitted;
use shardmill_core::trace::BatchTrace;

use super::LineFormat;
use super::body::{Body, BodyFormat};
use super::network::{Attempt, Carrier, NetworkSink, Traffic};
use super::open_error::OpenError;
use super::secret::HeaderSource;

/// Bytes of an answer that are read: a reason, and enough that a kept-alive connection can be used
/// again.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// Characters of an answer that are shown.
const ANSWER_CHARS_SHOWN: usize = 300;

/// The header of W3C Trace Context.
const TRACEPARENT: &str = "traceparent";

/// Where and how to post.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpSinkOptions {
    /// The endpoint, without user and password.
    pub url: Url,
    /// Headers of every request, by name; a value may be a secret.
    pub headers: BTreeMap<String, HeaderSource>,
    /// How a piece looks.
    pub format: LineFormat,
    /// How pieces are put together.
    pub body: BodyFormat,
    /// Most pieces of a request.
    pub records: usize,
    /// Most bytes of a request's body.
    pub request_bytes: usize,
    /// How long connecting may take.
    pub connect_timeout: Duration,
    /// How long a request may take, from connecting to the end of the answer.
    pub timeout: Duration,
    /// Requests at the same time, over all shards.
    pub concurrency: usize,
}

/// Posts emitted pieces.
#[derive(Clone)]
pub(super) struct HttpCarrier {
    client: Client,
    url: Url,
    format: LineFormat,
    body: BodyFormat,
    records: usize,
    request_bytes: usize,
    traffic: Traffic,
}

/// What is posted.
pub(super) struct HttpRequest {
    body: Bytes,
    /// Names the span of the write, if the batch is traced.
    traceparent: Option<HeaderValue>,
}

impl HttpCarrier {
    /// Reads header values from where they are kept, and makes the client. Sends nothing.
    pub(super) fn new(name: &str, options: &HttpSinkOptions) -> Result<Self, OpenError> {
        let headers = headers(name, options)?;
        let client = client(options, headers).map_err(|source| OpenError::Http {
            sink: name.to_owned(),
            source,
        })?;
        Ok(Self {
            client,
            url: options.url.clone(),
            format: options.format,
            body: options.body,
            records: options.records,
            request_bytes: options.request_bytes,
            traffic: Traffic {
                requests_max: options.concurrency,
                turn_max: options.timeout,
            },
        })
    }

    /// The same endpoint, with pieces in another format.
    pub(super) fn with_format(&self, format: LineFormat) -> Self {
        Self {
            format,
            ..self.clone()
        }
    }

    pub(super) fn into_sink(self, name: &str) -> NetworkSink<Self> {
        let traffic = self.traffic;
        NetworkSink::new(name, self, traffic)
    }
}

impl Carrier for HttpCarrier {
    type Request = HttpRequest;

    fn request(
        &self,
        origin: &Origin,
        pieces: &[Emitted],
        left: &BTreeSet<usize>,
    ) -> Result<(Vec<usize>, Self::Request), String> {
        let mut body = Body::new(self.body, self.format, self.request_bytes);
        let mut indexes = Vec::new();
        for &index in left.iter().take(self.records) {
            match body.add(origin, &pieces[index]) {
                Ok(()) => indexes.push(index),
                Err(_) if !indexes.is_empty() => break,
                Err(size) => {
                    return Err(format!(
                        "piece {index} of the batch is {size} bytes when sent, and a request \
                            holds {}: emit less, or raise request-bytes if the endpoint takes more",
                        self.request_bytes
                    ));
                }
            }
        }
        let request = HttpRequest {
            body: body.finish().into(),
            traceparent: origin.trace.as_ref().and_then(traceparent),
        };
        Ok((indexes, request))
    }

    async fn send(&self, request: &Self::Request) -> Attempt {
        let mut post = self.client.post(self.url.clone());
        if let Some(traceparent) = &request.traceparent {
            post = post.header(TRACEPARENT, traceparent);
        }
        match post.body(request.body.clone()).send().await {
            Ok(response) => judge(response).await,
            Err(error) => Attempt::Failed {
                problem: describe(error),
                wait: None,
            },
        }
    }
}

/// The value of the header that names the span of the write.
fn traceparent(trace: &BatchTrace) -> Option<HeaderValue> {
    HeaderValue::from_str(&trace.context.to_string()).ok()
}

fn headers(name: &str, options: &HttpSinkOptions) -> Result<HeaderMap, OpenError> {
    let mut headers = HeaderMap::new();
    let content_type = HeaderValue::from_static(options.body.content_type());
    headers.insert(CONTENT_TYPE, content_type);
    for (header, source) in &options.headers {
        let problem = |message: String| OpenError::Header {
            sink: name.to_owned(),
            header: header.clone(),
            message,
        };
        let value = source.header_value().map_err(problem)?;
        let header = HeaderName::try_from(header);
        headers.insert(header.map_err(|error| problem(error.to_string()))?, value);
    }
    Ok(headers)
}

fn client(options: &HttpSinkOptions, headers: HeaderMap) -> reqwest::Result<Client> {
    Client::builder()
        .default_headers(headers)
        .user_agent(concat!("shardmill/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(options.connect_timeout)
        .timeout(options.timeout)
        // A redirected POST may become a GET: configure the final address instead.
        .redirect(Policy::none())
        .build()
}

async fn judge(mut response: Response) -> Attempt {
    let status = response.status();
    let wait = retry_after(response.headers());
    let answer = read(&mut response).await;
    if status.is_success() {
        return Attempt::Stored;
    }
    let problem = if answer.is_empty() {
        status.to_string()
    } else {
        format!("{status}: {answer}")
    };
    match status {
        StatusCode::TOO_MANY_REQUESTS => Attempt::Throttled { problem, wait },
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY => Attempt::Failed { problem, wait },
        StatusCode::PAYLOAD_TOO_LARGE => Attempt::Failed {
            problem: format!("{problem} (the endpoint takes less: lower request-bytes)"),
            wait,
        },
        status if status.is_server_error() => Attempt::Failed { problem, wait },
        _ => Attempt::Failed {
            problem: format!(
                "{problem} (the endpoint refuses this request: fix the endpoint, the url or the headers)"
            ),
            wait,
        },
    }
}

/// Seconds only: a date would need clocks that agree.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers
        .get(RETRY_AFTER)?
        .to_str()
        .ok()?
        .trim()
        .parse()
        .ok()?;
    Some(Duration::from_secs(seconds))
}

/// The answer's start as one line; an endless answer is cut off.
async fn read(response: &mut Response) -> String {
    let mut bytes = Vec::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        bytes.extend_from_slice(&chunk[..chunk.len().min(ANSWER_BYTES_MAX - bytes.len())]);
        if bytes.len() == ANSWER_BYTES_MAX {
            break;
        }
    }
    let text = String::from_utf8_lossy(&bytes);
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    text.chars()
        .filter(|c| !c.is_control())
        .take(ANSWER_CHARS_SHOWN)
        .collect()
}

/// The whole chain of causes, without the address: it may hold a token.
fn describe(error: reqwest::Error) -> String {
    let what = match &error {
        error if error.is_timeout() => "no answer in time",
        error if error.is_connect() => "cannot connect",
        _ => "the request failed",
    };
    let error = error.without_url();
    let mut text = format!("{what}: {error}");
    // Writing to a string cannot fail.
    let mut cause = std::error::Error::source(&error);
    while let Some(error) = cause {
        let _ = write!(text, ": {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests;
