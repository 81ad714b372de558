//! A small HTTP server for operators: `/live`, `/ready`, `/status`, `/metrics`, `/scaling`, which
//! are read-only, and whatever pages the program adds.

mod door;
mod last_look;
mod server;
mod token;

use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpListener};

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use shardmill_config::{HostConfig, TokenError, refuse_open};
use tokio_util::sync::CancellationToken;

use self::door::Door;
use self::last_look::LastLook;
pub use self::server::Peer;
use self::server::{Pace, PaceOfEach};
pub use self::token::Token;
use crate::host_status::HostStatus;
use crate::hosts_wanted::{self, HostsWanted, hosts_wanted};
use crate::measurements::Measurements;
use crate::readiness;

#[derive(Clone)]
struct Page {
    status: HostStatus,
    metrics: Option<Measurements>,
    door: Door,
    last_look: LastLook,
}

/// A bound server, not yet serving.
pub(crate) struct Admin {
    listener: TcpListener,
    page: Page,
    /// Further pages, which ask for tokens themselves.
    further: Option<Router>,
}

/// Why the admin pages cannot be served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AdminError {
    /// The address is reachable from outside, and no token is set.
    #[error("{0}")]
    Open(String),
    /// There is a token that cannot be used.
    #[error("host.admin-token cannot be used: {0}")]
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
            page: Page::new(status, metrics, door),
            further: None,
        })
    }

    /// The address in use; the port is the real one if 0 was asked for.
    pub(crate) fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves these pages, too: to whoever names this host, without a token.
    pub(crate) fn serve_too(&mut self, further: Router) {
        self.further = Some(further);
    }

    /// Serves until `stop`, on a separate thread.
    pub(crate) async fn serve(self, stop: CancellationToken) {
        let costly = Router::new()
            .route(
                "/status",
                get(|State(page): State<Page>| async move { Json(page.status.snapshot()) }),
            )
            .route("/metrics", get(metrics))
            .route("/scaling", get(scaling))
            .layer(from_fn_with_state(Pace::new(), server::keep_pace));
        let door = self.page.door.clone();
        let mut router = Router::new()
            .route("/live", get(|| async { "live\n" }))
            .route("/ready", get(ready))
            .merge(costly)
            .layer(from_fn_with_state(door.clone(), door::let_in))
            .with_state(self.page);
        if let Some(further) = self.further {
            let further = further
                .layer(from_fn_with_state(
                    PaceOfEach::default(),
                    server::keep_pace_of_each,
                ))
                .layer(from_fn_with_state(door, door::let_in_unknown));
            router = router.merge(further);
        }
        match server::start(self.listener, router, stop) {
            Ok(ended) => ended.wait().await,
            Err(error) => {
                tracing::error!(%error, code = "admin-failed", "the admin pages cannot be served");
            }
        }
    }
}

impl Page {
    fn new(status: HostStatus, metrics: Option<Measurements>, door: Door) -> Self {
        Self {
            last_look: LastLook::new(status.clone()),
            status,
            metrics,
            door,
        }
    }
}

