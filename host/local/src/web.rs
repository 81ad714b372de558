//! Keeps web pages out. A browser sends requests to loopback on behalf of any page that it shows,
//! neither emulator checks a signature, and both would let every origin read the answers.

use std::net::IpAddr;

use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

/// Answers a request of a web page with 403, as a middleware.
pub(crate) async fn refuse_web_pages(request: Request, next: Next) -> Response {
    let authority = request
        .uri()
        .authority()
        .map(axum::http::uri::Authority::as_str);
    match refusal(request.headers(), authority) {
        Some(message) => (StatusCode::FORBIDDEN, message).into_response(),
        None => next.run(request).await,
    }
}

/// Why the request does not come from an SDK; `None` if it may. HTTP/2 has the authority in place
/// of `Host`.
fn refusal(headers: &HeaderMap, authority: Option<&str>) -> Option<&'static str> {
    if headers.contains_key(header::ORIGIN) {
        return Some("the embedded stack serves no web pages: this request has an Origin\n");
    }
    let host = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok())
        .or(authority)
        .unwrap_or_default();
    // A page can make a name that it controls resolve to loopback; it cannot control an address or
    // `localhost`.
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let is_address = name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
    let is_known = is_address || name.eq_ignore_ascii_case("localhost");
    (!is_known).then_some("address the embedded stack as 127.0.0.1 or localhost\n")
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use crate::{LocalOptions, LocalStack};

    /// The status of the answer to a request with these headers besides those of an SDK.
    async fn status(endpoint: &str, method: &str, target: &str, headers: &str) -> String {
        let address = endpoint.strip_prefix("http://").unwrap();
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!(
            "{method} / HTTP/1.1\r\n{headers}connection: close\r\ncontent-type: \
                application/x-amz-json-1.{version}\r\n\
             x-amz-target: {target}\r\nx-amz-date: 20260131T000000Z\r\nauthorization: \
             AWS4-HMAC-SHA256 Credential=a/20260131/us-east-1/x/aws4_request, SignedHeaders=host, \
             Signature=b\r\ncontent-length: 2\r\n\r\n{{}}",
            version = u8::from(target.starts_with("Kinesis")),
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer.split(' ').nth(1).unwrap_or_default().to_owned()
    }

    #[tokio::test]
    async fn a_stack_that_a_web_page_asks_answers_neither_for_its_streams_nor_for_its_tables() {
        let stack = LocalStack::start(LocalOptions::in_memory()).await.unwrap();
        for (endpoint, target) in [
            (stack.kinesis_endpoint(), "Kinesis_20131202.ListStreams"),
            (stack.dynamodb_endpoint(), "DynamoDB_20120810.ListTables"),
        ] {
            for (headers, expected) in [
                ("host: 127.0.0.1:1\r\n", "200"),
                ("host: localhost\r\n", "200"),
                (
                    "host: 127.0.0.1:1\r\norigin: https://evil.example\r\n",
                    "403",
                ),
                ("host: 127.0.0.1:1\r\norigin: null\r\n", "403"),
                ("host: rebound.example:4567\r\n", "403"),
                ("host: 127.0.0.1.rebound.example\r\n", "403"),
            ] {
                assert_eq!(
                    status(endpoint, "POST", target, headers).await,
                    expected,
                    "{target}: {headers}"
                );
            }
        }
        stack.stop().await;
    }

    #[tokio::test]
    async fn a_web_page_may_neither_write_nor_delete_nor_ask_whether_it_may() {
        const PAGE: &str = "host: 127.0.0.1:1\r\norigin: https://evil.example\r\n";
        const ASKS: &str = "host: 127.0.0.1:1\r\norigin: https://evil.example\r\n\
            access-control-request-method: POST\r\n\
            access-control-request-headers: x-amz-target\r\n";
        let stack = LocalStack::start(LocalOptions::in_memory()).await.unwrap();
        for (endpoint, target) in [
            (stack.kinesis_endpoint(), "Kinesis_20131202.PutRecord"),
            (stack.kinesis_endpoint(), "Kinesis_20131202.DeleteStream"),
            (stack.dynamodb_endpoint(), "DynamoDB_20120810.PutItem"),
            (stack.dynamodb_endpoint(), "DynamoDB_20120810.DeleteTable"),
        ] {
            let answers = [
                status(endpoint, "POST", target, PAGE).await,
                status(endpoint, "OPTIONS", target, ASKS).await,
            ];
            assert_eq!(answers, ["403", "403"], "{target}");
        }
        stack.stop().await;
    }
}
