//! A small HTTP server for operators: `/live`, `/ready`, `/status`, `/metrics`. Read-only.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::host_status::{HostSnapshot, HostStatus};

#[derive(Clone)]
struct Page {
    status: HostStatus,
    metrics: Option<Arc<PrometheusHandle>>,
}

/// A bound server, not yet serving.
pub struct Admin {
    listener: TcpListener,
    page: Page,
}

impl Admin {
    /// Binds `address`.
    pub async fn bind(
        address: SocketAddr,
        status: HostStatus,
        metrics: Option<PrometheusHandle>,
    ) -> std::io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        Ok(Self { listener, page: Page { status, metrics: metrics.map(Arc::new) } })
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

/// Ready once the plugins folder was read and every plugin has looked at its leases.
async fn ready(State(page): State<Page>) -> (StatusCode, &'static str) {
    let HostSnapshot { plugins, is_folder_read, .. } = page.status.snapshot();
    let is_ready =
        is_folder_read && plugins.values().all(|plugin| plugin.worker.passes > 0 && plugin.worker.pass_error.is_none());
    if is_ready { (StatusCode::OK, "ready\n") } else { (StatusCode::SERVICE_UNAVAILABLE, "not ready\n") }
}

async fn metrics(State(page): State<Page>) -> (StatusCode, String) {
    match page.metrics {
        Some(handle) => {
            handle.run_upkeep();
            (StatusCode::OK, handle.render())
        }
        None => (StatusCode::NOT_FOUND, "metrics are off\n".to_owned()),
    }
}
