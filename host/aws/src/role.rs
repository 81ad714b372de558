//! Roles that are assumed, and what one service has of its own.

use std::error::Error;
use std::time::Duration;

use aws_config::sts::AssumeRoleProvider;
use aws_config::{Region, SdkConfig};
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider, future};

use crate::checked_credentials::Checked;

/// What AWS shows in its logs for what is done in the role; 2 to 64 characters (AWS limit).
const SESSION: &str = "shardmill";
/// The SDK gives a request 5 s to get credentials, and then does not say for what they were.
const ASSUMED_WITHIN: Duration = Duration::from_secs(4);

/// A role of AWS that is assumed with the credentials of the AWS chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Role {
    /// The role as AWS names it, such as `arn:aws:iam::123456789012:role/shardmill`.
    pub arn: String,
    /// What the role's owner asks for, so that nobody can be talked into assuming it for another.
    pub external_id: Option<String>,
}

/// What one service has instead of the region and the role of both.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServiceAccess {
    /// The region's code, such as `eu-west-1`; `None` means that of both.
    pub region: Option<String>,
    /// Its role; instead of that of both, not on top of it.
    pub role: Option<Role>,
}

/// Why there are no credentials of a role.
#[derive(Debug, thiserror::Error)]
#[error("the role {arn} cannot be assumed")]
pub(crate) struct RoleNotAssumed {
    arn: String,
    source: Box<dyn Error + Send + Sync>,
}

/// The credentials of a role, and an error that names it.
#[derive(Debug)]
struct Assumed {
    arn: String,
    provider: AssumeRoleProvider,
}

impl ServiceAccess {
    /// The chain as this service uses it. Asks nobody: the role is assumed before the first
    /// request.
    pub(crate) async fn of(&self, chain: &SdkConfig, role: Option<&Role>) -> SdkConfig {
        let mut config = chain.clone().into_builder();
        if let Some(region) = &self.region {
            config = config.region(Region::new(region.clone()));
        }
        if let Some(role) = self.role.as_ref().or(role) {
            config = config.credentials_provider(role.assumed(chain).await);
        }
        config.build()
    }
}

impl Role {
    async fn assumed(&self, chain: &SdkConfig) -> SharedCredentialsProvider {
        let mut provider = AssumeRoleProvider::builder(&self.arn)
            .session_name(SESSION)
            .configure(chain);
        if let Some(id) = &self.external_id {
            provider = provider.external_id(id);
        }
        let assumed = Assumed {
            arn: self.arn.clone(),
            provider: provider.build().await,
        };
        let provider = SharedCredentialsProvider::new(assumed);
        SharedCredentialsProvider::new(Checked::new(provider))
    }
}

impl Assumed {
    fn failed(&self, source: impl Into<Box<dyn Error + Send + Sync>>) -> CredentialsError {
        CredentialsError::provider_error(RoleNotAssumed {
            arn: self.arn.clone(),
            source: source.into(),
        })
    }
}

impl ProvideCredentials for Assumed {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::new(async {
            let asked = self.provider.provide_credentials();
            match tokio::time::timeout(ASSUMED_WITHIN, asked).await {
                Ok(Ok(credentials)) => Ok(credentials),
                Ok(Err(error)) => Err(self.failed(error)),
                Err(_) => Err(self.failed(format!("no answer within {ASSUMED_WITHIN:?}"))),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use aws_credential_types::Credentials;

    use super::*;
    use crate::transport_double::TransportDouble;
    use crate::{AwsOptions, clients_of_services};

    const GIVEN: &str = "<AssumeRoleResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">\
        <AssumeRoleResult><Credentials><AccessKeyId>ASIAROLE</AccessKeyId>\
        <SecretAccessKey>secret</SecretAccessKey><SessionToken>token</SessionToken>\
        <Expiration>2999-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleResult>\
        </AssumeRoleResponse>";

    fn role(name: &str) -> Role {
        Role {
            arn: format!("arn:aws:iam::123456789012:role/{name}"),
            external_id: Some("42".to_owned()),
        }
    }

    /// Lists tables; returns what was sent, and what each request was signed with.
    async fn listed(options: &AwsOptions) -> Vec<(String, String)> {
        let transport = TransportDouble::new([(200, GIVEN), (200, "{\"TableNames\":[]}")]);
        let key = Credentials::from_keys("AKIDCHAIN", "secret", None);
        let chain = transport.chain(SharedCredentialsProvider::new(key));
        let clients = clients_of_services(&chain, options).await.unwrap();
        clients.dynamodb.list_tables().send().await.unwrap();
        let sent = transport.requests().into_iter();
        sent.zip(transport.authorizations()).collect()
    }

    #[tokio::test]
    async fn tables_are_used_in_the_role_which_is_assumed_with_the_chains_credentials() {
        let options = AwsOptions {
            role: Some(role("both")),
            ..AwsOptions::default()
        };
        let sent = listed(&options).await;
        let [(assume, by_chain), (_, by_role)] = &sent[..] else {
            panic!("{sent:?}")
        };
        assert!(by_chain.contains("AKIDCHAIN/") && by_role.contains("ASIAROLE/"));
        assert!(
            assume.contains("role%2Fboth") && assume.contains("ExternalId=42"),
            "{assume}"
        );
    }

    #[tokio::test]
    async fn a_role_that_may_not_be_assumed_is_named_with_what_to_allow() {
        let refused = "<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code>\
            <Message>not yours</Message></Error></ErrorResponse>";
        let transport = TransportDouble::new([(403, refused)]);
        let key = Credentials::from_keys("AKIDCHAIN", "secret", None);
        let chain = transport.chain(SharedCredentialsProvider::new(key));
        let provider = role("both").assumed(&chain).await;
        let error = provider.provide_credentials().await.unwrap_err();
        assert_eq!(
            crate::sdk_error::missing_credentials(&error),
            "the role arn:aws:iam::123456789012:role/both cannot be assumed: AccessDenied: not \
                yours; allow sts:AssumeRole on it to the credentials that this process has \
                without the role, and check its trust policy and the external id"
        );
    }

    #[tokio::test]
    async fn a_service_may_have_a_role_and_a_region_of_its_own() {
        let options = AwsOptions {
            role: Some(role("both")),
            dynamodb: ServiceAccess {
                region: Some("eu-north-1".to_owned()),
                role: Some(role("tables")),
            },
            ..AwsOptions::default()
        };
        let sent = listed(&options).await;
        assert!(sent[0].0.contains("role%2Ftables"), "{sent:?}");
        assert!(sent[1].1.contains("/eu-north-1/dynamodb/"), "{sent:?}");
    }
}
