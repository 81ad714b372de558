//! Which requests for the admin pages are answered: none from web pages, and none under a name that
//! belongs to somebody else. Pages that reveal something about the streams need the token, if there
//! is one.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use shardmill_core::plugin::SecretSource;

/// Shortest token; a shorter one can be guessed.
const TOKEN_BYTES_MIN: usize = 16;
/// Longest: a header has to hold it.
const TOKEN_BYTES_MAX: usize = 1_024;
/// Pages that probes ask for without a token; then they reveal nothing about streams, plugins or
/// rows.
const FOR_EVERYBODY: [&str; 2] = ["/live", READY];
/// With a query it is about single plugins: who may guess names learns which ones there are.
const READY: &str = "/ready";

/// What a request must show.
#[derive(Debug, Clone, Default)]
pub(crate) struct Door {
    /// Required for all pages except the public ones; `None` requires nothing.
    token: Option<Arc<str>>,
    /// Names that requests may be addressed to, besides addresses and `localhost`.
    names: Arc<[String]>,
}

/// A token that cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TokenError {
    #[error("the variable {0}, which host.admin-token names, is not set")]
    NoVariable(String),
    #[error("cannot read {path}, which host.admin-token names: {source}")]
    NoFile {
        path: String,
        source: std::io::Error,
    },
    #[error(
        "host.admin-token has {0} bytes, and must have {TOKEN_BYTES_MIN} to {TOKEN_BYTES_MAX} \
            visible ASCII characters: `openssl rand -hex 32` makes one"
    )]
    Unfit(usize),
}

impl Door {
    pub(crate) fn new(
        token: Option<&SecretSource>,
        names: Vec<String>,
    ) -> Result<Self, TokenError> {
        Ok(Self {
            token: token.map(read).transpose()?.map(Into::into),
            names: names.into(),
        })
    }

    /// Why a request is refused, if it is.
    fn refusal(&self, uri: &Uri, headers: &HeaderMap) -> Option<(StatusCode, &'static str)> {
        let mut hosts = headers.get_all(header::HOST).iter();
        let host = hosts.next();
        let host = host.and_then(|host| host.to_str().ok()).unwrap_or_default();
        if hosts.next().is_some() {
            let message = "a request has one header `host`\n";
            return Some((StatusCode::BAD_REQUEST, message));
        }
        // A request to a proxy names the host in its URL, too.
        let named = uri.authority().map_or(host, Authority::as_str);
        if !self.knows(host) || !self.knows(named) {
            let message =
                "unknown host name: use the address, or add the name to host.admin-names\n";
            return Some((StatusCode::MISDIRECTED_REQUEST, message));
        }
        if let Some(origin) = headers.get(header::ORIGIN)
            && !is_of_host(origin.as_bytes(), host)
        {
            return Some((
                StatusCode::FORBIDDEN,
                "requests from pages of other web sites are refused\n",
            ));
        }
        match &self.token {
            Some(token) if !is_for_everybody(uri) && !shows(headers, token) => Some((
                StatusCode::UNAUTHORIZED,
                "send the header `authorization: Bearer TOKEN`, see host.admin-token\n",
            )),
            Some(_) | None => None,
        }
    }

    /// Whether a request may see everything: it shows the token, or none is needed.
    pub(super) fn shows_all(&self, headers: &HeaderMap) -> bool {
        let token = self.token.as_deref();
        token.is_none_or(|token| shows(headers, token))
    }

    /// Whether requests may be addressed to `host`. A web page can make its own domain name resolve
    /// to this address, but it cannot address the host by an address.
    fn knows(&self, host: &str) -> bool {
        let name = name_of(host);
        let is_address = name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
        is_address
            || name.eq_ignore_ascii_case("localhost")
            || self
                .names
                .iter()
                .any(|known| known.eq_ignore_ascii_case(name))
    }
}

/// The middleware.
pub(super) async fn let_in(State(door): State<Door>, request: Request, next: Next) -> Response {
    match door.refusal(request.uri(), request.headers()) {
        Some((StatusCode::UNAUTHORIZED, message)) => (
            StatusCode::UNAUTHORIZED,
            [(header::WWW_AUTHENTICATE, "Bearer")],
            message,
        )
            .into_response(),
        Some(refusal) => refusal.into_response(),
        None => next.run(request).await,
    }
}

fn is_for_everybody(uri: &Uri) -> bool {
    let is_of_plugins = uri.path() == READY && !uri.query().unwrap_or_default().is_empty();
    FOR_EVERYBODY.contains(&uri.path()) && !is_of_plugins
}

/// `Host` without its port.
fn name_of(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

fn is_of_host(origin: &[u8], host: &str) -> bool {
    let origin = std::str::from_utf8(origin).unwrap_or_default();
    origin
        .split_once("://")
        .is_some_and(|(_, authority)| authority.eq_ignore_ascii_case(host))
}

fn shows(headers: &HeaderMap, token: &str) -> bool {
    let shown = headers
        .get(header::AUTHORIZATION)
        .map(header::HeaderValue::as_bytes)
        .unwrap_or_default();
    shown
        .strip_prefix(b"Bearer ")
        .is_some_and(|shown| is_same(shown, token.as_bytes()))
}

/// Compares in a time that does not depend on where the two differ.
fn is_same(shown: &[u8], token: &[u8]) -> bool {
    let difference = shown
        .iter()
        .zip(token)
        .fold(0, |difference, (a, b)| difference | (a ^ b));
    shown.len() == token.len() && difference == 0
}

fn read(source: &SecretSource) -> Result<String, TokenError> {
    let text = match source {
        SecretSource::Variable(name) => {
            std::env::var(name).map_err(|_| TokenError::NoVariable(name.clone()))?
        }
        SecretSource::File(path) => read_file(path)?,
    };
    let token = text.trim_end_matches(['\r', '\n']);
    let is_fit = (TOKEN_BYTES_MIN..=TOKEN_BYTES_MAX).contains(&token.len());
    if is_fit && token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(token.to_owned());
    }
    Err(TokenError::Unfit(token.len()))
}

