//! The section `[http]`: limits on the HTTP requests of all plugins that may send any.

use std::time::Duration;

use bytesize::ByteSize;
use serde::Deserialize;
use shardmill_core::plugin::{AddressPolicy, HttpLimits, Network};

use super::duration;
use super::problem::{At, Problem};
use super::settings::HttpConfig;
use super::size;
use super::units::to_usize;

/// Headers that the HTTP implementation reads at most.
const HEADERS_MAX: usize = 100;
/// Longest wait that can be set. A guest's call is far shorter, and its lease is given up after 15
/// minutes.
const TIME_MAX: Duration = Duration::from_mins(10);
/// Largest body of a request or a response: the host holds one for each concurrent request.
const BODY_MAX: ByteSize = ByteSize::mib(64);
/// Most bytes of headers; no server should want more.
const HEADER_BYTES_MAX: ByteSize = ByteSize::kib(256);
/// Most concurrent requests of one instance that a machine could bear.
const IN_FLIGHT_MAX: usize = 256;

/// Requests of all instances at once: beyond that, processes run out of open files.
const IN_FLIGHT_TOTAL_MAX: usize = 16_384;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct HttpRequestsFile {
    #[serde(default)]
    allow_private: Vec<String>,
    #[serde(default, deserialize_with = "duration::optional")]
    connect_timeout: Option<Duration>,
    #[serde(default, deserialize_with = "duration::optional")]
    first_byte_timeout: Option<Duration>,
    #[serde(default, deserialize_with = "duration::optional")]
    between_bytes_timeout: Option<Duration>,
    #[serde(default, deserialize_with = "duration::optional")]
    timeout: Option<Duration>,
    #[serde(default, deserialize_with = "size::optional")]
    request_bytes: Option<ByteSize>,
    #[serde(default, deserialize_with = "size::optional")]
    response_bytes: Option<ByteSize>,
    headers: Option<usize>,
    #[serde(default, deserialize_with = "size::optional")]
    header_bytes: Option<ByteSize>,
    requests_in_flight: Option<usize>,
    requests_in_flight_total: Option<usize>,
    requests_per_call: Option<usize>,
}

impl HttpRequestsFile {
    pub(super) fn check(self) -> Result<HttpConfig, Problem> {
        let networks = self.allow_private.iter().map(|text| Network::parse(text));
        let allowed = networks
            .collect::<Result<_, _>>()
            .at("http.allow-private")?;
        Ok(HttpConfig {
            limits: self.limits()?,
            addresses: AddressPolicy { allowed },
        })
    }

    fn limits(&self) -> Result<HttpLimits, Problem> {
        let mut limits = HttpLimits::default();
        self.set_times(&mut limits)?;
        self.set_sizes(&mut limits)?;
        self.set_counts(&mut limits)?;
        Ok(limits)
    }

    fn set_times(&self, limits: &mut HttpLimits) -> Result<(), Problem> {
        let times = [
            (
                "connect-timeout",
                self.connect_timeout,
                &mut limits.connect_timeout,
            ),
            (
                "first-byte-timeout",
                self.first_byte_timeout,
                &mut limits.first_byte_timeout,
            ),
            (
                "between-bytes-timeout",
                self.between_bytes_timeout,
                &mut limits.between_bytes_timeout,
            ),
            ("timeout", self.timeout, &mut limits.timeout),
        ];
        for (key, asked, limit) in times {
            let Some(time) = asked else { continue };
            if time.is_zero() || time > TIME_MAX {
                return Err(refused(key, "must be above zero and at most 10 minutes"));
            }
            *limit = time;
        }
        Ok(())
    }

