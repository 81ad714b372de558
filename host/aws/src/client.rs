//! SDK clients from the ordinary AWS chain, with our transport, time limits and optional endpoints.
//!
//! The only place that builds clients.

use std::fmt;
use std::time::Duration;

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_credential_types::Credentials;
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider};
use aws_smithy_types::retry::RetryConfig;
use aws_smithy_types::timeout::TimeoutConfig;
use shardmill_core::lease::TableDeadlines;
use shardmill_core::stream::{InvalidRegion, check_region};

use crate::checked_credentials::Checked;
use crate::dynamodb::meter::Meter;
use crate::kinesis::{Wire, WireSetting};
use crate::role::{Role, ServiceAccess};
use crate::sdk_error;
use crate::shared_files::{self, UnfitFile};
use crate::transport::http_client;

/// Longer than any healthy TCP and TLS handshake, much shorter than a lease.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Longer than any provider needs that is well: metadata services answer within milliseconds,
/// programs within a second.
const CREDENTIALS_WITHIN: Duration = Duration::from_secs(10);
/// For commands, which hold no lease. Hosts use [`AwsClients::for_leases_of`].
const DYNAMODB_ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);
/// Bounds all attempts and the waits between them.
const DYNAMODB_OPERATION_TIMEOUT: Duration = Duration::from_secs(15);
/// A full reply is 10 MiB (AWS limit): half a minute allows for a link of 3 Mbit/s. The KCL uses
/// the same.
const KINESIS_ATTEMPT_TIMEOUT: Duration = Duration::from_secs(30);
/// Two attempts and the wait between them.
const KINESIS_OPERATION_TIMEOUT: Duration = Duration::from_secs(65);
/// One retry hides a cut connection; more would hide trouble from the caller, who paces and backs
/// off.
const KINESIS_ATTEMPTS_MAX: u32 = 2;
/// Lease writes are few and precious; the operation's time limit ends the attempts anyway.
const DYNAMODB_ATTEMPTS_MAX: u32 = 3;

/// What differs from the ordinary AWS chain.
#[derive(Debug, Clone, Default)]
pub struct AwsOptions {
    /// Instead of the chain's region.
    pub region: Option<String>,
    /// The role to assume, for both services.
    pub role: Option<Role>,
    /// What Kinesis has of its own.
    pub kinesis: ServiceAccess,
    /// What DynamoDB has of its own.
    pub dynamodb: ServiceAccess,
    /// Where Kinesis is, instead of the region's endpoint.
    pub kinesis_endpoint: Option<String>,
    /// Where DynamoDB is, instead of the region's endpoint.
    pub dynamodb_endpoint: Option<String>,
    /// Instead of the chain's credentials; the embedded stack takes any.
    pub credentials: Option<StaticCredentials>,
    /// The format that Kinesis is spoken to in.
    pub wire: WireSetting,
}

/// Credentials that never change.
#[derive(Clone)]
pub struct StaticCredentials {
    /// The access key id.
    pub access_key_id: String,
    /// The secret that belongs to the access key; never shown, not even by `Debug`.
    pub secret_access_key: String,
}

impl fmt::Debug for StaticCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StaticCredentials")
            .field("access_key_id", &self.access_key_id)
            .finish_non_exhaustive()
    }
}

impl StaticCredentials {
    /// For the embedded stack, which asks for a signature but checks none.
    pub fn dummy() -> Self {
        Self {
            access_key_id: "shardmill".to_owned(),
            secret_access_key: "shardmill".to_owned(),
        }
    }
}

/// One client for each service, cheap to clone.
#[derive(Debug, Clone)]
pub struct AwsClients {
    /// For the streams, which plugins read and Kinesis sinks write.
    pub kinesis: aws_sdk_kinesis::Client,
    /// For the lease tables and the coordinator tables.
    pub dynamodb: aws_sdk_dynamodb::Client,
    /// How Kinesis is spoken to, for all that use the client.
    pub wire: Wire,
    /// The region of the streams.
    pub region: String,
    /// The providers of credentials, one for each service.
    credentials: [Option<SharedCredentialsProvider>; 2],
}

impl AwsClients {
    /// Why there are no credentials for one of the services, if there are none, and what to do
    /// about it.
    pub async fn missing_credentials(&self) -> Option<String> {
        for provider in &self.credentials {
            let missing = missing_from(provider.as_ref()).await;
            if missing.is_some() {
                return missing;
            }
        }
        None
    }

