//! The embedded DynamoDB: dynoxide over SQLite, in one file.
//!
//! SQLite's write-ahead log makes every answered write survive a killed process.

mod aliases;

use std::fmt;
use std::fs::OpenOptions;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::header::CONTENT_LENGTH;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use axum::middleware::from_fn;
use axum::response::{IntoResponse, Response};
use axum::serve::ListenerExt;
use dynoxide::Database;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use self::aliases::{Aliases, BadName};
use crate::data_dir::{OWNER_FILE, for_owner_only};
use crate::error::StartError;
use crate::web::refuse_web_pages;

const FILE: &str = "dynamodb.sqlite";
/// A batch of DynamoDB has 16 MiB at most (AWS limit), and so has the answer to one.
const BODY_BYTES_MAX: usize = 32 << 20;
const TARGET: HeaderName = HeaderName::from_static("x-amz-target");
const CHECKSUM: HeaderName = HeaderName::from_static("x-amz-crc32");

/// Opens the database in `data_dir`, or one in memory.
pub(crate) fn open(data_dir: Option<&Path>) -> Result<Database, StartError> {
    let emulator = |problem: dynoxide::errors::DynoxideError| StartError::Emulator {
        service: "dynamodb",
        problem: problem.to_string(),
    };
    let Some(dir) = data_dir else {
        return Database::memory().map_err(emulator);
    };
    let path = dir.join(FILE);
    // Before SQLite creates it: the files that SQLite creates next to it get its mode.
    let kept = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(OWNER_FILE)
        .open(&path);
    kept.and_then(|_| for_owner_only(&path))
        .map_err(StartError::io(format!("open {}", path.display())))?;
    let database = Database::new(&path.to_string_lossy()).map_err(emulator)?;
    // Sets `synchronous = NORMAL`: a commit is one write to the log and no fsync. Only a power cut
    // can take the last commits back, which a development store may suffer; lease writes become ten
    // times faster.
    database.disable_bulk_loading().map_err(emulator)?;
    Ok(database)
}

/// Serves until `stop`. The emulator's own server would answer every web page, so it listens where
/// only the door in front of it knows; the door turns pages away and passes the rest on.
pub(crate) async fn serve(listener: TcpListener, database: Database, stop: CancellationToken) {
    let (inner, inner_address) = match bind_hidden().await {
        Ok(bound) => bound,
        Err(error) => return log_failed_start(&error),
    };
    let names = match Names::of(&database) {
        Ok(names) => names,
        Err(error) => return log_failed_start(&error),
    };
    let ended = CancellationToken::new();
    let emulator =
        dynoxide::server::serve_with_shutdown(inner, database, ended.clone().cancelled_owned());
    let door = async {
        serve_door(listener, inner_address, names, stop).await;
        ended.cancel();
    };
    let (emulator, ()) = tokio::join!(emulator, door);
    if let Err(problem) = emulator {
        tracing::error!(
            problem,
            code = "local-dynamodb-ended",
            "the embedded dynamodb ended"
        );
    }
}

fn log_failed_start(error: &dyn fmt::Display) {
    tracing::error!(
        %error,
        code = "local-dynamodb-failed",
        "the embedded dynamodb cannot be served"
    );
}

async fn serve_door(
    listener: TcpListener,
    inner: SocketAddr,
    names: Names,
    stop: CancellationToken,
) {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let door = Door {
        client: Client::builder(TokioExecutor::new()).build(connector),
        authority: inner.to_string(),
        names: Arc::new(names),
    };
    let router = Router::new()
        .fallback(pass)
        .with_state(door)
        .layer(from_fn(refuse_web_pages));
    let listener = listener.tap_io(set_nodelay);
    if let Err(error) = axum::serve(listener, router)
        .with_graceful_shutdown(stop.cancelled_owned())
        .await
    {
        tracing::error!(%error, code = "local-dynamodb-ended", "the embedded dynamodb ended");
    }
}

async fn bind_hidden() -> std::io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(hidden_address()).await?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// Any port on a loopback address that is hard to guess, where the system has more than one.
fn hidden_address() -> SocketAddr {
    let [_, b, c, d] = if cfg!(target_os = "linux") {
        fastrand::u32(..).to_be_bytes()
    } else {
        [0, 0, 0, 1]
    };
    SocketAddr::from(([127, b, c, d.clamp(1, 254)], 0))
}

