//! Requests to services of AWS of which so little is used that there is no client for them: signed
//! here, and sent by whoever needs them.

use std::time::{Duration, SystemTime};

use aws_credential_types::Credentials;
use aws_credential_types::provider::ProvideCredentials;
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4;

use crate::client::AwsClients;
use crate::sdk_error;

/// Longer than any provider of credentials needs that is well.
const CREDENTIALS_WITHIN: Duration = Duration::from_secs(10);

/// A request that is signed, and to be sent within minutes.
#[derive(Clone)]
pub struct SignedRequest {
    /// The whole address, for which alone the signature is.
    pub url: String,
    /// Headers by name; some are secret.
    pub headers: Vec<(String, String)>,
    /// What is sent; empty for a `GET`.
    pub body: &'static str,
}

/// A request before it is signed.
pub(crate) struct Unsigned<'a> {
    pub(crate) method: &'static str,
    pub(crate) url: String,
    pub(crate) region: &'a str,
    /// The name of the service in signatures.
    pub(crate) service: &'static str,
    /// Headers that are signed and sent, besides those of the signature.
    pub(crate) headers: &'static [(&'static str, &'static str)],
    pub(crate) body: &'static str,
    pub(crate) settings: SigningSettings,
}

impl AwsClients {
    /// Signs with the credentials of these clients. `now` is the wall time.
    pub(crate) async fn sign(
        &self,
        request: Unsigned<'_>,
        now: SystemTime,
    ) -> Result<SignedRequest, String> {
        let provider = self.credentials();
        let provider = provider.ok_or_else(|| sdk_error::GIVE_CREDENTIALS.to_owned())?;
        let asked = tokio::time::timeout(CREDENTIALS_WITHIN, provider.provide_credentials()).await;
        let credentials = match asked {
            Ok(Ok(credentials)) => credentials,
            Ok(Err(error)) => return Err(sdk_error::missing_credentials(&error)),
            Err(_) => return Err(sdk_error::GIVE_CREDENTIALS.to_owned()),
        };
        request.signed(credentials, now)
    }
}

impl Unsigned<'_> {
    pub(crate) fn signed(
        self,
        credentials: Credentials,
        now: SystemTime,
    ) -> Result<SignedRequest, String> {
        let identity = credentials.into();
        let params = v4::SigningParams::builder()
            .identity(&identity)
            .region(self.region)
            .name(self.service)
            .time(now)
            .settings(self.settings)
            .build()
            .map_err(|error| error.to_string())?
            .into();
        let body = SignableBody::Bytes(self.body.as_bytes());
        let headers = self.headers.iter().copied();
        let request = SignableRequest::new(self.method, &self.url, headers, body);
        let request = request.map_err(|error| error.to_string())?;
        let signed = sign(request, &params).map_err(|error| error.to_string())?;
        let (instructions, _) = signed.into_parts();
        let all = self.headers.iter().copied().chain(instructions.headers());
        let headers = all.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Ok(SignedRequest {
            headers: headers.collect(),
            url: self.url,
            body: self.body,
        })
    }
}
