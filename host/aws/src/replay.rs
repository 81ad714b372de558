//! A transport that answers from a script, for errors that no emulator gives.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use aws_credential_types::Credentials;
use aws_sdk_dynamodb::config::BehaviorVersion;
use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpClient, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_runtime_api::http::StatusCode;
use aws_smithy_types::body::SdkBody;
use aws_smithy_types::retry::RetryConfig;

/// Replies in order; none left is a cut connection.
#[derive(Debug, Clone, Default)]
pub(crate) struct Replay {
    replies: Arc<Mutex<VecDeque<(u16, String)>>>,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Replay {
    pub(crate) fn new<const N: usize>(replies: [(u16, &str); N]) -> Self {
        let replies = replies.into_iter().map(|(status, body)| (status, body.to_owned())).collect();
        Self { replies: Arc::new(Mutex::new(replies)), requests: Arc::default() }
    }

    /// The bodies sent so far.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn kinesis(&self) -> aws_sdk_kinesis::Client {
        let config = aws_sdk_kinesis::Config::builder()
            .behavior_version(BehaviorVersion::v2026_01_12())
            .region(aws_sdk_kinesis::config::Region::new("us-east-1"))
            .credentials_provider(Credentials::from_keys("a", "b", None))
            .retry_config(RetryConfig::disabled())
            .http_client(SharedHttpClient::new(self.clone()));
        aws_sdk_kinesis::Client::from_conf(config.build())
    }

    pub(crate) fn dynamodb(&self) -> aws_sdk_dynamodb::Client {
        let config = aws_sdk_dynamodb::Config::builder()
            .behavior_version(BehaviorVersion::v2026_01_12())
            .region(aws_sdk_dynamodb::config::Region::new("us-east-1"))
            .credentials_provider(Credentials::from_keys("a", "b", None))
            .retry_config(RetryConfig::disabled())
            .http_client(SharedHttpClient::new(self.clone()));
        aws_sdk_dynamodb::Client::from_conf(config.build())
    }
}

impl HttpConnector for Replay {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let body = request.body().bytes().map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).push(body.unwrap_or_default());
        let reply = self.replies.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        HttpConnectorFuture::ready(match reply.map(|(status, body)| (StatusCode::try_from(status), body)) {
            Some((Ok(status), body)) => Ok(HttpResponse::new(status, SdkBody::from(body))),
            Some((Err(_), _)) | None => Err(ConnectorError::io("the connection was cut".into())),
        })
    }
}

impl HttpClient for Replay {
    fn http_connector(&self, _: &HttpConnectorSettings, _: &RuntimeComponents) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}