    /// The provider of the credentials for the streams.
    pub(crate) fn credentials(&self) -> Option<&SharedCredentialsProvider> {
        let [for_streams, _] = &self.credentials;
        for_streams.as_ref()
    }

    /// The same clients, whose calls to the tables end in time for leases of this duration; the
    /// caller settles an unknown outcome with a consistent read. Connections are shared.
    #[must_use]
    pub fn for_leases_of(&self, duration: Duration) -> Self {
        let TableDeadlines { attempt, call, .. } = TableDeadlines::of(duration);
        let config = self
            .dynamodb
            .config()
            .to_builder()
            .timeout_config(timeouts(attempt, call))
            .build();
        Self {
            dynamodb: aws_sdk_dynamodb::Client::from_conf(config),
            ..self.clone()
        }
    }
}

async fn missing_from(provider: Option<&SharedCredentialsProvider>) -> Option<String> {
    let Some(provider) = provider else {
        return Some(sdk_error::GIVE_CREDENTIALS.to_owned());
    };
    let asked = tokio::time::timeout(CREDENTIALS_WITHIN, provider.provide_credentials()).await;
    match asked {
        Ok(Ok(_)) => None,
        Ok(Err(error)) => Some(sdk_error::missing_credentials(&error)),
        Err(_) => Some(format!(
            "none arrived within {CREDENTIALS_WITHIN:?}; {}",
            sdk_error::GIVE_CREDENTIALS
        )),
    }
}