    fn set_sizes(&self, limits: &mut HttpLimits) -> Result<(), Problem> {
        let sizes = [
            (
                "request-bytes",
                self.request_bytes,
                BODY_MAX,
                &mut limits.request_bytes,
            ),
            (
                "response-bytes",
                self.response_bytes,
                BODY_MAX,
                &mut limits.response_bytes,
            ),
            (
                "header-bytes",
                self.header_bytes,
                HEADER_BYTES_MAX,
                &mut limits.header_bytes,
            ),
        ];
        for (key, asked, max, limit) in sizes {
            let Some(size) = asked else { continue };
            if size.as_u64() == 0 || size > max {
                return Err(refused(
                    key,
                    &format!("must be above zero and at most {max}"),
                ));
            }
            *limit = to_usize(size);
        }
        Ok(())
    }

    fn set_counts(&self, limits: &mut HttpLimits) -> Result<(), Problem> {
        let in_flight_total = self.requests_in_flight_total;
        let counts = [
            ("headers", self.headers, HEADERS_MAX, &mut limits.headers),
            (
                "requests-in-flight",
                self.requests_in_flight,
                IN_FLIGHT_MAX,
                &mut limits.in_flight,
            ),
            (
                "requests-in-flight-total",
                in_flight_total,
                IN_FLIGHT_TOTAL_MAX,
                &mut limits.in_flight_total,
            ),
            (
                "requests-per-call",
                self.requests_per_call,
                usize::MAX,
                &mut limits.per_call,
            ),
        ];
        for (key, asked, max, limit) in counts {
            let Some(count) = asked else { continue };
            if count == 0 || count > max {
                return Err(refused(key, &format!("must be from 1 to {max}")));
            }
            *limit = count;
        }
        Ok(())
    }
}

fn refused(key: &str, message: &str) -> Problem {
    Problem::new(format!("http.{key}"), message)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::Config;

    fn http(text: &str) -> Result<HttpConfig, String> {
        Config::parse(&format!("stream = \"s\"\n[http]\n{text}"), Path::new("."))
            .map(|config| config.http)
    }

    #[test]
    fn every_limit_has_a_default_and_a_key() {
        assert_eq!(http("").unwrap(), HttpConfig::default());
        let text = "allow-private = [\"10.1.0.0/16\"]\nconnect-timeout = \
            \"1s\"\nfirst-byte-timeout = \"2s\"\n\
                    between-bytes-timeout = \"3s\"\ntimeout = \"4s\"\nrequest-bytes = \
                    \"5KiB\"\nresponse-bytes = \"6KiB\"\n\
                    headers = 7\nheader-bytes = \"8KiB\"\nrequests-in-flight = \
                    9\nrequests-per-call = 10\n\
                    requests-in-flight-total = 11";
        let limits = HttpLimits {
            connect_timeout: Duration::from_secs(1),
            first_byte_timeout: Duration::from_secs(2),
            between_bytes_timeout: Duration::from_secs(3),
            timeout: Duration::from_secs(4),
            request_bytes: 5 << 10,
            response_bytes: 6 << 10,
            headers: 7,
            header_bytes: 8 << 10,
            in_flight: 9,
            in_flight_total: 11,
            per_call: 10,
        };
        let addresses = AddressPolicy {
            allowed: vec![Network::parse("10.1.0.0/16").unwrap()],
        };
        assert_eq!(http(text).unwrap(), HttpConfig { limits, addresses });
    }

    #[test]
    fn what_cannot_work_is_refused_with_its_line() {
        for (text, expected) in [
            (
                "timeout = \"0s\"",
                "line 3: http.timeout: must be above zero",
            ),
            (
                "timeout = \"1h\"",
                "line 3: http.timeout: must be above zero and at most 10 minutes",
            ),
            (
                "request-bytes = \"1GiB\"",
                "line 3: http.request-bytes: must be above zero and at most 64",
            ),
            (
                "headers = 101",
                "line 3: http.headers: must be from 1 to 100",
            ),
            (
                "requests-in-flight = 0",
                "line 3: http.requests-in-flight: must be from 1",
            ),
            (
                "allow-private = [\"home\"]",
                "line 3: http.allow-private: \"home\" is not a network",
            ),
            ("redirects = 3", "unknown field `redirects`"),
        ] {
            let error = http(text).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
