//! JSON replies in the wire format of Kinesis.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use serde::Serialize;
use serde_json::json;

pub(super) const JSON_1_1: &str = "application/x-amz-json-1.1";

pub(super) fn ok(body: &impl Serialize) -> Response {
    reply(StatusCode::OK, body)
}

/// A refusal that names the exception and says what to do instead.
pub(super) fn invalid_argument(message: &str) -> Response {
    refusal("InvalidArgumentException", message)
}

/// A refusal by the name of its exception.
pub(super) fn refusal(exception: &str, message: &str) -> Response {
    reply(
        StatusCode::BAD_REQUEST,
        &json!({"__type": exception, "message": message}),
    )
}

/// The state could not be kept: the client must not take the request for done.
pub(super) fn internal_failure(message: &str) -> Response {
    reply(
        StatusCode::INTERNAL_SERVER_ERROR,
        &json!({"__type": "InternalFailureException", "message": message}),
    )
}

fn reply(status: StatusCode, body: &impl Serialize) -> Response {
    let (status, body) = match serde_json::to_vec(body) {
        Ok(bytes) => (status, Body::from(bytes)),
        Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, Body::empty()),
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(JSON_1_1));
    response
}
