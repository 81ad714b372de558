//! Where a plugin may send HTTP requests: `api.example.org`, `*.example.com:8443`,
//! `http://10.1.2.3`.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Longest name (DNS).
const NAME_MAX: usize = 253;

/// How a request travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpScheme {
    /// HTTP without encryption.
    Http,
    /// HTTP over TLS.
    Https,
}

/// One entry of a list of hosts: a scheme, a host or all hosts under a name, and one port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpHost {
    scheme: HttpScheme,
    name: HostName,
    port: u16,
}

/// The host of an entry. Lower case, as URL parsers give it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum HostName {
    /// `*`
    Any,
    /// `*.example.org`, without the `*`: hosts at any depth below, not the name itself.
    Below(String),
    /// A name, an IPv4 address, or an IPv6 address in brackets.
    Exactly(String),
}

/// An entry that does not name a host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{entry:?} {problem}; write a host such as \"api.example.org\", \"*.example.org:8443\" or \
        \"http://10.1.2.3\""
)]
pub struct InvalidHttpHost {
    entry: String,
    problem: &'static str,
}

impl HttpScheme {
    /// The port of an entry that names none.
    pub fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }

    /// The scheme as a URL has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}

impl HttpHost {
    /// Reads an entry. Without a scheme it is https, without a port the scheme's own.
    pub fn parse(entry: &str) -> Result<Self, InvalidHttpHost> {
        let invalid = |problem| InvalidHttpHost {
            entry: entry.to_owned(),
            problem,
        };
        let text = entry.to_ascii_lowercase();
        let (scheme, rest) = split_scheme(&text).map_err(invalid)?;
        if rest.contains(['/', '?', '#', '@']) {
            return Err(invalid("names more than a host and a port"));
        }
        let (name, port) = split_port(rest);
        let port = match port {
            None => scheme.default_port(),
            Some(port) => parse_port(port).map_err(invalid)?,
        };
        Ok(Self {
            scheme,
            name: HostName::parse(name).map_err(invalid)?,
            port,
        })
    }

    /// The only port that the entry covers.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Whether the entry covers a request to this place. `host` is lower case, an IPv6 address in
    /// brackets.
    pub fn admits(&self, scheme: HttpScheme, host: &str, port: u16) -> bool {
        let is_named = match &self.name {
            HostName::Any => true,
            HostName::Below(parent) => is_below(host, parent),
            HostName::Exactly(name) => host == name,
        };
        self.scheme == scheme && self.port == port && is_named
    }

    /// Whether this entry covers everything that `other` covers.
    pub fn covers(&self, other: &Self) -> bool {
        let is_named = match (&self.name, &other.name) {
            (HostName::Any, _) => true,
            (HostName::Below(ours), HostName::Below(theirs)) => {
                ours == theirs || is_below(theirs, ours)
            }
            (HostName::Below(ours), HostName::Exactly(theirs)) => is_below(theirs, ours),
            (HostName::Exactly(ours), HostName::Exactly(theirs)) => ours == theirs,
            (HostName::Below(_) | HostName::Exactly(_), _) => false,
        };
        self.scheme == other.scheme && self.port == other.port && is_named
    }
}

fn split_scheme(entry: &str) -> Result<(HttpScheme, &str), &'static str> {
    match entry.split_once("://") {
        None => Ok((HttpScheme::Https, entry)),
        Some(("https", rest)) => Ok((HttpScheme::Https, rest)),
        Some(("http", rest)) => Ok((HttpScheme::Http, rest)),
        Some(_) => Err("has a scheme that is neither http nor https"),
    }
}

/// An IPv6 address contains colons, and is in brackets for that reason.
fn split_port(host: &str) -> (&str, Option<&str>) {
    let end_of_address = host.rfind(']').map_or(0, |end| end + 1);
    match host[end_of_address..].split_once(':') {
        None => (host, None),
        Some((_, port)) => (&host[..host.len() - port.len() - 1], Some(port)),
    }
}

fn parse_port(text: &str) -> Result<u16, &'static str> {
    let port = text.parse().ok().filter(|port| *port != 0);
    port.ok_or("has a port that is not a number from 1 to 65535")
}

/// Whether `host` is `LABELS` + `.` + `parent`. An address in brackets is below nothing, and
/// neither is a dotted one: no parent ends in a number.
fn is_below(host: &str, parent: &str) -> bool {
    host.strip_suffix(parent)
        .and_then(|labels| labels.strip_suffix('.'))
        .is_some_and(|labels| !labels.is_empty())
}

