//! Logins to registries of Amazon ECR: the host asks AWS for them with its own credentials.

use serde::Deserialize;
use shardmill_aws::SignedRequest;
use shardmill_core::artifact::EcrRegistry;

use crate::answer::{good, read};
use crate::aws_access::AwsAccess;
use crate::credentials::LoginPassword;
use crate::docker::decoded;
use crate::transport::Transport;

/// Bytes of the answer; it has some thousand.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    authorization_data: Vec<Authorization>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Authorization {
    /// User and password, as docker writes them down.
    authorization_token: String,
}

/// A login for this registry, which AWS gives to whoever has the right. It is not kept: whoever
/// pulls keeps what the registry accepted, for as long as it does.
pub(crate) async fn login(
    registry: EcrRegistry<'_>,
    aws: &AwsAccess,
    transport: &Transport,
) -> Result<LoginPassword, String> {
    let endpoint = aws.ecr_endpoint.clone();
    let endpoint = endpoint.unwrap_or_else(|| registry.endpoint());
    let signed = aws
        .clients
        .get_registry_login(endpoint, registry.region, (aws.now)());
    let SignedRequest { url, headers, body } = signed.await?;
    // What it is signed with is for that one address.
    let mut request = transport.staying().post(url).body(body);
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let what = "a login (ecr:GetAuthorizationToken)";
    let answered = async {
        let response = good(transport.send(request).await?, what).await?;
        read(response, what, ANSWER_BYTES_MAX).await
    };
    let bytes = answered.await.map_err(|error| error.to_string())?;
    let answer: Answer =
        serde_json::from_slice(&bytes).map_err(|error| format!("ECR's answer: {error}"))?;
    let mut tokens = answer.authorization_data.into_iter();
    tokens
        .find_map(|one| decoded(&one.authorization_token))
        .ok_or_else(|| "ECR's answer has no user and password".to_owned())
}
