//! A DynamoDB that throttles: stands in front of the real endpoint and refuses some of the
//! requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// A running front. Ends when dropped.
pub struct Throttle {
    /// For instance `http://127.0.0.1:4567`.
    pub endpoint: String,
    front: Arc<Front>,
    _server: JoinSet<()>,
}

struct Front {
    behind: String,
    client: Client<HttpConnector, Body>,
    refused_percent: AtomicU32,
    refused: AtomicU64,
}

impl Throttle {
    /// Forwards to `behind`, and refuses nothing yet.
    ///
    /// # Panics
    ///
    /// If no port is free.
    pub async fn before(behind: &str) -> Self {
        let front = Arc::new(Front {
            behind: behind.to_owned(),
            client: Client::builder(TokioExecutor::new()).build_http(),
            refused_percent: AtomicU32::new(0),
            refused: AtomicU64::new(0),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
        let router = Router::new()
            .fallback(forward)
            .with_state(Arc::clone(&front));
        let mut server = JoinSet::new();
        server.spawn(async move { drop(axum::serve(listener, router).await) });
        Self {
            endpoint,
            front,
            _server: server,
        }
    }

    /// Refuses this many of a hundred requests from now on.
    pub fn refuse(&self, percent: u32) {
        self.front.refused_percent.store(percent, Ordering::Relaxed);
    }

    /// Requests refused so far.
    pub fn refused(&self) -> u64 {
        self.front.refused.load(Ordering::Relaxed)
    }
}

async fn forward(State(front): State<Arc<Front>>, mut request: Request) -> Response {
    if fastrand::u32(0..100) < front.refused_percent.load(Ordering::Relaxed) {
        front.refused.fetch_add(1, Ordering::Relaxed);
        let body = r#"{"__type":"com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException","message":"test"}"#;
        return (
            StatusCode::BAD_REQUEST,
            [(header::CONTENT_TYPE, "application/x-amz-json-1.0")],
            body,
        )
            .into_response();
    }
    let target: Result<Uri, _> = format!("{}{}", front.behind, request.uri().path()).parse();
    let Ok(target) = target else {
        return StatusCode::BAD_GATEWAY.into_response();
    };
    *request.uri_mut() = target;
    match front.client.request(request).await {
        Ok(reply) => reply.map(Body::new),
        Err(_) => StatusCode::BAD_GATEWAY.into_response(),
    }
}
