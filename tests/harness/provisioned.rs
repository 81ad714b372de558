//! A DynamoDB whose table has provisioned reads: stands in front of the real endpoint, counts what
//! reading the table costs and refuses what goes beyond, as the real one does. The embedded one
//! knows no limits.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// A strongly consistent read of this much is one unit, an eventually consistent one half of it
/// (DynamoDB).
const UNIT_BYTES: usize = 4 << 10;
/// DynamoDB keeps unused units for this long (AWS: burst capacity, five minutes); far less here, so
/// that a test sees it.
const BURST: Duration = Duration::from_secs(10);
/// No request or reply of a test is larger.
const BODY_MAX: usize = 16 << 20;

/// A running front. Ends when dropped.
pub struct Provisioned {
    /// For instance `http://127.0.0.1:4567`.
    pub endpoint: String,
    front: Arc<Front>,
    _server: JoinSet<()>,
}

/// What reading the table cost so far through one front.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ReadCost {
    /// Read units used.
    pub units: f64,
    /// Requests refused for want of units.
    pub refused: u64,
    /// Scans that were let through, each page for itself.
    pub scans: u64,
}

impl ReadCost {
    /// What came on top of an earlier one.
    #[must_use]
    pub fn since(self, earlier: &Self) -> Self {
        Self {
            units: self.units - earlier.units,
            refused: self.refused - earlier.refused,
            scans: self.scans - earlier.scans,
        }
    }
}

/// The table's units, shared by all fronts before it: each program gets its own front, so that
/// it is known who used what.
#[derive(Clone)]
pub struct ReadUnits {
    table: Arc<str>,
    per_second: f64,
    bucket: Arc<Mutex<Bucket>>,
}

struct Bucket {
    units: f64,
    filled_at: Instant,
}

struct Front {
    behind: String,
    client: Client<HttpConnector, Body>,
    units: ReadUnits,
    cost: Mutex<ReadCost>,
}

/// A request that reads the table.
#[derive(Clone, Copy)]
struct Read {
    is_scan: bool,
    is_consistent: bool,
}

impl ReadUnits {
    /// So many read units a second for this table; the bucket is full.
    pub fn new(table: &str, per_second: f64) -> Self {
        let units = per_second * BURST.as_secs_f64();
        let bucket = Arc::new(Mutex::new(Bucket {
            units,
            filled_at: Instant::now(),
        }));
        Self {
            table: table.into(),
            per_second,
            bucket,
        }
    }

    /// Whether a read may go on. The real one lets a read through while anything is left, and
    /// charges what it cost after.
    fn is_any_left(&self) -> bool {
        let mut bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        let filled = bucket.filled_at.elapsed().as_secs_f64() * self.per_second;
        bucket.units = (bucket.units + filled).min(self.per_second * BURST.as_secs_f64());
        bucket.filled_at = Instant::now();
        bucket.units > 0.0
    }

    fn charge(&self, units: f64) {
        self.bucket
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .units -= units;
    }
}

impl Provisioned {
    /// Forwards to `behind`, as long as there are `units` for reads of the table.
    ///
    /// # Panics
    ///
    /// If no port is free.
    pub async fn before(behind: &str, units: ReadUnits) -> Self {
        let front = Arc::new(Front {
            behind: behind.to_owned(),
            client: Client::builder(TokioExecutor::new()).build_http(),
            units,
            cost: Mutex::default(),
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

    /// What went through this front so far.
    pub fn cost(&self) -> ReadCost {
        *self
            .front
            .cost
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Front {
    fn note(&self, cost: ReadCost) {
        let mut sum = self.cost.lock().unwrap_or_else(PoisonError::into_inner);
        sum.units += cost.units;
        sum.refused += cost.refused;
        sum.scans += cost.scans;
    }

    async fn send(&self, request: Request) -> Result<Response, StatusCode> {
        let reply = self
            .client
            .request(request)
            .await
            .map_err(|_| StatusCode::BAD_GATEWAY)?;
        Ok(reply.map(Body::new))
    }

    /// Sends a read of the table and charges it by the size of what it brought.
    async fn read(&self, request: Request, read: Read) -> Result<Response, StatusCode> {
        if !self.units.is_any_left() {
            self.note(ReadCost {
                refused: 1,
                ..ReadCost::default()
            });
            return Ok(refusal());
        }
        let (head, body) = self.send(request).await?.into_parts();
        let body = to_bytes(body, BODY_MAX)
            .await
            .map_err(|_| StatusCode::BAD_GATEWAY)?;
        let whole = body.len().div_ceil(UNIT_BYTES).max(1) as f64;
        let units = if read.is_consistent {
            whole
        } else {
            whole / 2.0
        };
        self.units.charge(units);
        self.note(ReadCost {
            units,
            refused: 0,
            scans: read.is_scan.into(),
        });
        Ok(Response::from_parts(head, Body::from(body)))
    }
}

async fn forward(State(front): State<Arc<Front>>, request: Request) -> Response {
    let (mut head, body) = request.into_parts();
    let target: Result<Uri, _> = format!("{}{}", front.behind, head.uri.path()).parse();
    let (Ok(target), Ok(body)) = (target, to_bytes(body, BODY_MAX).await) else {
        return StatusCode::BAD_GATEWAY.into_response();
    };
    head.uri = target;
    let read = Read::of(&head.headers, &body, &front.units.table);
    let request = Request::from_parts(head, Body::from(body));
    let reply = match read {
        Some(read) => front.read(request, read).await,
        None => front.send(request).await,
    };
    reply.unwrap_or_else(IntoResponse::into_response)
}

impl Read {
    /// `None` for whatever does not read the table.
    fn of(headers: &HeaderMap, body: &Bytes, table: &str) -> Option<Self> {
        let target = headers.get("x-amz-target")?.to_str().ok()?;
        let operation = target.rsplit('.').next()?;
        let request: Value = serde_json::from_slice(body).ok()?;
        let is_read =
            ["Scan", "Query", "GetItem"].contains(&operation) && request["TableName"] == table;
        let is_consistent = request["ConsistentRead"].as_bool().unwrap_or(false);
        is_read.then_some(Self {
            is_scan: operation == "Scan",
            is_consistent,
        })
    }
}

fn refusal() -> Response {
    let body = r#"{"__type":"com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException","message":"test"}"#;
    (
        StatusCode::BAD_REQUEST,
        [(header::CONTENT_TYPE, "application/x-amz-json-1.0")],
        body,
    )
        .into_response()
}
