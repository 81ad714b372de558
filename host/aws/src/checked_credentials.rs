//! Refuses credentials that cannot be sent, at which the SDK panics.

use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider, future};

/// A provider whose credentials are looked at before they are used.
#[derive(Debug)]
pub(crate) struct Checked(SharedCredentialsProvider);

impl Checked {
    pub(crate) fn new(provider: SharedCredentialsProvider) -> Self {
        Self(provider)
    }
}

impl ProvideCredentials for Checked {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::new(async {
            let credentials = self.0.provide_credentials().await?;
            if !can_be_sent(credentials.access_key_id()) {
                return Err(cannot_be_sent("access key id"));
            }
            if !credentials.session_token().is_none_or(can_be_sent) {
                return Err(cannot_be_sent("session token"));
            }
            Ok(credentials)
        })
    }
}

fn can_be_sent(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_graphic())
}

fn cannot_be_sent(what: &str) -> CredentialsError {
    let problem = format!("the {what} has a line break or another character that none has");
    CredentialsError::invalid_configuration(problem)
}

#[cfg(test)]
mod tests {
    use aws_credential_types::Credentials;

    use super::*;
    use crate::sdk_error;

    #[tokio::test]
    async fn credentials_that_cannot_be_sent_are_an_error_that_does_not_show_them() {
        for (id, token, told) in [
            ("AKID\n", None, "the access key id has a line break"),
            ("AK ID", None, "the access key id has"),
            ("AKID", Some("tok\ren"), "the session token has"),
            ("\u{e9}", None, "the access key id has"),
        ] {
            let token = token.map(str::to_owned);
            let wrong = Credentials::from_keys(id, "secret", token);
            let checked = Checked::new(SharedCredentialsProvider::new(wrong));
            let error = checked.provide_credentials().await.unwrap_err();
            let shown = sdk_error::missing_credentials(&error);
            assert!(
                shown.contains(told) && !shown.contains("tok\ren"),
                "{shown}"
            );
        }
        let good = Credentials::from_keys("AKID", "secret", Some("t+/=".to_owned()));
        let checked = Checked::new(SharedCredentialsProvider::new(good.clone()));
        assert_eq!(checked.provide_credentials().await.unwrap(), good);
    }
}
