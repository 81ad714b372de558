//! What a DynamoDB error means for a lease write. This is the only place that decides it.
//!
//! The question is always "was it applied?". Throttled and refused requests were not. If it cannot
//! be known, the answer is [`StoreError::Unknown`], which the worker settles with a consistent read
//! before more records go out.

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use shardmill_core::ports::StoreError;

use crate::sdk_error;

/// By the name that DynamoDB gave the error; see `kinesis/errors.rs` for why names.
pub(super) fn store_error<E, R>(table: &str, error: &SdkError<E, R>) -> StoreError
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
    R: std::fmt::Debug + 'static,
{
    let Some(service) = error.as_service_error() else {
        let message = format!("dynamodb, table {table}: {}", sdk_error::unanswered(error));
        return match error {
            // Nothing was sent.
            SdkError::ConstructionFailure(_) => StoreError::Refused { message },
            _ => StoreError::Unknown { message },
        };
    };
    let code = service.code().unwrap_or_default();
    let message = format!(
        "table {table}: {}",
        sdk_error::answered(code, service.message().unwrap_or_default())
    );
    by_code(code, message)
}

/// Whether the condition of a write did not hold, so that nothing was written.
pub(super) fn is_condition_failed<E, R>(error: &SdkError<E, R>) -> bool
where
    E: ProvideErrorMetadata,
{
    let service = error.as_service_error();
    service.and_then(ProvideErrorMetadata::code) == Some("ConditionalCheckFailedException")
}

fn by_code(code: &str, message: String) -> StoreError {
    match code {
        "ProvisionedThroughputExceededException"
        | "ThrottlingException"
        | "Throttling"
        | "RequestLimitExceeded"
        | "LimitExceededException"
        | "TooManyRequestsException" => StoreError::Throttled { message },
        "ValidationException"
        | "AccessDeniedException"
        | "AccessDenied"
        | "ResourceNotFoundException"
        | "UnrecognizedClientException"
        | "InvalidSignatureException"
        | "IncompleteSignature"
        | "IncompleteSignatureException"
        | "MissingAuthenticationToken"
        | "MissingAuthenticationTokenException"
        | "InvalidClientTokenId"
        | "ExpiredTokenException"
        | "SerializationException"
        | "ItemCollectionSizeLimitExceededException" => StoreError::Refused { message },
        // InternalServerError, ServiceUnavailable, TransactionConflict, ReplicatedWriteConflict,
        // and what comes next.
        _ => StoreError::Unknown { message },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_error_that_proves_it_counts_as_not_applied() {
        let kind = |code: &str| match by_code(code, String::new()) {
            StoreError::Throttled { .. } => "throttled",
            StoreError::Refused { .. } => "refused",
            StoreError::Unknown { .. } => "unknown",
            StoreError::WrongTable { .. } => "wrong table",
        };
        for (code, expected) in [
            ("ProvisionedThroughputExceededException", "throttled"),
            ("ThrottlingException", "throttled"),
            ("RequestLimitExceeded", "throttled"),
            ("ValidationException", "refused"),
            ("AccessDeniedException", "refused"),
            ("ResourceNotFoundException", "refused"),
            ("InternalServerError", "unknown"),
            ("TransactionConflictException", "unknown"),
            ("ReplicatedWriteConflictException", "unknown"),
            ("ServiceUnavailable", "unknown"),
            ("SomethingNew", "unknown"),
        ] {
            assert_eq!(kind(code), expected, "{code}");
        }
    }
}