#[derive(Clone)]
struct Door {
    client: Client<HttpConnector, Body>,
    authority: String,
    names: Arc<Names>,
}

/// The names of tables, and what it takes to give another one an alias.
struct Names {
    aliases: Aliases,
    database: Database,
    /// Held while a table is made: the names that there are decide about its own.
    making: Mutex<()>,
}

impl Names {
    fn of(database: &Database) -> Result<Self, dynoxide::errors::DynoxideError> {
        Ok(Self {
            aliases: Aliases::of(database)?,
            database: database.clone(),
            making: Mutex::default(),
        })
    }

    fn admit(&self, request: &Value) -> Result<(), BadName> {
        let name = request.get("TableName").and_then(Value::as_str);
        // What the emulator cannot list, it cannot make either, and says so.
        let (Some(name), Ok(kept)) = (name, aliases::names(&self.database)) else {
            return Ok(());
        };
        self.aliases.admit(name, &kept)
    }
}

async fn pass(State(door): State<Door>, request: Request) -> Response {
    let target = request.headers().get(TARGET);
    let target = target.and_then(|target| target.to_str().ok());
    let makes_a_table = target.is_some_and(|target| target.ends_with(".CreateTable"));
    if !makes_a_table && door.names.aliases.are_none() {
        return door.pass_on(request).await;
    }
    let _making = if makes_a_table {
        Some(door.names.making.lock().await)
    } else {
        None
    };
    door.rename(request, makes_a_table).await
}

impl Door {
    /// Passes a request on under the names by which its tables are kept.
    async fn rename(&self, request: Request, makes_a_table: bool) -> Response {
        let (mut head, body) = request.into_parts();
        let mut bytes = match to_bytes(body, BODY_BYTES_MAX).await {
            Ok(bytes) => bytes,
            Err(error) => {
                return (StatusCode::PAYLOAD_TOO_LARGE, error.to_string()).into_response();
            }
        };
        // What is not JSON is the emulator's to refuse.
        if let Ok(mut json) = serde_json::from_slice::<Value>(&bytes) {
            if makes_a_table && let Err(problem) = self.names.admit(&json) {
                return invalid(&problem);
            }
            self.names.aliases.put_in(&mut json);
            bytes = Bytes::from(json.to_string());
            head.headers.remove(CONTENT_LENGTH);
        }
        let response = self
            .pass_on(Request::from_parts(head, Body::from(bytes)))
            .await;
        let (mut head, body) = response.into_parts();
        let mut bytes = match to_bytes(body, BODY_BYTES_MAX).await {
            Ok(bytes) => bytes,
            Err(error) => return (StatusCode::BAD_GATEWAY, error.to_string()).into_response(),
        };
        if let Ok(mut json) = serde_json::from_slice::<Value>(&bytes) {
            self.names.aliases.take_out(&mut json);
            bytes = Bytes::from(json.to_string());
            describe(&mut head.headers, &bytes);
        }
        Response::from_parts(head, Body::from(bytes))
    }
    async fn pass_on(&self, mut request: Request) -> Response {
        let path = request.uri().path_and_query();
        let uri = Uri::builder()
            .scheme("http")
            .authority(self.authority.as_str())
            .path_and_query(path.map_or("/", |path| path.as_str()))
            .build();
        match uri {
            Ok(uri) => *request.uri_mut() = uri,
            Err(error) => return (StatusCode::BAD_REQUEST, error.to_string()).into_response(),
        }
        match self.client.request(request).await {
            Ok(response) => response.map(Body::new),
            Err(error) => (StatusCode::BAD_GATEWAY, error.to_string()).into_response(),
        }
    }
}

fn invalid(problem: &BadName) -> Response {
    let body = serde_json::json!({
        "__type": "com.amazon.coral.validate#ValidationException",
        "message": problem.to_string(),
    });
    let bytes = Bytes::from(body.to_string());
    let mut response = Response::new(Body::from(bytes.clone()));
    *response.status_mut() = StatusCode::BAD_REQUEST;
    describe(response.headers_mut(), &bytes);
    response
}

/// The length and the checksum of a reply, as DynamoDB sends them.
fn describe(headers: &mut HeaderMap, body: &[u8]) {
    headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
    headers.insert(CHECKSUM, HeaderValue::from(crc32fast::hash(body)));
}

/// Small replies must not wait for a full packet.
fn set_nodelay(stream: &mut TcpStream) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot set TCP_NODELAY");
    }
}
