//! Whether an HTTP sink can be reached. Nothing is sent, since it would count as output.

use std::time::Duration;

use hyper::Uri;
use hyper_util::client::proxy::matcher::Matcher;
use shardmill_sinks::HttpSinkOptions;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Where the first connection of a request goes.
#[derive(Debug, PartialEq, Eq)]
struct Door {
    host: String,
    port: u16,
    /// Whether a proxy is there, and passes the request on.
    is_proxy: bool,
}

/// Whether something listens where the sink's requests go.
pub(super) async fn http_problem(options: &HttpSinkOptions) -> Result<(), String> {
    // The sink's client asks the same variables.
    match Door::of(options.url.as_str(), &Matcher::from_system()) {
        Some(door) => door.knock(options.connect_timeout).await,
        None => Ok(()),
    }
}

impl Door {
    /// `None` for a URL without a host or a port, which the configuration refuses.
    fn of(url: &str, proxies: &Matcher) -> Option<Self> {
        let target: Uri = url.parse().ok()?;
        let proxy = proxies.intercept(&target);
        let uri = proxy.as_ref().map_or(&target, |proxy| proxy.uri());
        Some(Self {
            host: uri.host()?.trim_matches(['[', ']']).to_owned(),
            port: uri.port_u16().or_else(|| port_of(uri.scheme_str()?))?,
            is_proxy: proxy.is_some(),
        })
    }

    async fn knock(&self, within: Duration) -> Result<(), String> {
        let connected = timeout(within, TcpStream::connect((&*self.host, self.port)));
        let why = match connected.await {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {within:?}"),
        };
        let Self { host, port, .. } = self;
        Err(if self.is_proxy {
            format!(
                "cannot connect to the proxy {host}:{port}: {why}; check HTTP_PROXY, HTTPS_PROXY \
                    and ALL_PROXY, or put the sink's host into NO_PROXY"
            )
        } else {
            format!("cannot connect to {host}:{port}: {why}; check `url`, or start what serves it")
        })
    }
}

/// The port of a URL, or of a proxy, that names none.
fn port_of(scheme: &str) -> Option<u16> {
    match scheme {
        "http" => Some(80),
        "https" => Some(443),
        "socks4" | "socks4a" | "socks5" | "socks5h" => Some(1080),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use shardmill_config::Config;
    use shardmill_sinks::SinkOptions;

    use super::*;

    #[tokio::test]
    async fn an_endpoint_that_nobody_serves_is_named_and_one_that_is_served_is_sent_nothing() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let config = |port: u16| {
            let text = format!(
                "stream = \"s\"\n[sinks.out]\ntype = \"http\"\nurl = \
                    \"http://127.0.0.1:{port}/in\"\n"
            );
            let config = Config::parse(&text, std::path::Path::new(".")).unwrap();
            let Some(SinkOptions::Http(options)) = config.sinks.get("out").cloned() else {
                panic!("it is one")
            };
            options
        };
        assert_eq!(http_problem(&config(port)).await, Ok(()));
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut sent = Vec::new();
        tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut sent)
            .await
            .unwrap();
        assert!(sent.is_empty());
        drop((listener, stream));
        let told = http_problem(&config(port)).await.unwrap_err();
        assert!(
            told.contains(&format!("127.0.0.1:{port}")) && told.contains("check `url`"),
            "{told}"
        );
    }

    fn through(server: &str) -> Matcher {
        Matcher::builder().all(server).no("inside.test").build()
    }

    fn door(host: &str, port: u16, is_proxy: bool) -> Door {
        Door {
            host: host.to_owned(),
            port,
            is_proxy,
        }
    }

    #[test]
    fn where_requests_go_through_another_server_that_one_must_be_reached() {
        let proxied = through("http://proxy.test:3128");
        let outside = Door::of("https://outside.test/in", &proxied);
        assert_eq!(outside, Some(door("proxy.test", 3128, true)));
        let inside = Door::of("https://inside.test/in", &proxied);
        assert_eq!(inside, Some(door("inside.test", 443, false)));
        let direct = Door::of("http://[::1]/in", &Matcher::builder().build());
        assert_eq!(direct, Some(door("::1", 80, false)));
        let of_socks = Door::of("http://outside.test/", &through("socks5://proxy.test"));
        assert_eq!(of_socks, Some(door("proxy.test", 1080, true)));
    }

    #[tokio::test]
    async fn a_server_in_between_that_nobody_runs_is_named_with_the_variables_that_set_it() {
        let door = Door::of("https://outside.test/in", &through("http://127.0.0.1:1")).unwrap();
        let told = door.knock(Duration::from_secs(5)).await.unwrap_err();
        assert!(
            told.contains("the proxy 127.0.0.1:1") && told.contains("HTTPS_PROXY"),
            "{told}"
        );
    }
}
