//! Replies in the wire format of Kinesis.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use serde::Serialize;
use serde_json::json;

use super::speech::Speech;

pub(super) fn ok(speech: Speech, body: &impl Serialize) -> Response {
    reply(StatusCode::OK, speech, body)
}

/// A refusal that names the exception and says what to do instead.
pub(super) fn invalid_argument(message: &str) -> Response {
    refusal("InvalidArgumentException", message)
}

/// A refusal by the name of its exception.
pub(super) fn refusal(exception: &str, message: &str) -> Response {
    reply(
        StatusCode::BAD_REQUEST,
        Speech::Json,
        &json!({"__type": exception, "message": message}),
    )
}

/// The state could not be kept: the client must not take the request for done.
pub(super) fn internal_failure(message: &str) -> Response {
    reply(
        StatusCode::INTERNAL_SERVER_ERROR,
        Speech::Json,
        &json!({"__type": "InternalFailureException", "message": message}),
    )
}

fn reply(status: StatusCode, speech: Speech, body: &impl Serialize) -> Response {
    let (status, body) = match speech.write(body) {
        Some(bytes) => (status, Body::from(bytes)),
        None => (StatusCode::INTERNAL_SERVER_ERROR, Body::empty()),
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let content_type = HeaderValue::from_static(speech.content_type());
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, content_type);
    response
}
