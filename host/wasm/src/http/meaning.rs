//! What the failure of a request means, to the guest and in metrics.

use std::error::Error as _;

use wasmtime_wasi_http::Error;

use super::tally::Outcome;

/// What a failure of the client means in the terms of `wasi:http`.
pub(super) fn meaning(error: &reqwest::Error) -> Error {
    // The innermost cause says more than the errors around it.
    let kind = causes(error)
        .filter_map(|cause| Some(cause.downcast_ref::<std::io::Error>()?.kind()))
        .last();
    match kind {
        _ if error.is_timeout() && error.is_connect() => Error::ConnectionTimeout,
        _ if error.is_timeout() => Error::ConnectionReadTimeout,
        Some(std::io::ErrorKind::ConnectionRefused) => Error::ConnectionRefused,
        Some(std::io::ErrorKind::NetworkUnreachable | std::io::ErrorKind::HostUnreachable) => {
            Error::DestinationUnavailable
        }
        // What rustls says of a certificate or a handshake comes as invalid data.
        Some(std::io::ErrorKind::InvalidData) if error.is_connect() => Error::TlsProtocolError,
        Some(_) => Error::ConnectionTerminated,
        None if error.is_connect() => Error::DestinationUnavailable,
        None => Error::HttpProtocolError,
    }
}

/// The first cause of this type.
pub(super) fn cause<T: std::error::Error + 'static>(error: &reqwest::Error) -> Option<&T> {
    causes(error).find_map(|cause| cause.downcast_ref::<T>())
}

/// All causes, the outermost first.
pub(super) fn causes(
    error: &reqwest::Error,
) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    std::iter::successors(error.source(), |cause| next_cause(*cause))
}

/// Of an I/O error that wraps another, [`source`](std::error::Error::source) would leave that one
/// out.
fn next_cause<'a>(
    cause: &'a (dyn std::error::Error + 'static),
) -> Option<&'a (dyn std::error::Error + 'static)> {
    match cause
        .downcast_ref::<std::io::Error>()
        .and_then(std::io::Error::get_ref)
    {
        Some(wrapped) => Some(wrapped),
        None => cause.source(),
    }
}

/// What an error counts as.
pub(super) fn outcome_of(error: &Error) -> Outcome {
    match error {
        Error::DestinationIpProhibited => Outcome::AddressRefused,
        Error::ConnectionTimeout | Error::ConnectionReadTimeout | Error::HttpResponseTimeout => {
            Outcome::TimedOut
        }
        Error::HttpRequestBodySize(_)
        | Error::HttpRequestHeaderSectionSize(_)
        | Error::HttpResponseBodySize(_)
        | Error::HttpResponseHeaderSectionSize(_) => Outcome::TooLarge,
        Error::ConnectionLimitReached => Outcome::TooMany,
        _ => Outcome::Failed,
    }
}
