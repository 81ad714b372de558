//! Which requests for the admin pages are answered: none from web pages, and none under a name that
//! belongs to somebody else. Pages that reveal something about the streams need the token, if there
//! is one.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use shardmill_config::TokenError;
use shardmill_core::plugin::SecretSource;

use super::token::Token;

/// Pages that probes ask for without a token; then they reveal nothing about streams, plugins or
/// rows.
const FOR_EVERYBODY: [&str; 2] = ["/live", READY];
/// With a query it is about single plugins: who may guess names learns which ones there are.
const READY: &str = "/ready";

/// The status and the text of an answer to a request that is not let in.
type Refusal = (StatusCode, &'static str);

/// What a request must show.
#[derive(Debug, Clone, Default)]
pub(crate) struct Door {
    /// Required for all pages except the public ones; `None` requires nothing.
    token: Option<Token>,
    /// Names that requests may be addressed to, besides addresses and `localhost`.
    names: Arc<[String]>,
}

impl Door {
    pub(crate) fn new(
        token: Option<&SecretSource>,
        names: Vec<String>,
    ) -> Result<Self, TokenError> {
        Ok(Self {
            token: token.map(Token::read).transpose()?,
            names: names.into(),
        })
    }

    /// Why a request for an admin page is refused, if it is.
    fn refusal(&self, uri: &Uri, headers: &HeaderMap) -> Option<Refusal> {
        self.refusal_of_stranger(uri, headers).or_else(|| {
            let token = self.token.as_ref()?;
            let is_known = is_for_everybody(uri) || token.is_shown_in(headers);
            (!is_known).then_some((
                StatusCode::UNAUTHORIZED,
                "send the header `authorization: Bearer TOKEN`, see host.admin-token\n",
            ))
        })
    }

    /// Why a request is refused whoever sends it: it is not addressed to this host, or a page of
    /// another web site sends it.
    fn refusal_of_stranger(&self, uri: &Uri, headers: &HeaderMap) -> Option<Refusal> {
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
        None
    }

    /// Whether a request may see everything: it shows the token, or none is needed.
    pub(super) fn shows_all(&self, headers: &HeaderMap) -> bool {
        self.token
            .as_ref()
            .is_none_or(|token| token.is_shown_in(headers))
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

/// Answers a request only if the door lets it in; axum calls this for each.
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

/// The same for pages that ask for a token themselves.
pub(super) async fn let_in_unknown(
    State(door): State<Door>,
    request: Request,
    next: Next,
) -> Response {
    match door.refusal_of_stranger(request.uri(), request.headers()) {
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
            token: Some(Token::from(TOKEN)),
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
}
