//! HTTP with rules: encrypted unless the operator says otherwise, from elsewhere nowhere on this
//! machine, few redirects, a limit on time.

use std::collections::BTreeSet;
use std::net::IpAddr;
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
    /// Follows no redirect.
    staying: Client,
    rules: Rules,
}

/// Which hosts may be reached without encryption, besides this machine; and on this machine by
/// whoever is elsewhere.
#[derive(Debug, Clone)]
struct Rules(Arc<BTreeSet<String>>);

impl Transport {
    /// `timeout` is how long a request may take, to the end of its answer.
    pub(crate) fn new(timeout: Duration, insecure: BTreeSet<String>) -> Result<Self, PullError> {
        let rules = Rules(Arc::new(insecure));
        let of_redirects = rules.clone();
        let following = Policy::custom(move |attempt| of_redirects.follow(attempt));
        Ok(Self {
            client: client(timeout, following)?,
            staying: client(timeout, Policy::none())?,
            rules,
        })
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// For requests that are signed for the one address that they go to, in headers that no client
    /// knows as secret.
    pub(crate) fn staying(&self) -> &Client {
        &self.staying
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

    /// An address that an operator chose.
    pub(crate) fn chosen(&self, text: &str) -> Result<Url, PullError> {
        let url = read(text)?;
        self.rules.check(&url, &url)?;
        Ok(url)
    }

    /// An address that whoever is at `from` names.
    pub(crate) fn named(&self, text: &str, from: &Url) -> Result<Url, PullError> {
        let url = read(text)?;
        self.rules.check(&url, from)?;
        Ok(url)
    }

    pub(crate) async fn send(&self, request: RequestBuilder) -> Result<Response, PullError> {
        request.send().await.map_err(|error| unreachable(&error))
    }
}

impl Rules {
    fn may_be_plain(&self, host: &str) -> bool {
        is_loopback(host) || self.0.contains(host)
    }

    /// Whether `url` may be asked, as whoever is at `from` wants it.
    fn check(&self, url: &Url, from: &Url) -> Result<(), PullError> {
        let host = host_of(url);
        let is_fit = match url.scheme() {
            "https" => true,
            "http" => self.may_be_plain(&host),
            _ => false,
        };
        if !is_fit {
            return Err(PullError::Insecure { host });
        }
        // What listens here for this machine alone is not there for whoever runs a registry.
        if is_here(url) && !is_here(from) && !self.0.contains(&host) {
            let from = host_of(from);
            return Err(PullError::Inward { host, from });
        }
        Ok(())
    }

    fn follow(&self, attempt: Attempt<'_>) -> reqwest::redirect::Action {
        if attempt.previous().len() > REDIRECTS_MAX {
            return attempt.error(format!("more than {REDIRECTS_MAX} redirects"));
        }
        let Some(first) = attempt.previous().first() else {
            return attempt.stop();
        };
        match self.check(attempt.url(), first) {
            Ok(()) => attempt.follow(),
            Err(why) => attempt.error(format!("it redirects: {why}")),
        }
    }
}

fn client(timeout: Duration, redirects: Policy) -> Result<Client, PullError> {
    Client::builder()
        .user_agent(concat!("shardmill/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT_TIMEOUT)
        .timeout(timeout)
        .referer(false)
        .redirect(redirects)
        .build()
        .map_err(|error| PullError::Unfit(format!("cannot prepare HTTP: {error}")))
}

fn read(text: &str) -> Result<Url, PullError> {
    Url::parse(text)
        .map_err(|error| PullError::Unfit(format!("an address cannot be read: {error}")))
}

/// Whether an address leads to this machine, by any name or address that surely does.
fn is_here(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let name = host.trim_end_matches('.');
    if name == "localhost" || name.ends_with(".localhost") {
        return true;
    }
    let address = host.trim_start_matches('[').trim_end_matches(']');
    match address
        .parse::<IpAddr>()
        .map(|address| address.to_canonical())
    {
        // Nobody's address is this machine's to those who connect to it.
        Ok(address) => address.is_loopback() || address.is_unspecified(),
        Err(_) => false,
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
        let listed = ["r.internal:5000", "127.0.0.1:5001"].map(str::to_owned);
        Rules(Arc::new(BTreeSet::from(listed)))
    }

    fn check(url: &str, from: &str) -> Result<(), String> {
        let [url, from] = [url, from].map(|text| Url::parse(text).unwrap());
        rules().check(&url, &from).map_err(|why| why.to_string())
    }

    #[test]
    fn nothing_goes_unencrypted_but_to_this_machine_and_where_the_operator_says_so() {
        for good in [
            "https://r.example/v2/",
            "http://localhost:5000/v2/",
            "http://[::1]:5000/v2/",
            "http://r.internal:5000/v2/",
        ] {
            assert_eq!(check(good, good), Ok(()), "{good}");
        }
        for bad in [
            "http://r.example/v2/",
            "http://r.internal/v2/",
            "http://r.internal:5001/v2/",
            "ftp://localhost/x",
            "file:///etc/passwd",
        ] {
            let why = check(bad, bad).unwrap_err();
            assert!(why.contains("without encryption"), "{bad}: {why}");
        }
    }

    #[test]
    fn who_is_elsewhere_sends_nobody_to_this_machine_unless_the_operator_says_so() {
        for elsewhere in ["https://r.example/v2/", "http://r.internal:5000/v2/"] {
            for here in [
                "http://127.0.0.1:9/x",
                "http://localhost:9/x",
                "http://2130706433:9/x",
                "http://0x7f.1:9/x",
                "http://[::1]:9/x",
                "https://127.9.9.9/x",
                "https://LOCALHOST./x",
                "https://a.localhost/x",
                "https://0.0.0.0/x",
                "https://[::]/x",
                "https://[::ffff:127.0.0.1]/x",
            ] {
                let why = check(here, elsewhere).unwrap_err();
                assert!(
                    why.contains("is on this machine") && why.contains("pull.insecure"),
                    "{here}: {why}"
                );
                assert_eq!(check(elsewhere, here), Ok(()), "{elsewhere}");
            }
            assert_eq!(check("http://127.0.0.1:5001/token", elsewhere), Ok(()));
        }
        // A registry here may have its tokens and its bytes at other ports.
        assert_eq!(
            check("http://127.0.0.1:9/token", "http://localhost:5000/v2/"),
            Ok(())
        );
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
