//! A collector of traces: takes OTLP over HTTP, and reads it by the official definitions.

mod schema;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use self::schema::Schema;

/// `opentelemetry-proto` at ac2c4b5d1f3a6079de62f9afec860158ecc8af09.
const DEFINITIONS: [&str; 4] = [
    include_str!("otlp/trace.proto"),
    include_str!("otlp/trace_service.proto"),
    include_str!("otlp/common.proto"),
    include_str!("otlp/resource.proto"),
];
/// The names of the semantic conventions.
const CONVENTIONS: &str = include_str!("otlp/conventions.txt");

/// A running collector. Ends when dropped.
pub struct OtlpCollector {
    /// Its endpoint, without the path.
    pub url: String,
    state: Arc<Seen>,
    _server: JoinSet<()>,
}

#[derive(Default)]
struct Seen {
    schema: Schema,
    /// What it answers; 0 takes, 1 takes and never answers.
    status: AtomicU16,
    requests: AtomicUsize,
    spans: Mutex<Vec<OtlpSpan>>,
    headers: Mutex<Vec<HeaderMap>>,
}

/// A span that was taken.
#[derive(Debug, Clone)]
pub struct OtlpSpan {
    /// All that was said, by the names of the definitions.
    pub message: Value,
    /// Its attributes.
    pub attributes: BTreeMap<String, Value>,
    /// Those of its resource.
    pub resource: BTreeMap<String, Value>,
}

/// The conventions' names.
#[derive(Debug, Default)]
pub struct Conventions {
    /// Attributes.
    pub attributes: Vec<String>,
    /// Attributes that every messaging span has.
    pub required: Vec<String>,
    /// Types of operations, with the kinds of their spans.
    pub operations: Vec<(String, String)>,
}

impl Conventions {
    /// Reads them.
    ///
    /// # Panics
    ///
    /// If the file has a line of another kind.
    pub fn read() -> Self {
        let mut read = Self::default();
        for line in CONVENTIONS.lines().filter(|line| !line.starts_with('#')) {
            match line.split(' ').collect::<Vec<_>>()[..] {
                ["attribute", name, _] => read.attributes.push(name.to_owned()),
                ["required", name] => read.required.push(name.to_owned()),
                ["operation", name, kind] => {
                    let kind = format!("SPAN_KIND_{kind}");
                    read.operations.push((name.to_owned(), kind));
                }
                _ => panic!("{line}"),
            }
        }
        read
    }
}

impl OtlpSpan {
    /// A field of its message, as text; empty if it is missing.
    pub fn text(&self, field: &str) -> &str {
        self.message[field].as_str().unwrap_or_default()
    }

    /// An attribute, as text; empty if it is missing.
    pub fn attribute(&self, name: &str) -> &str {
        let value = self.attributes.get(name).and_then(Value::as_str);
        value.unwrap_or_default()
    }

    /// The spans that it links to, as `TRACE-SPAN`.
    pub fn links(&self) -> Vec<String> {
        let links = self.message["links"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let text = |link: &Value, field: &str| link[field].as_str().unwrap_or("").to_owned();
        links
            .iter()
            .map(|link| format!("{}-{}", text(link, "trace_id"), text(link, "span_id")))
            .collect()
    }

    fn all_of(request: &Value) -> Vec<Self> {
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let mut spans = Vec::new();
        for of_resource in list(&request["resource_spans"]) {
            let resource = attributes(&of_resource["resource"]);
            for of_scope in list(&of_resource["scope_spans"]) {
                spans.extend(list(&of_scope["spans"]).into_iter().map(|message| Self {
                    attributes: attributes(&message),
                    resource: resource.clone(),
                    message,
                }));
            }
        }
        spans
    }
}

fn attributes(of: &Value) -> BTreeMap<String, Value> {
    let all = of["attributes"].as_array().cloned().unwrap_or_default();
    let pair = |attribute: &Value| {
        let name = attribute["key"].as_str().unwrap_or_default().to_owned();
        let value = attribute["value"].as_object().cloned().unwrap_or_default();
        (name, value.into_values().next().unwrap_or_default())
    };
    all.iter().map(pair).collect()
}

impl OtlpCollector {
    /// Starts one that takes what it gets.
    ///
    /// # Panics
    ///
    /// If no port is free.
    pub async fn start() -> Self {
        let state = Arc::new(Seen {
            schema: Schema::of(&DEFINITIONS),
            ..Seen::default()
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let app = Router::new()
            .route("/v1/traces", axum::routing::post(take))
            .with_state(Arc::clone(&state));
        let mut server = JoinSet::new();
        server.spawn(async move {
            axum::serve(listener, app)
                .await
                .expect("it serves until it is dropped");
        });
        Self {
            url,
            state,
            _server: server,
        }
    }

    /// Answers with this status from now on; 0 takes again, 1 takes in and never answers.
    pub fn answer(&self, status: u16) {
        self.state.status.store(status, Ordering::SeqCst);
    }

    /// Requests so far, also those that were not taken.
    pub fn requests(&self) -> usize {
        self.state.requests.load(Ordering::SeqCst)
    }

    /// The spans so far.
    ///
    /// # Panics
    ///
    /// Never: nobody panics while holding them.
    pub fn spans(&self) -> Vec<OtlpSpan> {
        self.state.spans.lock().expect("no panic").clone()
    }

    /// The spans so far of this type of operation.
    pub fn of_type(&self, operation: &str) -> Vec<OtlpSpan> {
        let spans = self.spans().into_iter();
        spans
            .filter(|span| span.attribute("messaging.operation.type") == operation)
            .collect()
    }

    /// The value of a header in each request that was taken.
    ///
    /// # Panics
    ///
    /// Never: nobody panics while holding them.
    pub fn header(&self, name: &str) -> Vec<String> {
        let headers = self.state.headers.lock().expect("no panic");
        let values = headers
            .iter()
            .filter_map(|all| all.get(name)?.to_str().ok());
        values.map(str::to_owned).collect()
    }
}

async fn take(State(seen): State<Arc<Seen>>, headers: HeaderMap, body: Bytes) -> StatusCode {
    seen.requests.fetch_add(1, Ordering::SeqCst);
    match seen.status.load(Ordering::SeqCst) {
        0 => {}
        1 => std::future::pending().await,
        status => return StatusCode::from_u16(status).expect("a status"),
    }
    if headers
        .get("content-type")
        .is_none_or(|is| is != "application/x-protobuf")
    {
        return StatusCode::UNSUPPORTED_MEDIA_TYPE;
    }
    let request = seen.schema.decode("ExportTraceServiceRequest", &body);
    let mut spans = seen.spans.lock().expect("no panic");
    spans.extend(OtlpSpan::all_of(&request));
    seen.headers.lock().expect("no panic").push(headers);
    StatusCode::OK
}
