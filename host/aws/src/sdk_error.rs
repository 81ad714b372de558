//! One line about an SDK error: what happened, why, what to do. The SDK's own text is a dump of its
//! types, which only the log at debug level gets.

use std::error::Error;
use std::fmt::Debug;

use aws_smithy_runtime_api::client::result::SdkError;
use aws_smithy_types::error::ErrorMetadata;
use shardmill_core::text::shortened;

use crate::role::RoleNotAssumed;

/// Words of the causes, and what to do about them. The first that is found counts.
const FIXES: [(&str, &str); 10] = [
    ("credential", GIVE_CREDENTIALS),
    ("no providers in chain", GIVE_CREDENTIALS),
    ("imds", GIVE_CREDENTIALS),
    (
        "scheme",
        "write the endpoint with its scheme, such as \"http://127.0.0.1:4566\"",
    ),
    (
        "invalid uri",
        "write the endpoint as a URL, such as \"http://127.0.0.1:4566\"",
    ),
    ("connection refused", NOTHING_LISTENS),
    ("lookup address", DOES_NOT_RESOLVE),
    ("dns error", DOES_NOT_RESOLVE),
    ("certificate", DISTRUSTED),
    (
        "timed out",
        "check that the endpoint can be reached from here",
    ),
];

/// What to do where there are no credentials.
pub(crate) const GIVE_CREDENTIALS: &str = "set AWS_PROFILE to a profile that has them, or \
    AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run where a role gives them";

/// What to do where a role cannot be assumed.
const LET_ASSUME: &str = "allow sts:AssumeRole on it to the credentials that this process has \
    without the role, and check its trust policy and the external id";

/// What to do where a connection is refused.
const NOTHING_LISTENS: &str = "nothing listens there: check the endpoint, or start what serves it";
/// What to do where a name has no address.
const DOES_NOT_RESOLVE: &str =
    "the name does not resolve: check the region, the endpoint and the DNS";
/// What to do where a certificate is not trusted.
const DISTRUSTED: &str = "check the endpoint and the certificates that this machine trusts";

/// Whether the one line `message` says that nothing is at the endpoint that could answer: probably
/// it is not the address that was meant.
pub(crate) fn is_of_an_endpoint_that_is_none(message: &str) -> bool {
    let signs = [NOTHING_LISTENS, DOES_NOT_RESOLVE, DISTRUSTED];
    signs.iter().any(|sign| message.contains(sign))
}

/// What to do about errors that services answer with.
const FIXES_BY_CODE: [(&[&str], &str); 2] = [
    (
        &["ExpiredTokenException", "ExpiredToken"],
        "the credentials have expired: renew them",
    ),
    (
        &[
            "UnrecognizedClientException",
            "InvalidClientTokenId",
            "InvalidSignatureException",
            "SignatureDoesNotMatch",
        ],
        "the credentials are for another account or region, or mistyped",
    ),
];

/// One line about an error that no service answered with.
pub(crate) fn unanswered<E, R>(error: &SdkError<E, R>) -> String
where
    E: Error + 'static,
    R: Debug + 'static,
{
    tracing::debug!(?error, "a call to AWS failed");
    let what = match error {
        SdkError::ConstructionFailure(_) => "the request cannot be built",
        SdkError::TimeoutError(_) => "no answer in time",
        SdkError::DispatchFailure(failure) if failure.is_timeout() => "no connection in time",
        SdkError::DispatchFailure(failure) if failure.is_io() => "cannot be reached",
        SdkError::DispatchFailure(_) => "the request cannot be sent",
        SdkError::ResponseError(_) => "the response cannot be read",
        // The rest has an answer of the service, which `answered` describes.
        _ => "the service refused",
    };
    line(what, &causes(error))
}

/// One line about an error that a service answered with: its name, its words, and what to do where
/// that is known. A missing right comes first: the service's own words have it somewhere in 300
/// characters, and rows and tables that are short of room show only the beginning of a cause.
pub(crate) fn answered(code: &str, message: &str) -> String {
    if let Some(right) = denied_right(message) {
        return format!("{code}: {right}");
    }
    if let Some(bytes) = bytes_of_a_record(message) {
        return format!(
            "{RECORD_TOO_LARGE}, {bytes} bytes of data: make it smaller, or raise the stream's \
                maximum record size"
        );
    }
    let fix = FIXES_BY_CODE
        .iter()
        .find(|(codes, _)| codes.contains(&code))
        .map(|(_, fix)| *fix);
    match fix {
        Some(fix) => format!("{code}: {message}; {fix}"),
        None => format!("{code}: {message}"),
    }
}

