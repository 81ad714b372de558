//! An HTTP endpoint that refuses while it is told to, and keeps the lines it took.

use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// A running endpoint. Ends when dropped.
pub struct Endpoint {
    /// Where it takes lines.
    pub url: String,
    taken: Arc<Taken>,
    _server: JoinSet<()>,
}

#[derive(Default)]
struct Taken {
    /// The status it refuses with; 0 takes.
    refusing: AtomicU16,
    refused: AtomicUsize,
    lines: Mutex<Vec<String>>,
    traceparents: Mutex<Vec<String>>,
}

impl Endpoint {
    /// Starts one that refuses with `status` until it is told to take.
    ///
    /// # Panics
    ///
    /// If no port is free.
    pub async fn refusing(status: u16) -> Self {
        let taken = Arc::new(Taken::default());
        taken.refusing.store(status, Ordering::SeqCst);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/in", listener.local_addr().expect("bound"));
        let app = Router::new().fallback(take).with_state(Arc::clone(&taken));
        let mut server = JoinSet::new();
        server.spawn(async move {
            axum::serve(listener, app)
                .await
                .expect("it serves until it is dropped");
        });
        Self {
            url,
            taken,
            _server: server,
        }
    }

    /// Takes from now on.
    pub fn take(&self) {
        self.taken.refusing.store(0, Ordering::SeqCst);
    }

    /// Requests it refused so far.
    pub fn refused(&self) -> usize {
        self.taken.refused.load(Ordering::SeqCst)
    }

    /// The spans that requests named which it took, as headers have them.
    ///
    /// # Panics
    ///
    /// Never: nobody panics while holding them.
    pub fn traceparents(&self) -> Vec<String> {
        self.taken.traceparents.lock().expect("no panic").clone()
    }

    /// Lines it took so far.
    pub fn lines(&self) -> Vec<String> {
        self.taken
            .lines
            .lock()
            .expect("nobody panics while holding it")
            .clone()
    }
}

async fn take(State(taken): State<Arc<Taken>>, headers: HeaderMap, body: String) -> StatusCode {
    let status = taken.refusing.load(Ordering::SeqCst);
    if status > 0 {
        taken.refused.fetch_add(1, Ordering::SeqCst);
        return StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    }
    let traceparent = headers.get("traceparent");
    if let Some(traceparent) = traceparent.and_then(|value| value.to_str().ok()) {
        let mut traceparents = taken.traceparents.lock().expect("no panic");
        traceparents.push(traceparent.to_owned());
    }
    taken
        .lines
        .lock()
        .expect("nobody panics while holding it")
        .extend(body.lines().map(str::to_owned));
    StatusCode::OK
}
