//! A transport that answers from a script, for errors that no emulator gives.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aws_config::{Region, SdkConfig};
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use aws_sdk_dynamodb::config::BehaviorVersion;
use aws_smithy_async::rt::sleep::{SharedAsyncSleep, TokioSleep};
use aws_smithy_async::time::SystemTimeSource;
use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpClient,
    SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_runtime_api::http::StatusCode;
use aws_smithy_types::body::SdkBody;
use aws_smithy_types::retry::RetryConfig;

use crate::{AwsClients, AwsOptions, clients_from};

/// A status and a body.
type Reply = (u16, Vec<u8>);

/// Replies in order; when none is left, connections are cut, or refused.
#[derive(Debug, Clone, Default)]
pub(crate) struct TransportDouble {
    replies: Arc<Mutex<VecDeque<Reply>>>,
    requests: Arc<Mutex<Vec<String>>>,
    signed_at: Arc<Mutex<Vec<String>>>,
    authorizations: Arc<Mutex<Vec<String>>>,
    /// Of every reply.
    header: Option<(&'static str, String)>,
    refuses_at_last: bool,
}

impl TransportDouble {
    pub(crate) fn new<const N: usize>(replies: [(u16, &str); N]) -> Self {
        Self::of_bytes(replies.map(|(status, body)| (status, body.into())))
    }

    pub(crate) fn of_bytes<const N: usize>(replies: [Reply; N]) -> Self {
        Self {
            replies: Arc::new(Mutex::new(replies.into())),
            ..Self::default()
        }
    }

    pub(crate) fn with_header(self, name: &'static str, value: impl Into<String>) -> Self {
        Self {
            header: Some((name, value.into())),
            ..self
        }
    }

    /// Refuses connections once no reply is left.
    pub(crate) fn then_refusing(self) -> Self {
        Self {
            refuses_at_last: true,
            ..self
        }
    }

    /// The bodies sent so far.
    pub(crate) fn requests(&self) -> Vec<String> {
        locked(&self.requests).clone()
    }

    /// The times that the requests were signed with, as sent.
    pub(crate) fn signed_at(&self) -> Vec<String> {
        locked(&self.signed_at).clone()
    }

    /// What the requests were signed with, as sent: the key, and the region.
    pub(crate) fn authorizations(&self) -> Vec<String> {
        locked(&self.authorizations).clone()
    }

    /// An AWS chain that was read.
    pub(crate) fn chain(&self, credentials: SharedCredentialsProvider) -> SdkConfig {
        SdkConfig::builder()
            .behavior_version(BehaviorVersion::v2026_01_12())
            .region(Region::new("us-east-1"))
            .credentials_provider(credentials)
            .http_client(SharedHttpClient::new(self.clone()))
            .time_source(SystemTimeSource::new())
            .sleep_impl(SharedAsyncSleep::new(TokioSleep::new()))
            .build()
    }

    /// The clients that a host uses, retries and all.
    pub(crate) fn clients(&self, credentials: SharedCredentialsProvider) -> AwsClients {
        clients_from(&self.chain(credentials), &AwsOptions::default()).unwrap()
    }

    pub(crate) fn kinesis(&self) -> aws_sdk_kinesis::Client {
        let config = aws_sdk_kinesis::Config::builder()
            .behavior_version(BehaviorVersion::v2026_01_12())
            .region(Region::new("us-east-1"))
            .credentials_provider(Credentials::from_keys("a", "b", None))
            .retry_config(RetryConfig::disabled())
            .http_client(SharedHttpClient::new(self.clone()));
        aws_sdk_kinesis::Client::from_conf(config.build())
    }

    pub(crate) fn dynamodb(&self) -> aws_sdk_dynamodb::Client {
        let config = aws_sdk_dynamodb::Config::builder()
            .behavior_version(BehaviorVersion::v2026_01_12())
            .region(Region::new("us-east-1"))
            .credentials_provider(Credentials::from_keys("a", "b", None))
            .retry_config(RetryConfig::disabled())
            .http_client(SharedHttpClient::new(self.clone()));
        aws_sdk_dynamodb::Client::from_conf(config.build())
    }

    fn next_reply(&self) -> Result<HttpResponse, ConnectorError> {
        let cut = || ConnectorError::io("the connection was cut".into());
        let refused = || ConnectorError::io(io::Error::from(ErrorKind::ConnectionRefused).into());
        let next = locked(&self.replies).pop_front();
        let Some((status, body)) = next else {
            return Err(if self.refuses_at_last {
                refused()
            } else {
                cut()
            });
        };
        let status = StatusCode::try_from(status).map_err(|_| cut())?;
        let mut response = HttpResponse::new(status, SdkBody::from(body));
        if let Some((name, value)) = &self.header {
            response.headers_mut().insert(*name, value.clone());
        }
        Ok(response)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl HttpConnector for TransportDouble {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let body = request.body().bytes().unwrap_or_default();
        let body = String::from_utf8_lossy(body).into_owned();
        locked(&self.requests).push(body);
        let date = request.headers().get("x-amz-date").unwrap_or_default();
        locked(&self.signed_at).push(date.to_owned());
        let signed = request.headers().get("authorization").unwrap_or_default();
        locked(&self.authorizations).push(signed.to_owned());
        HttpConnectorFuture::ready(self.next_reply())
    }
}

impl HttpClient for TransportDouble {
    fn http_connector(
        &self,
        _: &HttpConnectorSettings,
        _: &RuntimeComponents,
    ) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}