/// Ready, or why not; of the plugins only that the query names, if it names any. Reasons name
/// plugins, tables and shards, and what plugins said: they are for those who may see `/status`.
async fn ready(State(page): State<Page>, uri: Uri, headers: HeaderMap) -> (StatusCode, String) {
    let plugins = match plugins_asked_for(uri.query().unwrap_or_default()) {
        Ok(plugins) => plugins,
        Err(problem) => return (StatusCode::BAD_REQUEST, format!("{problem}\n")),
    };
    let look = page.last_look.look();
    let of_some = (!plugins.is_empty()).then(|| readiness::missing(&look.host, &plugins));
    let missing = of_some.as_ref().unwrap_or(&look.missing);
    if missing.is_empty() {
        return (StatusCode::OK, "ready\n".to_owned());
    }
    let why = if page.door.shows_all(&headers) {
        missing.join("\n")
    } else {
        "with the token of host.admin-token, this page and /status say why".to_owned()
    };
    (
        StatusCode::SERVICE_UNAVAILABLE,
        format!("not ready\n{why}\n"),
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

/// Why there is no page `/scaling`: there may be a section, and only standalone plugins.
const NOTHING_IS_SCALED: &str = "no plugin of this host is scaled: that needs the section \
     [scaling] in the configuration, and a plugin that is not standalone (each host reads all \
     shards of a standalone one, so more hosts would not share its load)\n";

/// How many hosts are wanted, for an autoscaler. It gets an error where that is not known, which
/// leaves everything as it is: a number would be acted on.
async fn scaling(State(page): State<Page>) -> Response {
    match hosts_wanted(&page.status.snapshot()) {
        HostsWanted::Known(answer) => Json(answer).into_response(),
        HostsWanted::Unknown(unknown) => {
            (StatusCode::SERVICE_UNAVAILABLE, Json(unknown)).into_response()
        }
        HostsWanted::Off => (StatusCode::NOT_FOUND, NOTHING_IS_SCALED).into_response(),
    }
}

async fn metrics(State(page): State<Page>) -> (StatusCode, String) {
    let Some(measurements) = page.metrics else {
        return (StatusCode::NOT_FOUND, "metrics are off\n".to_owned());
    };
    match measurements.page().await {
        Ok(text) => {
            let host = page.status.snapshot();
            let now = readiness::as_metrics(&host) + &hosts_wanted::as_metrics(&host);
            (StatusCode::OK, without_ended(&text) + &now)
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
    }
}

#[cfg(test)]
mod tests {
    use shardmill_core::plugin::SecretSource;

    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    /// The page `/ready` of a host of which a file was refused, as who shows `shown` sees it.
    async fn ready_shown_to(token: Option<&SecretSource>, shown: &str) -> (u16, String) {
        let status = HostStatus::new("a");
        status.folder_read();
        status.file_refused("orders", "customer 4711 in s3://bucket");
        let page = Page::new(status, None, Door::new(token, Vec::new()).unwrap());
        let mut headers = HeaderMap::new();
        headers.insert("authorization", shown.parse().unwrap());
        let (code, body) = ready(State(page), "/ready".parse().unwrap(), headers).await;
        (code.as_u16(), body)
    }

    #[tokio::test]
    async fn a_host_that_scales_nothing_names_the_section_and_the_plugins_that_are_never_scaled() {
        let status = HostStatus::new("a");
        let page = Page::new(status, None, Door::new(None, Vec::new()).unwrap());
        let response = scaling(State(page)).await;
        assert_eq!(response.status(), StatusCode::NOT_FOUND);
        let body = axum::body::to_bytes(response.into_body(), 4_096).await;
        let body = String::from_utf8(body.unwrap().to_vec()).unwrap();
        assert!(body.contains("[scaling]"), "{body}");
        assert!(body.contains("standalone"), "{body}");
    }

    #[tokio::test]
    async fn why_a_host_is_not_ready_is_told_to_who_knows_the_token_and_to_nobody_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, TOKEN).unwrap();
        let token = SecretSource::File(path);
        let (code, all) = ready_shown_to(Some(&token), &format!("Bearer {TOKEN}")).await;
        assert!(
            code == 503 && all.contains("orders: refused: customer 4711"),
            "{all}"
        );
        for wrong in ["", "Bearer x", TOKEN] {
            let (code, little) = ready_shown_to(Some(&token), wrong).await;
            assert!(
                code == 503 && little.contains("host.admin-token"),
                "{little}"
            );
            for told in ["orders", "4711", "bucket", "refused"] {
                assert!(!little.contains(told), "{little}");
            }
        }
        let open = ready_shown_to(None, "").await;
        assert_eq!(
            open,
            (503, all),
            "where everybody on this machine may see all"
        );
    }

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