fn read_file(path: &Path) -> Result<String, TokenError> {
    shardmill_config::files::read_text(path, TOKEN_BYTES_MAX as u64 + 2).map_err(|source| {
        TokenError::NoFile {
            path: path.display().to_string(),
            source,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    fn answer(door: &Door, path: &str, pairs: &[(&'static str, &str)]) -> Option<u16> {
        door.refusal(&path.parse().unwrap(), &headers(pairs))
            .map(|(status, _)| status.as_u16())
    }

    #[test]
    fn only_addresses_and_names_that_the_operator_knows_are_answered() {
        let door = Door {
            token: None,
            names: ["metrics.example.org".to_owned()].into(),
        };
        for known in [
            "127.0.0.1:9090",
            "10.1.2.3",
            "[::1]:9090",
            "localhost:1",
            "Metrics.example.org:80",
        ] {
            assert_eq!(
                answer(&door, "/status", &[("host", known)]),
                None,
                "{known}"
            );
        }
        for foreign in [
            "attacker.example",
            "attacker.example:9090",
            "localhost.attacker.example",
            "127.0.0.1.nip.io",
            "",
        ] {
            assert_eq!(
                answer(&door, "/status", &[("host", foreign)]),
                Some(421),
                "{foreign}"
            );
            assert_eq!(
                answer(&door, "/live", &[("host", foreign)]),
                Some(421),
                "{foreign}"
            );
        }
        assert_eq!(
            answer(&door, "/status", &[]),
            Some(421),
            "and a request without a name neither"
        );
        let local = ("host", "localhost");
        let twice = [local, ("host", "attacker.example")];
        assert_eq!(answer(&door, "/live", &twice), Some(400));
        let elsewhere = "http://attacker.example/status";
        assert_eq!(answer(&door, elsewhere, &[local]), Some(421));
        let here = "http://127.0.0.1:9090/status";
        assert_eq!(answer(&door, here, &[local]), None);
    }

    #[test]
    fn a_page_of_another_web_site_is_not_served() {
        let door = Door::default();
        let from = |origin: &str| {
            answer(
                &door,
                "/status",
                &[("host", "localhost:9090"), ("origin", origin)],
            )
        };
        assert_eq!(from("https://evil.example"), Some(403));
        assert_eq!(from("null"), Some(403));
        assert_eq!(from("http://localhost:9091"), Some(403));
        assert_eq!(from("http://localhost:9090"), None);
    }

    #[test]
    fn who_does_not_know_the_token_learns_only_whether_the_host_is_alive_and_ready() {
        let door = Door {
            token: Some(TOKEN.into()),
            names: Arc::default(),
        };
        let with = |path: &str, shown: &str| {
            answer(
                &door,
                path,
                &[("host", "10.0.0.1"), ("authorization", shown)],
            )
        };
        assert_eq!(with("/metrics", &format!("Bearer {TOKEN}")), None);
        for wrong in [
            "",
            "Bearer ",
            "Bearer 0123456789abcdeF",
            "Bearer 0123456789abcdef0",
            "Basic 0123456789abcdef",
        ] {
            assert_eq!(with("/status", wrong), Some(401), "{wrong}");
        }
        assert_eq!((with("/live", ""), with("/ready", "")), (None, None));
        assert_eq!(with("/live/../status", ""), Some(401));
        for query in ["plugin=orders", "plugin=", "x"] {
            let asked = format!("/ready?{query}");
            assert_eq!(with(&asked, ""), Some(401), "which plugins there are");
            assert_eq!(with(&asked, &format!("Bearer {TOKEN}")), None);
        }
        assert_eq!((with("/ready?", ""), with("/live?x", "")), (None, None));
    }

    #[test]
    fn a_token_is_read_from_a_file_or_a_variable_and_must_be_hard_to_guess() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let from_file = |text: &str| {
            std::fs::write(&path, text).unwrap();
            read(&SecretSource::File(path.clone())).map_err(|error| error.to_string())
        };
        assert_eq!(from_file(&format!("{TOKEN}\n")), Ok(TOKEN.to_owned()));
        assert!(from_file("short\n").unwrap_err().contains("openssl rand"));
        assert!(from_file("0123456789 abcdef").is_err());
        assert!(from_file(&"x".repeat(2_000)).is_err());
        let unset = read(&SecretSource::Variable(
            "SHARDMILL_NO_SUCH_TOKEN".to_owned(),
        ))
        .unwrap_err();
        assert!(
            unset.to_string().contains("SHARDMILL_NO_SUCH_TOKEN"),
            "{unset}"
        );
    }
}
