//! Roles that are assumed, and what one service has of its own.

use aws_config::sts::AssumeRoleProvider;
use aws_config::{Region, SdkConfig};
use aws_credential_types::provider::SharedCredentialsProvider;

use crate::checked_credentials::Checked;

/// What AWS shows in its logs for what is done in the role; 2 to 64 characters (AWS limit).
const SESSION: &str = "shardmill";

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
        let provider = SharedCredentialsProvider::new(provider.build().await);
        SharedCredentialsProvider::new(Checked::new(provider))
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