impl HostName {
    fn parse(name: &str) -> Result<Self, &'static str> {
        if name == "*" {
            return Ok(Self::Any);
        }
        if let Some(address) = name
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
        {
            let address: Ipv6Addr = address
                .parse()
                .map_err(|_| "has brackets around something that is not an IPv6 address")?;
            return Ok(Self::Exactly(format!("[{address}]")));
        }
        let (parent, is_exact) = name
            .strip_prefix("*.")
            .map_or((name, true), |parent| (parent, false));
        if !is_dns_name(parent) {
            return Err(
                "is not a host name (letters, digits, '-', '_' and '.'; others in punycode; '*' \
                    only in front)",
            );
        }
        // URL parsers read such names as addresses in short or odd forms: `127.1`, `0x7f.1`.
        let last = parent.rsplit('.').next().unwrap_or_default();
        let is_numeric = last.bytes().all(|b| b.is_ascii_digit()) || last.starts_with("0x");
        match (is_exact, is_numeric) {
            (true, true) if parent.parse::<Ipv4Addr>().is_err() => {
                Err("looks like an IPv4 address but is not one")
            }
            (false, true) => Err("has '*' in front of an address"),
            (true, _) => Ok(Self::Exactly(parent.to_owned())),
            (false, false) => Ok(Self::Below(parent.to_owned())),
        }
    }
}

fn is_dns_name(name: &str) -> bool {
    let is_allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_';
    let is_label = |label: &str| (1..=63).contains(&label.len()) && label.bytes().all(is_allowed);
    name.len() <= NAME_MAX && name.split('.').all(is_label)
}

impl fmt::Display for HttpHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://", self.scheme.as_str())?;
        match &self.name {
            HostName::Any => f.write_str("*")?,
            HostName::Below(parent) => write!(f, "*.{parent}")?,
            HostName::Exactly(name) => f.write_str(name)?,
        }
        if self.port == self.scheme.default_port() {
            Ok(())
        } else {
            write!(f, ":{}", self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(entry: &str) -> HttpHost {
        HttpHost::parse(entry).unwrap()
    }

    #[test]
    fn an_entry_admits_its_scheme_its_host_and_its_port_and_nothing_else() {
        use HttpScheme::{Http, Https};
        for (entry, scheme, name, port, expected) in [
            ("api.example.org", Https, "api.example.org", 443, true),
            ("API.Example.org", Https, "api.example.org", 443, true),
            ("api.example.org", Http, "api.example.org", 80, false),
            ("api.example.org", Https, "api.example.org", 8443, false),
            (
                "api.example.org",
                Https,
                "api.example.org.evil.net",
                443,
                false,
            ),
            ("api.example.org", Https, "evil-api.example.org", 443, false),
            ("api.example.org", Https, "api.example.org.", 443, false),
            ("*.example.org:8443", Https, "a.b.example.org", 8443, true),
            ("*.example.org", Https, "example.org", 443, false),
            ("*.example.org", Https, "badexample.org", 443, false),
            ("*.example.org", Https, ".example.org", 443, false),
            ("http://10.1.2.3", Http, "10.1.2.3", 80, true),
            ("http://[FD00::0001]:81", Http, "[fd00::1]", 81, true),
            ("http://[fd00::]:81", Http, "[fd00::]", 81, true),
            ("http://[fd00::]", Http, "[fd00::]", 80, true),
            ("a-b.of_c.org", Https, "a-b.of_c.org", 443, true),
            ("*", Https, "anything.net", 443, true),
            ("*", Http, "anything.net", 80, false),
        ] {
            assert_eq!(
                host(entry).admits(scheme, name, port),
                expected,
                "{entry} {name}"
            );
        }
    }

    #[test]
    fn a_ceiling_covers_what_it_admits() {
        for (ceiling, asked, expected) in [
            ("*.example.org", "api.example.org", true),
            ("*.example.org", "*.api.example.org", true),
            ("*.example.org", "*.example.org", true),
            ("*.api.example.org", "*.example.org", false),
            ("*.example.org", "example.org", false),
            ("*.example.org", "*", false),
            ("api.example.org", "*.example.org", false),
            ("api.example.org", "api.example.org", true),
            ("api.example.org", "web.example.org", false),
            ("*", "*.example.org", true),
            ("*", "http://example.org", false),
            ("*.example.org", "api.example.org:8443", false),
        ] {
            assert_eq!(
                host(ceiling).covers(&host(asked)),
                expected,
                "{ceiling} {asked}"
            );
        }
    }

    #[test]
    fn what_names_no_host_is_refused_with_what_would() {
        for entry in [
            "",
            "https://",
            "ftp://x",
            "a/b",
            "user@host",
            "host:0",
            "host:99999",
            "host:",
            "a b",
            "a..b",
            "*x.org",
            "a.*.org",
            "127.1",
            "0x7f.1",
            "2130706433",
            "*.1.2.3.4",
            "[::1",
            "[1.2.3.4]",
            "bücher.example",
            "host:80:90",
        ] {
            let error = HttpHost::parse(entry).unwrap_err().to_string();
            assert!(error.contains("write a host such as"), "{error}");
        }
    }

    #[test]
    fn an_entry_is_shown_as_it_may_be_written() {
        for entry in [
            "https://api.example.org",
            "https://*.example.org:8443",
            "http://[fd00::1]",
            "https://*",
        ] {
            assert_eq!(host(entry).to_string(), entry);
        }
        let ports = ["a.org", "http://a.org", "a.org:8443"].map(|entry| host(entry).port());
        assert_eq!(ports, [443, 80, 8443]);
    }
}
