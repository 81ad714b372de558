//! The embedded DynamoDB: dynoxide over SQLite, in one file.
//!
//! SQLite's write-ahead log makes every answered write survive a killed process.

use std::fs::OpenOptions;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{StatusCode, Uri};
use axum::middleware::from_fn;
use axum::response::{IntoResponse, Response};
use axum::serve::ListenerExt;
use dynoxide::Database;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::data_dir::{OWNER_FILE, for_owner_only};
use crate::error::StartError;
use crate::web::refuse_web_pages;

const FILE: &str = "dynamodb.sqlite";

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
        Err(error) => return tracing::error!(%error, "the embedded dynamodb cannot be served"),
    };
    let ended = CancellationToken::new();
    let emulator =
        dynoxide::server::serve_with_shutdown(inner, database, ended.clone().cancelled_owned());
    let door = async {
        serve_door(listener, inner_address, stop).await;
        ended.cancel();
    };
    let (emulator, ()) = tokio::join!(emulator, door);
    if let Err(problem) = emulator {
        tracing::error!(problem, "the embedded dynamodb ended");
    }
}

async fn serve_door(listener: TcpListener, inner: SocketAddr, stop: CancellationToken) {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let door = Door {
        client: Client::builder(TokioExecutor::new()).build(connector),
        authority: inner.to_string(),
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
        tracing::error!(%error, "the embedded dynamodb ended");
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
}

async fn pass(State(door): State<Door>, mut request: Request) -> Response {
    let path = request.uri().path_and_query();
    let uri = Uri::builder()
        .scheme("http")
        .authority(door.authority.as_str())
        .path_and_query(path.map_or("/", |path| path.as_str()))
        .build();
    match uri {
        Ok(uri) => *request.uri_mut() = uri,
        Err(error) => return (StatusCode::BAD_REQUEST, error.to_string()).into_response(),
    }
    match door.client.request(request).await {
        Ok(response) => response.map(Body::new),
        Err(error) => (StatusCode::BAD_GATEWAY, error.to_string()).into_response(),
    }
}

/// Small replies must not wait for a full packet.
fn set_nodelay(stream: &mut TcpStream) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot set TCP_NODELAY");
    }
}
