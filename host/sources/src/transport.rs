//! HTTP with rules: encrypted unless the operator says otherwise, few redirects, a limit on time.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use reqwest::redirect::{Attempt, Policy};
use reqwest::{Client, RequestBuilder, Response, Url};
use shardmill_core::artifact::is_loopback;

use crate::pull_error::PullError;

/// Longer than any healthy TCP and TLS handshake, also across the world.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A registry sends to its storage, which may send to another host; more is a circle.
const REDIRECTS_MAX: usize = 5;

/// Sends requests. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Transport {
    client: Client,
    rules: Rules,
}

/// Which hosts may be reached without encryption, besides this machine.
#[derive(Debug, Clone)]
struct Rules(Arc<BTreeSet<String>>);

impl Transport {
    /// `timeout` is how long a request may take, to the end of its answer.
    pub(crate) fn new(timeout: Duration, insecure: BTreeSet<String>) -> Result<Self, PullError> {
        let rules = Rules(Arc::new(insecure));
        let of_redirects = rules.clone();
        let client = Client::builder()
            .user_agent(concat!("shardmill/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(timeout)
            .referer(false)
            .redirect(Policy::custom(move |attempt| of_redirects.follow(attempt)))
            .build()
            .map_err(|error| PullError::Unfit(format!("cannot prepare HTTP: {error}")))?;
        Ok(Self { client, rules })
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Where a registry's pages begin.
    pub(crate) fn registry(&self, host: &str) -> Result<Url, PullError> {
        // The registry of Docker Hub is called otherwise than its artifacts.
        let host = if host == "docker.io" {
            "registry-1.docker.io"
        } else {
            host
        };
        let scheme = if self.rules.may_be_plain(host) {
            "http"
        } else {
            "https"
        };
        let base = Url::parse(&format!("{scheme}://{host}/v2/"));
        base.map_err(|error| PullError::Unfit(format!("{host} is no host: {error}")))
    }

    /// An address that somebody else names.
    pub(crate) fn url(&self, text: &str) -> Result<Url, PullError> {
        let url = Url::parse(text)
            .map_err(|error| PullError::Unfit(format!("an address cannot be read: {error}")))?;
        self.check(&url)?;
        Ok(url)
    }

    pub(crate) fn check(&self, url: &Url) -> Result<(), PullError> {
        if self.rules.allow(url) {
            return Ok(());
        }
        let host = host_of(url);
        Err(PullError::Insecure { host })
    }

    pub(crate) async fn send(&self, request: RequestBuilder) -> Result<Response, PullError> {
        request.send().await.map_err(|error| unreachable(&error))
    }
}

impl Rules {
    fn may_be_plain(&self, host: &str) -> bool {
        is_loopback(host) || self.0.contains(host)
    }

    fn allow(&self, url: &Url) -> bool {
        match url.scheme() {
            "https" => true,
            "http" => self.may_be_plain(&host_of(url)),
            _ => false,
        }
    }

    fn follow(&self, attempt: Attempt<'_>) -> reqwest::redirect::Action {
        if attempt.previous().len() > REDIRECTS_MAX {
            return attempt.error(format!("more than {REDIRECTS_MAX} redirects"));
        }
        if self.allow(attempt.url()) {
            return attempt.follow();
        }
        let host = host_of(attempt.url());
        attempt.error(format!(
            "it redirects to {host}, which would be reached without encryption"
        ))
    }
}

/// The host of an address, with its port if it is not the usual one.
pub(crate) fn host_of(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    }
}

/// What failed, from the outermost cause to the innermost, without the address: it may hold a
/// signature.
pub(crate) fn unreachable(error: &reqwest::Error) -> PullError {
    let host = error.url().map_or_else(|| "the host".to_owned(), host_of);
    let mut why = if error.is_timeout() {
        "it took longer than pull.timeout".to_owned()
    } else {
        String::new()
    };
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        why = if why.is_empty() {
            error.to_string()
        } else {
            format!("{why}: {error}")
        };
        cause = error.source();
    }
    if why.is_empty() {
        why.push_str("the request failed");
    }
    PullError::Unreachable { host, why }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> Rules {
        Rules(Arc::new(BTreeSet::from(["r.internal:5000".to_owned()])))
    }

    #[test]
    fn nothing_goes_unencrypted_but_to_this_machine_and_where_the_operator_says_so() {
        let allows = |text: &str| rules().allow(&Url::parse(text).unwrap());
        for good in [
            "https://r.example/v2/",
            "http://localhost:5000/v2/",
            "http://[::1]:5000/v2/",
            "http://r.internal:5000/v2/",
        ] {
            assert!(allows(good), "{good}");
        }
        for bad in [
            "http://r.example/v2/",
            "http://r.internal/v2/",
            "http://r.internal:5001/v2/",
            "ftp://localhost/x",
            "file:///etc/passwd",
        ] {
            assert!(!allows(bad), "{bad}");
        }
    }

    #[test]
    fn a_registry_is_asked_over_https_unless_it_is_here_or_is_listed() {
        let insecure = BTreeSet::from(["r.internal:5000".to_owned()]);
        let transport = Transport::new(Duration::from_secs(1), insecure).unwrap();
        for (host, base) in [
            ("r.example", "https://r.example/v2/"),
            ("localhost:5000", "http://localhost:5000/v2/"),
            ("r.internal:5000", "http://r.internal:5000/v2/"),
            ("docker.io", "https://registry-1.docker.io/v2/"),
        ] {
            assert_eq!(transport.registry(host).unwrap().as_str(), base);
        }
    }
}