/// How the error begins if a stream does not accept a record because of its size.
pub const RECORD_TOO_LARGE: &str = "a record is larger than the stream takes";

/// "Value 'BUFFER' at 'records.2.member.data' failed to satisfy constraint: Member must have length
/// less than or equal to BYTES"
fn bytes_of_a_record(message: &str) -> Option<u64> {
    let (place, rule) = message.split_once("failed to satisfy constraint")?;
    let (_, limit) = rule.split_once("length less than or equal to ")?;
    let digits: String = limit.chars().take_while(char::is_ascii_digit).collect();
    if place.contains(".data'") || place.contains("'data'") {
        digits.parse().ok()
    } else {
        None
    }
}

/// From "User: WHO is not authorized to perform: WHAT on resource: WHICH because ...": the right
/// that is missing, and where to grant it.
fn denied_right(message: &str) -> Option<String> {
    let (_, asked) = message.split_once("not authorized to perform: ")?;
    let action = asked.split_whitespace().next()?;
    let resource = asked
        .split_once("on resource: ")
        .and_then(|(_, resource)| resource.split_whitespace().next());
    let user = message
        .split_once("User: ")
        .and_then(|(_, user)| user.split_whitespace().next());
    let on = resource
        .map(|resource| format!(" on {resource}"))
        .unwrap_or_default();
    let to = user.map(|user| format!(" to {user}")).unwrap_or_default();
    Some(format!(
        "{action} is not allowed{on}{to}; allow it in the policy of that identity"
    ))
}

/// One line about why there are no credentials.
pub(crate) fn missing_credentials(error: &(dyn Error + 'static)) -> String {
    tracing::debug!(?error, "there are no credentials");
    let causes = causes(error);
    match chain(error).find_map(|cause| cause.downcast_ref::<RoleNotAssumed>()) {
        Some(role) => {
            let why = causes.last().map_or("", String::as_str);
            format!("{role}: {}; {LET_ASSUME}", why.trim_end_matches('.'))
        }
        None => line("there are none", &causes),
    }
}

fn line(what: &str, causes: &[String]) -> String {
    let all = causes.join(": ").to_lowercase();
    let fix = FIXES
        .iter()
        .find(|(sign, _)| all.contains(sign))
        .map(|(_, fix)| *fix);
    let mut line = what.to_owned();
    if let Some(innermost) = causes.last() {
        // A long list of places that were searched for credentials follows; the dump has it.
        let innermost = innermost
            .split_once(" Attempted:")
            .map_or(innermost.as_str(), |(cause, _)| cause);
        line = format!("{line}: {}", innermost.trim_end_matches('.'));
    }
    match fix {
        Some(fix) => format!("{line}; {fix}"),
        None => line,
    }
}

/// From the outermost to the innermost, without those that repeat what they wrap; each is one short
/// line.
fn causes(error: &(dyn Error + 'static)) -> Vec<String> {
    const CHARS_MAX: usize = 300;
    let mut causes: Vec<String> = Vec::new();
    for cause in chain(error) {
        let text: String = shown(cause)
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        let text = shortened(&text, CHARS_MAX);
        if !text.is_empty() && causes.last().is_none_or(|last| *last != text) {
            causes.push(text.into_owned());
        }
    }
    causes
}

/// An error and its causes, from the outermost to the innermost.
fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    /// Causes lead to causes; some tens would be a loop.
    const CAUSES_MAX: usize = 32;
    std::iter::successors(Some(error), |error: &&'a (dyn Error + 'static)| {
        (**error).source()
    })
    .take(CAUSES_MAX)
}

