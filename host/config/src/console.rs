//! The section `[console]`: whether a host serves the console, and who may do what there.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use serde::Deserialize;
use shardmill_core::control::{NAME_CHARS_MAX, is_name_of_person};
use shardmill_core::plugin::SecretSource;

use super::host::HostFile;
use super::problem::Problem;
use super::section;
use super::settings::{ConsoleConfig, ConsoleRight, ConsoleToken, ForwardedUsers};

/// Whom a proxy names without being listed, in `[console.proxy.users]`.
const ANYBODY: &str = "*";
/// Most fields that can be masked.
const MASKS_MAX: usize = 100;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct ConsoleFile {
    #[serde(default)]
    enabled: bool,
    #[serde(default)]
    anonymous: BTreeSet<ConsoleRight>,
    #[serde(default)]
    mask: Vec<String>,
    #[serde(default, deserialize_with = "section::by_name")]
    tokens: BTreeMap<String, TokenFile>,
    #[serde(default, deserialize_with = "section::optional")]
    proxy: Option<ForwardedFile>,
}

/// `[console.tokens.NAME]`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct TokenFile {
    file: Option<PathBuf>,
    env: Option<String>,
    may: BTreeSet<ConsoleRight>,
}

/// `[console.proxy]`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct ForwardedFile {
    header: String,
    addresses: Vec<String>,
    users: BTreeMap<String, BTreeSet<ConsoleRight>>,
}

impl ConsoleFile {
    /// Relative paths are relative to `folder`.
    pub(super) fn check(self, folder: &Path, host: &HostFile) -> Result<ConsoleConfig, Problem> {
        if self.enabled && !host.has_admin() {
            let message = "needs an address to be served on: set host.admin = \"127.0.0.1:9090\"";
            return Err(Problem::new("console.enabled", message));
        }
        let mut tokens = Vec::new();
        for (name, token) in self.tokens {
            tokens.push(token.check(name, folder)?);
        }
        Ok(ConsoleConfig {
            is_enabled: self.enabled,
            anonymous: self.anonymous,
            masked: masks(self.mask)?,
            tokens,
            proxy: self.proxy.map(ForwardedFile::check).transpose()?,
        })
    }
}

impl TokenFile {
    fn check(self, name: String, folder: &Path) -> Result<ConsoleToken, Problem> {
        let key = format!("console.tokens.{name}");
        if let Some(message) = wrong_name(&name) {
            return Err(Problem::new(key, message));
        }
        let source = match (self.file, self.env) {
            (Some(file), None) => SecretSource::File(folder.join(file)),
            (None, Some(name)) if !name.is_empty() => SecretSource::Variable(name),
            _ => {
                let message = "say either file or env, where the token is kept";
                return Err(Problem::new(key, message));
            }
        };
        Ok(ConsoleToken {
            name,
            source,
            may: self.may,
        })
    }
}

impl ForwardedFile {
    fn check(self) -> Result<ForwardedUsers, Problem> {
        let header = user_header(&self.header)?;
        if self.addresses.is_empty() {
            let message = "names no address: anybody could name themselves; list the proxy's, \
                such as [\"127.0.0.1\"]";
            return Err(Problem::new("console.proxy.addresses", message));
        }
        let addresses = self.addresses.iter().map(|text| network(text));
        let addresses = addresses.collect::<Result<_, _>>()?;
        let mut users = self.users;
        for name in users.keys().filter(|name| *name != ANYBODY) {
            if let Some(message) = wrong_name(name) {
                return Err(Problem::new("console.proxy.users", message));
            }
        }
        Ok(ForwardedUsers {
            header,
            addresses,
            anybody: users.remove(ANYBODY).unwrap_or_default(),
            users,
        })
    }
}

/// The header that names the user, in lower case.
fn user_header(name: &str) -> Result<String, Problem> {
    let header = name.to_ascii_lowercase();
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-';
    if header.is_empty() || !header.chars().all(is_name) || header == "authorization" {
        let message = "must be the name of a header that the proxy sets, such as \
            \"x-forwarded-user\"";
        return Err(Problem::new("console.proxy.header", message));
    }
    Ok(header)
}

/// An address, or a network such as `10.0.0.0/8`.
fn network(text: &str) -> Result<IpNet, Problem> {
    let address = text.parse::<IpAddr>().map(IpNet::from);
    address.or_else(|_| text.parse()).map_err(|_| {
        let message =
            format!("{text:?} is neither an address nor a network such as \"10.0.0.0/8\"");
        Problem::new("console.proxy.addresses", message)
    })
}

