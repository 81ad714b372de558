use std::fmt;

use crate::plugin::{InvalidPluginName, PluginDigest, PluginName};

/// Precedes a digest.
const SHA256: &str = "sha256:";
/// The longest reference, in bytes: hosts read it with the row that holds it, again and again.
const BYTES_MAX: usize = 512;
/// The longest tag, in characters (OCI distribution specification).
const TAG_CHARS_MAX: usize = 128;

/// A SHA-256, in lower-case hex: of a component's bytes, or of an artifact's manifest.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Sha256(PluginDigest);

/// Where a version is: `oci://HOST/REPOSITORY:TAG`, `https://HOST/PATH` or `s3://BUCKET/KEY`, each
/// with `@sha256:DIGEST` if it must be exactly that one.
#[derive(Clone, PartialEq, Eq)]
pub struct ArtifactRef {
    location: Location,
    digest: Option<Sha256>,
}

/// Where something is kept, whatever it is at the moment.
#[derive(Clone, PartialEq, Eq)]
pub enum Location {
    /// In a registry that speaks the OCI distribution specification.
    Registry {
        /// Its name, with a port if it is not the usual one.
        host: String,
        /// The name of the repository there.
        repository: String,
        /// A name that may move from one version to another.
        tag: Option<String>,
    },
    /// On a web server.
    Web {
        /// The whole address. What follows a question mark may be secret.
        url: String,
    },
    /// In a bucket of Amazon S3.
    Bucket {
        /// The bucket's name.
        bucket: String,
        /// The name of the object in it.
        key: String,
    },
}

/// A text that is no reference, and what would be one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceFault {
    /// It begins with none of the known schemes.
    #[error(
        "begins with none of oci://, https:// and s3://: write it such as \
            \"oci://registry.example.org/team/alerts:1.4\""
    )]
    Scheme,
    /// It is longer than a reference may be.
    #[error("is longer than {BYTES_MAX} bytes")]
    Long,
    /// A digest is not a SHA-256.
    #[error("has a digest that is not written as @sha256:, with 64 hex digits after it")]
    Digest,
    /// There is no host, or it has other signs in it.
    #[error("names no host such as registry.example.org or localhost:5000")]
    Host,
    /// There is a user or a password in it.
    #[error(
        "must not contain a user and a password: set them under [pull.registries.\"HOST\"], or \
            log in with docker"
    )]
    Credentials,
    /// The repository's name is not one.
    #[error(
        "names no repository: it has small letters, digits, '.', '_', '-' and '/', such as \
            team/alerts"
    )]
    Repository,
    /// The tag is not one.
    #[error(
        "has a tag that no registry takes: at most {TAG_CHARS_MAX} letters, digits, '.', '_', '-'"
    )]
    Tag,
    /// It says which repository, and not which version.
    #[error("names no version: put a tag such as :1.4 behind it, or @sha256: and the digest")]
    NoVersion,
    /// It names no component's file.
    #[error("names no file of a component: its path ends in .wasm")]
    NotWasm,
    /// Its path may be read as that of another folder.
    #[error(
        "has a path that may lead to another folder: it has no backslash, no part . or .., and \
            none of %2e, %2f and %5c, which stand for these"
    )]
    Path,
}

impl Sha256 {
    /// Takes `sha256:` and 64 hex digits; `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        Self::from_hex(text.strip_prefix(SHA256)?)
    }

    /// Takes 64 hex digits; `None` for anything else.
    pub fn from_hex(hex: &str) -> Option<Self> {
        PluginDigest::from_hex(hex).map(Self)
    }

    /// What a hash function gave.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(PluginDigest::from_bytes(bytes))
    }

    /// The digest of a component, which names its version.
    pub fn of_version(version: &PluginDigest) -> Self {
        Self(version.clone())
    }

    /// The version that a component with this digest is.
    pub fn version(&self) -> PluginDigest {
        self.0.clone()
    }

    /// The digits without `sha256:` before them.
    pub fn hex(&self) -> &str {
        self.0.as_str()
    }
}

