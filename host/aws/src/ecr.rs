//! The one request to Amazon ECR that a host makes: for a login, which is good for twelve hours
//! (AWS).

use std::time::SystemTime;

use aws_sigv4::http_request::SigningSettings;

use crate::client::AwsClients;
use crate::signed_request::{SignedRequest, Unsigned};

const HEADERS: [(&str, &str); 2] = [
    ("content-type", "application/x-amz-json-1.1"),
    (
        "x-amz-target",
        "AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken",
    ),
];

impl AwsClients {
    /// Signs a request for a login to the registries of a region, with the credentials of these
    /// clients: a `POST` to `endpoint`. `now` is the wall time.
    ///
    /// # Errors
    /// There are no credentials, or the request cannot be signed.
    pub async fn get_registry_login(
        &self,
        endpoint: String,
        region: &str,
        now: SystemTime,
    ) -> Result<SignedRequest, String> {
        let unsigned = Unsigned {
            method: "POST",
            url: endpoint,
            region,
            service: "ecr",
            headers: &HEADERS,
            body: "{}",
            settings: SigningSettings::default(),
        };
        self.sign(unsigned, now).await
    }
}
