//! Which plugin, and which version of it.

use std::fmt;
use std::sync::Arc;

/// A plugin's name: its file's name without `.wasm`. It is also the application's name and so the lease table's, unless
/// the configuration says otherwise, which is where the rule comes from (DynamoDB: 3 to 255 of `a-zA-Z0-9_.-`).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PluginName(Arc<str>);

/// A file name that cannot name a plugin.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} cannot name a plugin: use 3 to 100 letters, digits, '_' or '-', starting with a letter or digit")]
pub struct InvalidPluginName {
    /// The name as found.
    pub name: String,
}

impl PluginName {
    /// Checks the rule above.
    pub fn new(name: &str) -> Result<Self, InvalidPluginName> {
        let is_word = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
        let starts_well = name.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric);
        if !starts_well || !(3..=100).contains(&name.len()) || !name.bytes().all(is_word) {
            return Err(InvalidPluginName { name: name.chars().take(120).collect() });
        }
        Ok(Self(name.into()))
    }

    /// What the plugin is called where it serves one of several streams: `NAME.STREAM`. No file can be named so.
    #[must_use]
    pub fn on_stream(&self, stream: &str) -> Self {
        Self(format!("{}.{stream}", self.0).into())
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PluginName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for PluginName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The SHA-256 of a component's bytes, in lower-case hex: the identity of a version.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct PluginDigest(Arc<str>);

impl PluginDigest {
    /// Takes 64 hex digits; `None` for anything else.
    pub fn from_hex(hex: &str) -> Option<Self> {
        let is_hex = hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_hexdigit());
        is_hex.then(|| Self(hex.to_ascii_lowercase().into()))
    }

    /// All 64 digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first twelve digits, for people.
    pub fn short(&self) -> &str {
        &self.0[..12]
    }
}

impl fmt::Display for PluginDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.short())
    }
}

impl fmt::Debug for PluginDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.short())
    }
}
