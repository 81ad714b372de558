//! A small HTTP server for operators: `/live`, `/ready`, `/status`, `/metrics`. Read-only.

use std::net::SocketAddr;

use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::routing::get;
use axum::{Json, Router};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::host_status::HostStatus;
use crate::measurements::Measurements;
use crate::readiness;

#[derive(Clone)]
struct Page {
    status: HostStatus,
    metrics: Option<Measurements>,
}

/// A bound server, not yet serving.
pub struct Admin {
    listener: TcpListener,
    page: Page,
}

impl Admin {
    /// Binds `address`.
    pub async fn bind(address: SocketAddr, status: HostStatus, metrics: Option<Measurements>) -> std::io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        Ok(Self { listener, page: Page { status, metrics } })
    }

    /// The address in use; the port is the real one if 0 was asked for.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop`.
    pub async fn serve(self, stop: CancellationToken) -> std::io::Result<()> {
        let router = Router::new()
            .route("/live", get(|| async { "live\n" }))
            .route("/ready", get(ready))
            .route("/status", get(|State(page): State<Page>| async move { Json(page.status.snapshot()) }))
            .route("/metrics", get(metrics))
            .with_state(self.page);
        axum::serve(self.listener, router).with_graceful_shutdown(stop.cancelled_owned()).await
    }
}

/// Ready, or why not; of one plugin, if `?plugin=NAME` names one.
async fn ready(State(page): State<Page>, uri: Uri) -> (StatusCode, String) {
    let plugin = uri.query().and_then(|query| query.strip_prefix("plugin="));
    let missing = readiness::missing(&page.status.snapshot(), plugin);
    if missing.is_empty() {
        return (StatusCode::OK, "ready\n".to_owned());
    }
    (StatusCode::SERVICE_UNAVAILABLE, format!("not ready\n{}\n", missing.join("\n")))
}

/// Leaves out the series of shards whose grant has ended here: see [`shardmill_worker::metrics::ENDED`].
fn without_ended(text: &str) -> String {
    let has_ended = |line: &str| line.contains("shard=\"") && line.ends_with(" NaN");
    let kept = text.split_inclusive('\n').filter(|line| !has_ended(line.trim_end_matches('\n')));
    kept.collect()
}

async fn metrics(State(page): State<Page>) -> (StatusCode, String) {
    let Some(measurements) = page.metrics else { return (StatusCode::NOT_FOUND, "metrics are off\n".to_owned()) };
    match measurements.page().await {
        Ok(page) => (StatusCode::OK, without_ended(&page)),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::without_ended;

    #[test]
    fn the_series_of_a_shard_end_with_its_grant_and_a_plugins_own_stay() {
        let text =
            "# TYPE x gauge\nx{plugin=\"a\",shard=\"0\"} NaN\nx{plugin=\"a\",shard=\"1\"} 0\n\ny{plugin=\"a\"} NaN\n";
        let kept = "# TYPE x gauge\nx{plugin=\"a\",shard=\"1\"} 0\n\ny{plugin=\"a\"} NaN\n";
        assert_eq!(without_ended(text), kept);
    }
}
