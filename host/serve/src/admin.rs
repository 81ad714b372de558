//! A small HTTP server for operators: `/live`, `/ready`, `/status`, `/metrics`. Read-only.

mod door;
mod server;

use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpListener};

use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::middleware::from_fn_with_state;
use axum::routing::get;
use axum::{Json, Router};
use shardmill_config::{HostConfig, refuse_open};
use tokio_util::sync::CancellationToken;

use self::door::{Door, TokenError};
use self::server::Pace;
use crate::host_status::HostStatus;
use crate::measurements::Measurements;
use crate::readiness;

#[derive(Clone)]
struct Page {
    status: HostStatus,
    metrics: Option<Measurements>,
}

/// A bound server, not yet serving.
pub(crate) struct Admin {
    listener: TcpListener,
    page: Page,
    door: Door,
}

/// Why the admin pages cannot be served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AdminError {
    /// The address is reachable from outside, and no token is set.
    #[error("{0}")]
    Open(String),
    /// There is a token that cannot be used.
    #[error("{0}")]
    Token(String),
    /// The address cannot be bound.
    #[error("{0}; free it, or choose another address: host.admin, or --admin of `dev`")]
    Bind(#[from] std::io::Error),
}

impl Admin {
    /// Binds `address`. One that is reachable from outside needs a token.
    pub(crate) fn bind(
        address: SocketAddr,
        host: &HostConfig,
        status: HostStatus,
        metrics: Option<Measurements>,
    ) -> Result<Self, AdminError> {
        refuse_open(address, host.admin_token.is_some()).map_err(AdminError::Open)?;
        let door = Door::new(host.admin_token.as_ref(), host.admin_names.clone());
        let door = door.map_err(|error: TokenError| AdminError::Token(error.to_string()))?;
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(Self {
            listener,
            page: Page { status, metrics },
            door,
        })
    }

    /// The address in use; the port is the real one if 0 was asked for.
    pub(crate) fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop`, on a separate thread.
    pub(crate) async fn serve(self, stop: CancellationToken) {
        let costly = Router::new()
            .route(
                "/status",
                get(|State(page): State<Page>| async move { Json(page.status.snapshot()) }),
            )
            .route("/metrics", get(metrics))
            .layer(from_fn_with_state(Pace::new(), server::keep_pace));
        let router = Router::new()
            .route("/live", get(|| async { "live\n" }))
            .route("/ready", get(ready))
            .merge(costly)
            .layer(from_fn_with_state(self.door, door::let_in))
            .with_state(self.page);
        match server::start(self.listener, router, stop) {
            Ok(ended) => ended.wait().await,
            Err(error) => tracing::error!(%error, "the admin pages cannot be served"),
        }
    }
}

/// Ready, or why not; of the plugins only that the query names, if it names any.
async fn ready(State(page): State<Page>, uri: Uri) -> (StatusCode, String) {
    let plugins = match plugins_asked_for(uri.query().unwrap_or_default()) {
        Ok(plugins) => plugins,
        Err(problem) => return (StatusCode::BAD_REQUEST, format!("{problem}\n")),
    };
    let missing = readiness::missing(&page.status.snapshot(), &plugins);
    if missing.is_empty() {
        return (StatusCode::OK, "ready\n".to_owned());
    }
    (
        StatusCode::SERVICE_UNAVAILABLE,
        format!("not ready\n{}\n", missing.join("\n")),
    )
}

/// The values of all `plugin=`. Names of plugins need no escapes. A key that is spelled wrong would
/// ask about every plugin instead of one, so it is an error.
fn plugins_asked_for(query: &str) -> Result<BTreeSet<&str>, String> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            pair.strip_prefix("plugin=").ok_or_else(|| {
                let key = pair.split('=').next().unwrap_or(pair);
                format!("unknown key {key}: ask /ready, or /ready?plugin=NAME&plugin=NAME")
            })
        })
        .collect()
}

/// Leaves out the series of what has ended here: see [`shardmill_worker::metrics::ENDED`].
fn without_ended(text: &str) -> String {
    let lines = text.split_inclusive('\n');
    lines.filter(|line| !line.ends_with(" NaN\n")).collect()
}

async fn metrics(State(page): State<Page>) -> (StatusCode, String) {
    let Some(measurements) = page.metrics else {
        return (StatusCode::NOT_FOUND, "metrics are off\n".to_owned());
    };
    match measurements.page().await {
        Ok(text) => (
            StatusCode::OK,
            without_ended(&text) + &readiness::as_metrics(&page.status.snapshot()),
        ),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::{plugins_asked_for, without_ended};

    #[test]
    fn readiness_is_asked_of_every_plugin_that_the_query_names_and_by_no_other_key() {
        let names = |query| Vec::from_iter(plugins_asked_for(query).unwrap());
        assert_eq!(names(""), Vec::<&str>::new());
        assert_eq!(names("plugin=a"), ["a"]);
        assert_eq!(names("plugin=b&plugin=a&&plugin=b&"), ["a", "b"]);
        assert_eq!(names("plugin="), [""], "which no plugin is called");
        for (query, key) in [
            ("plugins=a", "plugins"),
            ("plugin", "plugin"),
            ("Plugin=a", "Plugin"),
            ("plugin=a&x=1&y=2", "x"),
            ("=a", ""),
        ] {
            let told = plugins_asked_for(query).unwrap_err();
            assert!(told.starts_with(&format!("unknown key {key}: ")), "{told}");
        }
    }

    #[test]
    fn the_series_of_what_has_ended_are_not_shown() {
        let text = "# TYPE x gauge\nx{plugin=\"a\",shard=\"0\"} NaN\nx{plugin=\"a\",shard=\"1\"} \
            0\n\ny{plugin=\"a\"} NaN\n";
        let kept = "# TYPE x gauge\nx{plugin=\"a\",shard=\"1\"} 0\n\n";
        assert_eq!(without_ended(text), kept);
    }
}