impl fmt::Display for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SHA256}{}", self.hex())
    }
}

impl fmt::Debug for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl ArtifactRef {
    /// Reads a reference as people write it.
    ///
    /// # Errors
    /// What is wrong with it, to follow its name.
    pub fn parse(text: &str) -> Result<Self, ReferenceFault> {
        if text.len() > BYTES_MAX || text.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(ReferenceFault::Long);
        }
        let (location, digest) = split_digest(text)?;
        let location = match location.split_once("://") {
            Some(("oci", rest)) => registry(rest, digest.is_some())?,
            Some(("https" | "http", rest)) => web(location, rest)?,
            Some(("s3", rest)) => bucket(rest)?,
            Some(_) | None => return Err(ReferenceFault::Scheme),
        };
        Ok(Self { location, digest })
    }

    /// Whether a text is meant as a reference, right or wrong, and not as the name of a file.
    pub fn is_meant(text: &str) -> bool {
        text.contains("://")
    }

    /// Where it points, whatever is there.
    pub fn location(&self) -> &Location {
        &self.location
    }

    /// What it must be: of a registry the manifest's digest, of all others the component's. `None`
    /// means whatever is there.
    pub fn digest(&self) -> Option<&Sha256> {
        self.digest.as_ref()
    }

    /// The same place, and exactly that version.
    #[must_use]
    pub fn pinned(&self, digest: Sha256) -> Self {
        let mut location = self.location.clone();
        if let Location::Registry { tag, .. } = &mut location {
            // The digest decides; a tag beside it would only mislead.
            *tag = None;
        }
        Self {
            location,
            digest: Some(digest),
        }
    }

    /// The same repository with another tag. All others have no tags, and stay as they are.
    #[must_use]
    pub fn tagged(&self, tag: &str) -> Self {
        let mut location = self.location.clone();
        if let Location::Registry { tag: of_this, .. } = &mut location {
            *of_this = Some(tag.to_owned());
        }
        Self {
            location,
            digest: None,
        }
    }

    /// What the plugin is called if nobody says otherwise: the last part of the repository's name,
    /// or the name of the file.
    ///
    /// # Errors
    /// That cannot name a plugin.
    pub fn plugin(&self) -> Result<PluginName, InvalidPluginName> {
        let (path, ending) = match &self.location {
            Location::Registry { repository, .. } => (repository.as_str(), ""),
            Location::Web { url } => (without_query(url), ".wasm"),
            Location::Bucket { key, .. } => (key.as_str(), ".wasm"),
        };
        let last = path.rsplit('/').next().unwrap_or(path);
        PluginName::new(last.strip_suffix(ending).unwrap_or(last))
    }

    /// Whether both are kept by the same people: in one repository, or in one folder of a server or
    /// a bucket. Who may write there decides about both.
    pub fn is_beside(&self, other: &Self) -> bool {
        match (&self.location, &other.location) {
            (
                Location::Registry {
                    host, repository, ..
                },
                Location::Registry {
                    host: other_host,
                    repository: other_repository,
                    ..
                },
            ) => host == other_host && repository == other_repository,
            (Location::Web { url }, Location::Web { url: other }) => {
                folder_of(without_query(url)) == folder_of(without_query(other))
            }
            (
                Location::Bucket { bucket, key },
                Location::Bucket {
                    bucket: other_bucket,
                    key: other_key,
                },
            ) => bucket == other_bucket && folder_of(key) == folder_of(other_key),
            _ => false,
        }
    }

    /// The host that is asked first, with its port; `None` for a bucket, whose host AWS knows.
    pub fn host(&self) -> Option<&str> {
        match &self.location {
            Location::Registry { host, .. } => Some(host),
            Location::Web { url } => {
                let rest = url.split_once("://")?.1;
                rest.split(['/', '?']).next()
            }
            Location::Bucket { .. } => None,
        }
    }

    /// Whether it says itself that nothing is encrypted on the way.
    pub fn is_plain_http(&self) -> bool {
        matches!(&self.location, Location::Web { url } if url.starts_with("http://"))
    }

    /// The whole reference, as it is stored: what follows a question mark is part of it.
    pub fn as_text(&self) -> String {
        self.written(|url| url)
    }

    fn written<'a>(&'a self, shown: impl Fn(&'a str) -> &'a str) -> String {
        let mut text = match &self.location {
            Location::Registry {
                host,
                repository,
                tag,
            } => {
                let tag = tag.as_deref().map(|tag| format!(":{tag}"));
                format!("oci://{host}/{repository}{}", tag.unwrap_or_default())
            }
            Location::Web { url } => shown(url).to_owned(),
            Location::Bucket { bucket, key } => format!("s3://{bucket}/{key}"),
        };
        if let Some(digest) = &self.digest {
            text = format!("{text}@{digest}");
        }
        text
    }
}