/// What is wrong with the name of a person.
fn wrong_name(name: &str) -> Option<String> {
    (!is_name_of_person(name)).then(|| {
        format!("a name has 1 to {NAME_CHARS_MAX} characters and no line breaks, such as \"alice\"")
    })
}

/// Each a path of fields, such as `customer.email`.
fn masks(paths: Vec<String>) -> Result<Vec<Vec<String>>, Problem> {
    if paths.len() > MASKS_MAX {
        let message = format!("has {} entries, at most are {MASKS_MAX}", paths.len());
        return Err(Problem::new("console.mask", message));
    }
    let mut masked = Vec::new();
    for path in paths {
        let fields: Vec<String> = path.split('.').map(str::to_owned).collect();
        if fields.iter().any(String::is_empty) {
            let message = format!("{path:?} is not a path of fields, such as \"customer.email\"");
            return Err(Problem::new("console.mask", message));
        }
        masked.push(fields);
    }
    Ok(masked)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::Config;

    fn console(section: &str) -> Result<ConsoleConfig, String> {
        let text = format!("[host]\nadmin = \"127.0.0.1:0\"\n[console]\n{section}");
        Ok(Config::parse(&text, Path::new("/etc"))?.console)
    }

    #[test]
    fn the_console_is_off_and_nobody_may_anything_unless_the_operator_says_so() {
        let config = console("").unwrap();
        assert!(!config.is_enabled);
        assert!(config.anonymous.is_empty() && config.tokens.is_empty() && config.proxy.is_none());
        let error = Config::parse("[console]\nenabled = true", Path::new(".")).unwrap_err();
        assert!(error.contains("host.admin"), "{error}");
    }

    #[test]
    fn tokens_and_forwarded_names_may_what_is_listed_and_no_more() {
        let config = console(
            "enabled = true\nmask = [\"customer.email\"]\n\
             [console.tokens.alice]\nfile = \"alice\"\nmay = [\"view\", \"view-data\"]\n\
             [console.proxy]\nheader = \"X-User\"\naddresses = [\"127.0.0.1\", \"10.0.0.0/8\"]\n\
             [console.proxy.users]\n\"bob@example.com\" = [\"operate\"]\n\"*\" = [\"view\"]",
        )
        .unwrap();
        let alice = &config.tokens[0];
        assert_eq!(alice.name, "alice");
        assert_eq!(alice.source, SecretSource::File("/etc/alice".into()));
        assert_eq!(
            alice.may,
            [ConsoleRight::View, ConsoleRight::ViewData].into()
        );
        assert_eq!(config.masked, [["customer", "email"]]);
        let proxy = config.proxy.unwrap();
        assert_eq!(proxy.header, "x-user");
        let is_trusted = |address: &str| {
            let address: IpAddr = address.parse().unwrap();
            proxy.addresses.iter().any(|net| net.contains(&address))
        };
        assert!(is_trusted("127.0.0.1") && is_trusted("10.9.8.7"));
        assert!(!is_trusted("127.0.0.2") && !is_trusted("11.0.0.1"));
        assert_eq!(
            proxy.users["bob@example.com"],
            [ConsoleRight::Operate].into()
        );
        assert_eq!(proxy.anybody, [ConsoleRight::View].into());
    }

    #[test]
    fn what_would_let_anybody_in_or_mean_nothing_is_refused_by_name() {
        for (section, named) in [
            ("anonymous = [\"root\"]", "root"),
            ("mask = [\"a..b\"]", "console.mask"),
            ("[console.tokens.a]\nmay = [\"view\"]", "either file or env"),
            (
                "[console.tokens.a]\nfile = \"a\"\nenv = \"A\"\nmay = []",
                "either file or env",
            ),
            ("[console.tokens.a]\nfile = \"a\"", "may"),
            (
                "[console.tokens.\" a\"]\nfile = \"a\"\nmay = []",
                "no line breaks",
            ),
            (
                "[console.proxy]\nheader = \"x-user\"\naddresses = []\nusers = {}",
                "console.proxy.addresses",
            ),
            (
                "[console.proxy]\nheader = \"x-user\"\naddresses = [\"localhost\"]\nusers = {}",
                "neither an address",
            ),
            (
                "[console.proxy]\nheader = \"authorization\"\naddresses = [\"::1\"]\nusers = {}",
                "console.proxy.header",
            ),
            ("tokens = [\"a\"]", "tokens"),
            ("color = 1", "unknown field `color`"),
        ] {
            let told = console(section).unwrap_err();
            assert!(told.contains(named), "{section}: {told}");
        }
    }
}