/// What a service answers is shown by the SDK as Rust writes it.
fn shown(cause: &(dyn Error + 'static)) -> String {
    let Some(answer) = cause.downcast_ref::<ErrorMetadata>() else {
        return cause.to_string();
    };
    let said = [answer.code(), answer.message()].into_iter().flatten();
    said.collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use aws_sdk_kinesis::operation::list_streams::ListStreamsError;

    use super::*;
    use crate::{AwsOptions, StaticCredentials, connect};

    type ListError =
        SdkError<ListStreamsError, aws_smithy_runtime_api::client::orchestrator::HttpResponse>;

    async fn failure(endpoint: &str) -> ListError {
        let options = AwsOptions {
            region: Some("us-east-1".to_owned()),
            kinesis_endpoint: Some(endpoint.to_owned()),
            credentials: Some(StaticCredentials::dummy()),
            ..AwsOptions::default()
        };
        connect(&options)
            .await
            .unwrap()
            .kinesis
            .list_streams()
            .send()
            .await
            .unwrap_err()
    }

    #[tokio::test]
    async fn an_error_of_the_sdk_is_one_line_with_its_cause_and_the_mend() {
        // Nobody listens on a port that was just given back.
        let port = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let address = format!(" at http://127.0.0.1:{port};");
        for (endpoint, expected) in [
            (
                format!("http://127.0.0.1:{port}"),
                vec![
                    "cannot be reached",
                    "Connection refused",
                    &address,
                    "nothing listens there",
                ],
            ),
            ("127.0.0.1:1".to_owned(), vec!["with its scheme"]),
        ] {
            let line = unanswered(&failure(&endpoint).await);
            for part in expected {
                assert!(line.contains(part), "{line}");
            }
            assert!(
                !line.contains('\n') && !line.contains(" { ") && line.len() < 400,
                "{line}"
            );
        }
    }

    #[test]
    fn a_right_that_is_missing_is_named_before_all_else() {
        let words = "User: arn:aws:sts::1:assumed-role/host/i-1 is not authorized to perform: \
            dynamodb:UpdateItem on resource: arn:aws:dynamodb:us-east-1:1:table/orders because no \
            identity-based policy allows it";
        assert_eq!(
            answered("AccessDeniedException", words),
            "AccessDeniedException: dynamodb:UpdateItem is not allowed on \
                arn:aws:dynamodb:us-east-1:1:table/orders to \
                arn:aws:sts::1:assumed-role/host/i-1; allow it in the policy of that identity"
        );
        assert_eq!(
            answered("AccessDeniedException", "no"),
            "AccessDeniedException: no"
        );
        assert!(answered("ExpiredTokenException", "it is expired").ends_with("renew them"));
    }

    #[test]
    fn the_innermost_cause_is_reported_and_the_mend_that_fits_any_of_them() {
        let causes = |texts: &[&str]| {
            texts
                .iter()
                .map(|text| (*text).to_owned())
                .collect::<Vec<_>>()
        };
        let told = line(
            "the request cannot be sent",
            &causes(&[
                "dispatch failure",
                "other",
                "no providers in chain provided credentials",
            ]),
        );
        assert!(told.starts_with(
            "the request cannot be sent: no providers in chain provided \
                credentials; set AWS_PROFILE"
        ));
        assert_eq!(line("no answer in time", &[]), "no answer in time");
        let chain = "no credentials found in chain. Attempted: Environment: the credential \
            provider was not enabled Profile: no";
        let told = line(
            "the request cannot be sent",
            &causes(&["dispatch failure", chain]),
        );
        assert_eq!(
            told,
            format!(
                "the request cannot be sent: no credentials found in chain; {GIVE_CREDENTIALS}"
            )
        );
    }

    #[test]
    fn a_record_that_is_too_large_is_reported_as_that_and_not_in_the_services_words() {
        let words = "1 validation error detected: Value 'java.nio.HeapByteBuffer[pos=0 \
            lim=1500000 cap=1500000]' at 'records.2.member.data' failed to satisfy constraint: \
            Member must have length less than or equal to 1048576";
        let told = "a record is larger than the stream takes, 1048576 bytes of data: make it \
            smaller, or raise the stream's maximum record size";
        assert_eq!(answered("ValidationException", words), told);
        let other = "1 validation error detected: Value '' at 'streamName' failed to satisfy \
            constraint: Member must have length less than or equal to 128";
        assert_eq!(
            answered("ValidationException", other),
            format!("ValidationException: {other}")
        );
    }
}