/// For people: without what follows a question mark, which may be a signature.
impl fmt::Display for ArtifactRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.written(without_query))
    }
}

impl fmt::Debug for ArtifactRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reference = ArtifactRef {
            location: self.clone(),
            digest: None,
        };
        write!(f, "{reference}")
    }
}

/// Whether a host, with or without a port, is this machine by its name or address.
pub fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(rest),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    let address = name.parse::<std::net::IpAddr>();
    name == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

fn split_digest(text: &str) -> Result<(&str, Option<Sha256>), ReferenceFault> {
    let Some((before, digest)) = text.rsplit_once('@') else {
        return Ok((text, None));
    };
    // An @ further to the left belongs to an address.
    if digest.contains('/') {
        return Ok((text, None));
    }
    let digest = Sha256::parse(digest).ok_or(ReferenceFault::Digest)?;
    Ok((before, Some(digest)))
}

fn registry(rest: &str, has_digest: bool) -> Result<Location, ReferenceFault> {
    let (host, path) = rest.split_once('/').ok_or(ReferenceFault::Repository)?;
    check_host(host)?;
    let (repository, tag) = match path.rsplit_once(':') {
        Some((repository, tag)) => (repository, Some(tag)),
        None => (path, None),
    };
    if !is_repository(repository) {
        return Err(ReferenceFault::Repository);
    }
    if tag.is_some_and(|tag| !is_tag(tag)) {
        return Err(ReferenceFault::Tag);
    }
    if tag.is_none() && !has_digest {
        return Err(ReferenceFault::NoVersion);
    }
    Ok(Location::Registry {
        host: host.to_owned(),
        repository: repository.to_owned(),
        tag: tag.map(str::to_owned),
    })
}

/// Object stores and servers tell capitals from small letters, and so does the folder.
fn is_component(path: &str) -> bool {
    path.strip_suffix(".wasm").is_some()
}

fn web(url: &str, rest: &str) -> Result<Location, ReferenceFault> {
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    check_host(host)?;
    let path = without_query(rest);
    if url.contains('#') || !is_component(path) || !path.contains('/') {
        return Err(ReferenceFault::NotWasm);
    }
    check_path(path)?;
    Ok(Location::Web {
        url: url.to_owned(),
    })
}

fn bucket(rest: &str) -> Result<Location, ReferenceFault> {
    let (bucket, key) = rest.split_once('/').ok_or(ReferenceFault::NotWasm)?;
    let is_of_bucket = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b".-".contains(&b);
    // 3 to 63 of these (AWS).
    if !(3..=63).contains(&bucket.len()) || !bucket.bytes().all(is_of_bucket) {
        return Err(ReferenceFault::Host);
    }
    if !is_component(key) || key.contains(['?', '#']) {
        return Err(ReferenceFault::NotWasm);
    }
    check_path(key)?;
    Ok(Location::Bucket {
        bucket: bucket.to_owned(),
        key: key.to_owned(),
    })
}

/// Who may write one folder decides about it alone. So nothing is in a path that a client or a
/// server reads as the way to another one: `\` is a slash to those who follow WHATWG's URLs.
fn check_path(path: &str) -> Result<(), ReferenceFault> {
    const ENCODED: [&str; 3] = ["%2e", "%2f", "%5c"];
    let lower = path.to_ascii_lowercase();
    let is_other = path.contains('\\')
        || path.split('/').any(|part| part == "." || part == "..")
        || ENCODED.iter().any(|encoded| lower.contains(encoded));
    if is_other {
        return Err(ReferenceFault::Path);
    }
    Ok(())
}