/// Why no clients could be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// Neither the options nor the AWS chain name a region.
    #[error("no AWS region: set one in the configuration, in AWS_REGION or in the AWS profile")]
    NoRegion,
    /// The AWS chain names something that cannot be a region; every request would fail.
    #[error("{0}; fix AWS_REGION or the AWS profile")]
    BadRegion(#[from] InvalidRegion),
    /// Where the AWS chain has its files is something that it could read for ever.
    #[error("{0}")]
    UnfitFile(#[from] UnfitFile),
}

/// Reads the AWS chain (environment, profile, role) and makes the clients. No request is sent to
/// either service.
pub async fn connect(options: &AwsOptions) -> Result<AwsClients, ConnectError> {
    shared_files::check()?;
    // Each client has retries of its own. Without this, the chain panics at what it cannot read in
    // AWS_MAX_ATTEMPTS or AWS_RETRY_MODE.
    let mut loader = aws_config::defaults(BehaviorVersion::v2026_01_12())
        .http_client(http_client())
        .retry_config(RetryConfig::standard());
    if let Some(region) = &options.region {
        loader = loader.region(Region::new(region.clone()));
    }
    if let Some(credentials) = &options.credentials {
        let StaticCredentials {
            access_key_id,
            secret_access_key,
        } = credentials;
        loader = loader.credentials_provider(Credentials::from_keys(
            access_key_id,
            secret_access_key,
            None,
        ));
    }
    let chain = with_checked_credentials(loader.load().await);
    // What assumes a role is large, and most have none.
    Box::pin(clients_of_services(&chain, options)).await
}

fn with_checked_credentials(shared: SdkConfig) -> SdkConfig {
    match shared.credentials_provider() {
        Some(provider) => shared
            .into_builder()
            .credentials_provider(SharedCredentialsProvider::new(Checked::new(provider)))
            .build(),
        None => shared,
    }
}

/// Makes the clients over a chain that is read already, each service in its region and its role.
pub(crate) async fn clients_of_services(
    chain: &SdkConfig,
    options: &AwsOptions,
) -> Result<AwsClients, ConnectError> {
    let role = options.role.as_ref();
    let for_streams = options.kinesis.of(chain, role).await;
    let for_tables = options.dynamodb.of(chain, role).await;
    clients_over(&for_streams, &for_tables, options)
}

/// Makes the clients over a chain that is read already: its transport, time and credentials, our
/// limits and endpoints; without roles. A simulator supplies its own transport and clock.
pub fn clients_from(shared: &SdkConfig, options: &AwsOptions) -> Result<AwsClients, ConnectError> {
    clients_over(shared, shared, options)
}

fn clients_over(
    for_streams: &SdkConfig,
    for_tables: &SdkConfig,
    options: &AwsOptions,
) -> Result<AwsClients, ConnectError> {
    let region = region_of(for_streams)?;
    region_of(for_tables)?;
    Ok(AwsClients {
        kinesis: kinesis_client(for_streams, options),
        dynamodb: dynamodb_client(for_tables, options),
        wire: Wire::new(options.wire),
        region,
        credentials: [for_streams, for_tables].map(SdkConfig::credentials_provider),
    })
}

fn region_of(config: &SdkConfig) -> Result<String, ConnectError> {
    let region = config.region().ok_or(ConnectError::NoRegion)?.to_string();
    check_region(&region)?;
    Ok(region)
}

fn kinesis_client(shared: &SdkConfig, options: &AwsOptions) -> aws_sdk_kinesis::Client {
    let mut config = aws_sdk_kinesis::config::Builder::from(shared)
        .retry_config(RetryConfig::standard().with_max_attempts(KINESIS_ATTEMPTS_MAX))
        .timeout_config(timeouts(KINESIS_ATTEMPT_TIMEOUT, KINESIS_OPERATION_TIMEOUT));
    config.set_endpoint_url(
        options
            .kinesis_endpoint
            .clone()
            .or_else(|| shared.endpoint_url().map(str::to_owned)),
    );
    aws_sdk_kinesis::Client::from_conf(config.build())
}

fn dynamodb_client(shared: &SdkConfig, options: &AwsOptions) -> aws_sdk_dynamodb::Client {
    let mut config = aws_sdk_dynamodb::config::Builder::from(shared)
        .retry_config(RetryConfig::standard().with_max_attempts(DYNAMODB_ATTEMPTS_MAX))
        .timeout_config(timeouts(
            DYNAMODB_ATTEMPT_TIMEOUT,
            DYNAMODB_OPERATION_TIMEOUT,
        ))
        .interceptor(Meter::default());
    config.set_endpoint_url(
        options
            .dynamodb_endpoint
            .clone()
            .or_else(|| shared.endpoint_url().map(str::to_owned)),
    );
    aws_sdk_dynamodb::Client::from_conf(config.build())
}

fn timeouts(attempt: Duration, operation: Duration) -> TimeoutConfig {
    TimeoutConfig::builder()
        .connect_timeout(CONNECT_TIMEOUT.min(attempt))
        .operation_attempt_timeout(attempt)
        .operation_timeout(operation)
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_never_shows_in_debug_output() {
        let credentials = StaticCredentials {
            access_key_id: "AKID".to_owned(),
            secret_access_key: "hush-hush".to_owned(),
        };
        let shown = format!(
            "{:?}",
            AwsOptions {
                credentials: Some(credentials),
                ..AwsOptions::default()
            }
        );
        assert!(shown.contains("AKID") && !shown.contains("hush"), "{shown}");
    }

    #[test]
    fn a_region_that_the_chain_gives_is_checked_before_anything_is_asked() {
        let in_region = |region: &'static str| {
            let shared = SdkConfig::builder().region(Region::new(region)).build();
            clients_from(&shared, &AwsOptions::default()).map(|clients| clients.region)
        };
        let told = in_region("us east").unwrap_err().to_string();
        assert_eq!(
            told,
            "\"us east\" is not a region, which is written such as eu-west-1; fix AWS_REGION or \
                the AWS profile"
        );
    }

    /// A table that takes requests and answers none.
    #[tokio::test]
    async fn a_call_to_a_table_that_never_answers_ends_within_a_third_of_the_lease_duration() {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let options = AwsOptions {
            region: Some("us-east-1".to_owned()),
            dynamodb_endpoint: Some(format!("http://{}", silent.local_addr().unwrap())),
            credentials: Some(StaticCredentials::dummy()),
            ..AwsOptions::default()
        };
        let duration = Duration::from_secs(3);
        let clients = connect(&options).await.unwrap().for_leases_of(duration);
        let started = std::time::Instant::now();
        let listed = clients.dynamodb.list_tables().send().await;
        let took = started.elapsed();
        let error = listed.unwrap_err();
        assert!(
            matches!(error, aws_sdk_dynamodb::error::SdkError::TimeoutError(_)),
            "{error:?}"
        );
        // Before a call would end that is no holder's, by far; the machine may be busy.
        let deadlines = TableDeadlines::of(duration);
        assert!(
            took >= deadlines.attempt && took < DYNAMODB_ATTEMPT_TIMEOUT / 2,
            "{took:?}"
        );
        let limits = clients.dynamodb.config().timeout_config().unwrap();
        assert_eq!(limits.operation_timeout(), Some(deadlines.call));
        assert_eq!(limits.operation_attempt_timeout(), Some(deadlines.attempt));
    }
}
