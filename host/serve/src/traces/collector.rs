//! The collector, over HTTP.

use std::time::Duration;

use anyhow::{Context, anyhow};
use bytes::Bytes;
use prost::Message;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, StatusCode, Url};

use super::message::ExportResponse;
use super::settings::Settings;

/// Bytes of an answer that are read: some numbers and a reason.
const ANSWER_BYTES_MAX: usize = 16 << 10;
/// How long connecting may take. A collector is near.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// See the module's description.
pub(super) struct Collector {
    client: Client,
    url: Url,
}

/// What a collector says to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// It took all spans but so many.
    Taken {
        /// Spans that it refused.
        refused: u64,
        /// Why it did.
        problem: String,
    },
    /// It may take them later.
    Later {
        /// What happened.
        problem: String,
        /// How long it asks to wait.
        wait: Option<Duration>,
    },
    /// It will never take them.
    Never {
        /// Why.
        problem: String,
    },
}

impl Collector {
    /// Reads header values from where they are kept, and makes the client. Sends nothing.
    pub(super) fn new(settings: &Settings) -> anyhow::Result<Self> {
        let mut headers = HeaderMap::new();
        let protobuf = HeaderValue::from_static("application/x-protobuf");
        headers.insert(CONTENT_TYPE, protobuf);
        for (name, source) in &settings.headers {
            let value = source.header_value().map_err(|problem| anyhow!(problem));
            let value = value.with_context(|| format!("traces.headers.{name}"))?;
            headers.insert(HeaderName::try_from(name)?, value);
        }
        let client = Client::builder()
            .default_headers(headers)
            .user_agent(concat!("shardmill/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(settings.timeout)
            // A redirected POST may become a GET, and takes the headers elsewhere.
            .redirect(Policy::none())
            .build()?;
        let url = settings.url.clone().context("no endpoint")?;
        Ok(Self { client, url })
    }

    /// Where spans are sent to, for the log: a query may hold a token.
    pub(super) fn address(&self) -> String {
        let mut shown = self.url.clone();
        shown.set_query(None);
        shown.into()
    }

    /// Sends one request, without a retry.
    pub(super) async fn send(&self, body: Bytes) -> Answer {
        match self.client.post(self.url.clone()).body(body).send().await {
            Ok(response) => judge(response).await,
            Err(error) => {
                let what = match &error {
                    error if error.is_timeout() => "no answer in time",
                    error if error.is_connect() => "cannot connect",
                    _ => "the request failed",
                };
                Answer::Later {
                    problem: what.to_owned(),
                    wait: None,
                }
            }
        }
    }
}

/// What OTLP says about statuses (OTLP 1.x, "OTLP/HTTP Response").
async fn judge(mut response: Response) -> Answer {
    let status = response.status();
    let wait = retry_after(response.headers());
    if !status.is_success() {
        let problem = format!("it answered {status}");
        let is_passing = [
            StatusCode::TOO_MANY_REQUESTS,
            StatusCode::BAD_GATEWAY,
            StatusCode::SERVICE_UNAVAILABLE,
            StatusCode::GATEWAY_TIMEOUT,
        ];
        return if is_passing.contains(&status) {
            Answer::Later { problem, wait }
        } else {
            Answer::Never { problem }
        };
    }
    let body = read(&mut response).await;
    let answer = ExportResponse::decode(&*body).unwrap_or_default();
    let partial = answer.partial_success.unwrap_or_default();
    Answer::Taken {
        refused: u64::try_from(partial.rejected_spans).unwrap_or_default(),
        problem: partial.error_message.chars().take(300).collect(),
    }
}

/// Seconds only: a date would need clocks that agree.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?;
    Some(Duration::from_secs(text.trim().parse().ok()?))
}

/// The answer; one that is too long is cut off, and then says nothing.
async fn read(response: &mut Response) -> Vec<u8> {
    let mut bytes = Vec::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        if bytes.len() + chunk.len() > ANSWER_BYTES_MAX {
            return Vec::new();
        }
        bytes.extend_from_slice(&chunk);
    }
    bytes
}