fn check_host(host: &str) -> Result<(), ReferenceFault> {
    if host.contains('@') {
        return Err(ReferenceFault::Credentials);
    }
    let is_of_host = |b: u8| b.is_ascii_alphanumeric() || b".-_:[]".contains(&b);
    if host.is_empty() || !host.bytes().all(is_of_host) {
        return Err(ReferenceFault::Host);
    }
    Ok(())
}

fn is_repository(name: &str) -> bool {
    let is_inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b);
    let is_end = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let is_part = |part: &str| {
        let mut bytes = part.bytes();
        let (first, last) = (bytes.next(), part.bytes().next_back());
        is_end(first) && is_end(last) && bytes.all(is_inner)
    };
    name.len() <= 255 && name.split('/').all(is_part)
}

fn is_tag(tag: &str) -> bool {
    let is_of_tag = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    let starts_well = tag
        .bytes()
        .next()
        .is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_');
    starts_well && tag.len() <= TAG_CHARS_MAX && tag.bytes().all(is_of_tag)
}

fn without_query(url: &str) -> &str {
    url.split('?').next().unwrap_or(url)
}

fn folder_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> ArtifactRef {
        ArtifactRef::parse(text).unwrap()
    }

    fn digest() -> String {
        format!("sha256:{}", "ab".repeat(32))
    }

    #[test]
    fn a_reference_is_written_as_it_was_read_and_names_its_plugin() {
        for (text, plugin) in [
            ("oci://registry.example.org/team/alerts:1.4", "alerts"),
            ("oci://localhost:5000/alerts:v1", "alerts"),
            ("oci://[::1]:5000/a/b/alerts_2:x", "alerts_2"),
            ("https://example.org/plugins/orders.wasm", "orders"),
            ("http://127.0.0.1:80/orders.wasm", "orders"),
            ("s3://my-bucket/plugins/totals.wasm", "totals"),
        ] {
            let reference = parse(text);
            assert_eq!(reference.as_text(), text);
            assert_eq!(reference.plugin().unwrap().as_str(), plugin, "{text}");
            let pinned = format!("{text}@{}", digest());
            assert_eq!(parse(&pinned).digest().unwrap().to_string(), digest());
            assert_eq!(parse(&pinned).as_text(), pinned);
        }
        let by_digest = format!("oci://registry.example.org/alerts@{}", digest());
        assert_eq!(parse(&by_digest).as_text(), by_digest);
        let pinned = parse("oci://registry.example.org/alerts:1.4");
        let pinned = pinned.pinned(Sha256::parse(&digest()).unwrap());
        assert_eq!(pinned.as_text(), by_digest, "the tag would mislead");
        assert_eq!(
            pinned.tagged("2").as_text(),
            "oci://registry.example.org/alerts:2"
        );
    }

    #[test]
    fn what_is_no_reference_is_refused_for_what_is_wrong_with_it() {
        let bad_digest = format!("oci://r.example/alerts@sha256:{}", "g".repeat(64));
        let long = format!("oci://r.example/{}:1", "a".repeat(600));
        for (text, fault) in [
            ("registry/team/alerts:1.4", ReferenceFault::Scheme),
            ("ftp://x/alerts.wasm", ReferenceFault::Scheme),
            ("oci:///alerts:1", ReferenceFault::Host),
            ("oci://r.example", ReferenceFault::Repository),
            ("oci://r.example/Alerts:1", ReferenceFault::Repository),
            ("oci://r.example/a//b:1", ReferenceFault::Repository),
            ("oci://r.example/-a:1", ReferenceFault::Repository),
            ("oci://r.example/alerts", ReferenceFault::NoVersion),
            ("oci://r.example/alerts:", ReferenceFault::Tag),
            ("oci://r.example/alerts:.x", ReferenceFault::Tag),
            (
                "oci://me:hush@r.example/alerts:1",
                ReferenceFault::Credentials,
            ),
            ("https://me:hush@x.org/a.wasm", ReferenceFault::Credentials),
            ("https://x.org/alerts.zip", ReferenceFault::NotWasm),
            ("https://x.org/a.wasm#b", ReferenceFault::NotWasm),
            ("s3://b/alerts.wasm", ReferenceFault::Host),
            ("s3://bucket/alerts", ReferenceFault::NotWasm),
            (bad_digest.as_str(), ReferenceFault::Digest),
            (long.as_str(), ReferenceFault::Long),
            ("oci://r.example/a b:1", ReferenceFault::Long),
        ] {
            assert_eq!(ArtifactRef::parse(text), Err(fault), "{text}");
        }
    }

    #[test]
    fn no_path_leads_out_of_the_folder_that_it_names_however_it_is_written() {
        for place in ["https://x.org/p/", "s3://bucket/p/"] {
            for way in [
                "..\\q\\a.wasm",
                "..\\a.wasm",
                "../q/a.wasm",
                "./a.wasm",
                "%2e%2E/q/a.wasm",
                ".%2E/q/a.wasm",
                "..%2Fq%2fa.wasm",
                "..%5Cq%5ca.wasm",
                "q/../../a.wasm",
            ] {
                let text = format!("{place}{way}");
                assert_eq!(
                    ArtifactRef::parse(&text),
                    Err(ReferenceFault::Path),
                    "{text}"
                );
            }
            for good in ["a..b.wasm", "v1.2/a.wasm", "a%20b.wasm", ".a/b.wasm"] {
                parse(&format!("{place}{good}"));
            }
        }
        // What is signed may have any signs.
        parse("https://x.org/p/a.wasm?signature=a%2Fb\\..");
    }

    #[test]
    fn what_follows_a_question_mark_is_kept_and_never_shown() {
        let text = "https://b.example/alerts.wasm?X-Amz-Signature=hush";
        let reference = parse(text);
        assert_eq!(reference.as_text(), text);
        for shown in [
            reference.to_string(),
            format!("{reference:?} {:?}", reference.location()),
        ] {
            assert!(!shown.contains("hush"), "{shown}");
        }
        assert_eq!(reference.plugin().unwrap().as_str(), "alerts");
    }

    #[test]
    fn who_may_write_one_repository_or_folder_decides_about_nothing_else() {
        let is_beside = |a: &str, b: &str| parse(a).is_beside(&parse(b));
        assert!(is_beside(
            "oci://r.example/team/alerts:1",
            "oci://r.example/team/alerts:2"
        ));
        for other in [
            "oci://r.example/team/orders:1",
            "oci://evil.example/team/alerts:1",
            "https://r.example/team/alerts.wasm",
        ] {
            assert!(
                !is_beside("oci://r.example/team/alerts:1", other),
                "{other}"
            );
        }
        assert!(is_beside(
            "https://x.org/p/a.wasm",
            "https://x.org/p/b.wasm?v=2"
        ));
        for other in ["https://x.org/q/a.wasm", "http://x.org/p/a.wasm"] {
            assert!(!is_beside("https://x.org/p/a.wasm", other), "{other}");
        }
        assert!(is_beside("s3://bucket/p/a.wasm", "s3://bucket/p/b.wasm"));
        assert!(!is_beside("s3://bucket/p/a.wasm", "s3://bucket/a.wasm"));
    }

    #[test]
    fn this_machine_is_known_by_its_names_and_addresses_only() {
        for host in [
            "localhost",
            "localhost:5000",
            "127.0.0.1:1",
            "[::1]:5000",
            "127.9.9.9",
        ] {
            assert!(is_loopback(host), "{host}");
        }
        for host in [
            "localhost.example.org",
            "10.0.0.1:5000",
            "[::2]:1",
            "r.example:127",
        ] {
            assert!(!is_loopback(host), "{host}");
        }
        assert_eq!(
            parse("https://x.org:8443/a.wasm").host(),
            Some("x.org:8443")
        );
    }
}
