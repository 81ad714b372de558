//! What a Kinesis error means for a reader. This is the only place that decides it.

use aws_sdk_kinesis::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_kinesis::types::error::SubscribeToShardEventStreamError;
use shardmill_core::ports::{ReadError, SubscribeError};

use crate::sdk_error;

/// By the name that Kinesis gave the error. Names and not Rust types, because the same name comes
/// from every operation and some (`ThrottlingException`, `InvalidSignatureException`) are in no
/// operation's model.
pub(super) fn read_error<E, R>(error: &SdkError<E, R>) -> ReadError
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
    R: std::fmt::Debug + 'static,
{
    let message = describe(error);
    match error
        .as_service_error()
        .and_then(ProvideErrorMetadata::code)
    {
        Some(code) => by_code(code, message),
        // Nothing was sent, and nothing will be until somebody fixes the endpoint, for example.
        None if matches!(error, SdkError::ConstructionFailure(_)) => ReadError::Refused { message },
        // A timeout, a cut connection, or a reply that cannot be read.
        None => ReadError::Unavailable { message },
    }
}

/// The same for calls of enhanced fan-out.
pub(super) fn subscribe_error<E, R>(error: &SdkError<E, R>) -> SubscribeError
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
    R: std::fmt::Debug + 'static,
{
    match error
        .as_service_error()
        .and_then(ProvideErrorMetadata::code)
    {
        // Another subscription, or a stream or consumer that is not active yet: each is worth a
        // wait.
        Some("ResourceInUseException") => SubscribeError::InUse {
            message: describe(error),
        },
        Some(_) | None => read_error(error).into(),
    }
}

/// The same for what ends a subscription that runs. By type here: the SDK gives exceptions in an
/// event stream no code.
pub(super) fn event_error<R: std::fmt::Debug + 'static>(
    error: &SdkError<SubscribeToShardEventStreamError, R>,
) -> SubscribeError {
    use SubscribeToShardEventStreamError as Event;
    let message = describe(error);
    match error.as_service_error() {
        Some(Event::ResourceInUseException(_)) => SubscribeError::InUse { message },
        Some(Event::ResourceNotFoundException(_)) => SubscribeError::NotFound { message },
        Some(Event::KmsThrottlingException(_)) => SubscribeError::Throttled { message },
        Some(
            Event::KmsAccessDeniedException(_)
            | Event::KmsDisabledException(_)
            | Event::KmsInvalidStateException(_)
            | Event::KmsNotFoundException(_)
            | Event::KmsOptInRequired(_),
        ) => ReadError::KeyUnusable { message }.into(),
        // A cut connection, or an exception newer than this program, which may have a code all the
        // same.
        Some(_) | None => subscribe_error(error),
    }
}

fn by_code(code: &str, message: String) -> ReadError {
    match code {
        "ExpiredIteratorException" => ReadError::ExpiredIterator,
        "ProvisionedThroughputExceededException"
        | "LimitExceededException"
        | "KMSThrottlingException"
        | "ThrottlingException"
        | "Throttling"
        | "RequestLimitExceeded"
        | "TooManyRequestsException" => ReadError::Throttled { message },
        "ResourceNotFoundException" => ReadError::NotFound { message },
        "KMSAccessDeniedException"
        | "KMSDisabledException"
        | "KMSInvalidStateException"
        | "KMSNotFoundException"
        | "KMSOptInRequired" => ReadError::KeyUnusable { message },
        "AccessDeniedException"
        | "AccessDenied"
        | "InvalidSignatureException"
        | "SignatureDoesNotMatch"
        | "IncompleteSignature"
        | "IncompleteSignatureException"
        | "MissingAuthenticationTokenException"
        | "MissingAuthenticationToken"
        | "UnrecognizedClientException"
        | "InvalidClientTokenId"
        | "ExpiredTokenException"
        | "ExpiredToken"
        | "OptInRequired"
        // The request itself is wrong, for instance a sequence number of another stream of this
        // name.
        | "InvalidArgumentException"
        | "ValidationException" => ReadError::Refused { message },
        _ => ReadError::Unavailable { message },
    }
}

/// One line: the service's own words, or what kept it from answering.
pub(super) fn describe<E, R>(error: &SdkError<E, R>) -> String
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
    R: std::fmt::Debug + 'static,
{
    match error.as_service_error() {
        Some(service) => match (service.code(), service.message()) {
            (Some(code), Some(message)) => sdk_error::answered(code, message),
            (Some(code), None) => code.to_owned(),
            (None, _) => format!("kinesis: {service}"),
        },
        None => format!("kinesis: {}", sdk_error::unanswered(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_name_has_the_meaning_the_reader_acts_on() {
        let kind = |code: &str| match by_code(code, String::new()) {
            ReadError::ExpiredIterator => "expired",
            ReadError::Throttled { .. } => "throttled",
            ReadError::NotFound { .. } => "not found",
            ReadError::Refused { .. } => "refused",
            ReadError::KeyUnusable { .. } => "key",
            ReadError::Unavailable { .. } => "unavailable",
        };
        for (code, expected) in [
            ("ExpiredIteratorException", "expired"),
            ("ProvisionedThroughputExceededException", "throttled"),
            ("LimitExceededException", "throttled"),
            ("KMSThrottlingException", "throttled"),
            ("ResourceNotFoundException", "not found"),
            ("AccessDeniedException", "refused"),
            ("KMSAccessDeniedException", "key"),
            ("KMSDisabledException", "key"),
            ("KMSInvalidStateException", "key"),
            ("KMSNotFoundException", "key"),
            ("KMSOptInRequired", "key"),
            ("InvalidSignatureException", "refused"),
            ("ExpiredTokenException", "refused"),
            ("UnrecognizedClientException", "refused"),
            ("InternalFailureException", "unavailable"),
            ("ServiceUnavailable", "unavailable"),
            ("SomethingNew", "unavailable"),
        ] {
            assert_eq!(kind(code), expected, "{code}");
        }
    }

    #[test]
    fn an_exception_in_an_event_stream_has_its_meaning_though_it_has_no_code() {
        use SubscribeToShardEventStreamError as Event;
        use aws_sdk_kinesis::types::error::{
            KmsDisabledException, ResourceInUseException, ResourceNotFoundException,
        };

        let meaning = |error: Event| event_error(&SdkError::service_error(error, ()));
        let in_use = ResourceInUseException::builder()
            .message("taken over")
            .build();
        assert!(matches!(
            meaning(Event::ResourceInUseException(in_use)),
            SubscribeError::InUse { .. }
        ));
        let gone = ResourceNotFoundException::builder().message("gone").build();
        assert!(matches!(
            meaning(Event::ResourceNotFoundException(gone)),
            SubscribeError::NotFound { .. }
        ));
        let disabled = KmsDisabledException::builder().message("off").build();
        assert!(matches!(
            meaning(Event::KmsDisabledException(disabled)),
            SubscribeError::Refused { .. }
        ));
    }
}
