//! Which plugin, and which version of it.

use std::fmt::{self, Write};
use std::sync::Arc;

use super::tables::{TakenName, check_ending};

/// A plugin's name: its file's name without `.wasm`. It is also the application's name and so the
/// lease table's, unless the configuration says otherwise, which is where the rule comes from
/// (DynamoDB: 3 to 255 of `a-zA-Z0-9_.-`).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PluginName(Arc<str>);

/// Follows a plugin's name in that of its shadow. No plugin can be named so.
const SHADOW_ENDING: &str = ".shadow";

/// A file name that cannot name a plugin.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} cannot name a plugin: {why}")]
pub struct InvalidPluginName {
    /// The name as found.
    pub name: String,
    /// What is wrong with it.
    pub why: NameFault,
}

/// What is wrong with a name, and how to fix it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameFault {
    /// It has other characters, or is too short or too long.
    #[error("use 3 to 100 letters, digits, '_' or '-', starting with a letter or digit")]
    Letters,
    /// The file's ending is not in small letters.
    #[error("write its ending in small letters: .wasm")]
    Ending,
    /// Its lease table would be another plugin's.
    #[error(transparent)]
    Taken(#[from] TakenName),
}

impl PluginName {
    /// Checks the rule above.
    pub fn new(name: &str) -> Result<Self, InvalidPluginName> {
        let is_word = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
        let starts_well = name
            .as_bytes()
            .first()
            .is_some_and(u8::is_ascii_alphanumeric);
        let is_good = starts_well && (3..=100).contains(&name.len()) && name.bytes().all(is_word);
        let checked = if is_good {
            check_ending(name).map_err(NameFault::from)
        } else {
            Err(NameFault::Letters)
        };
        match checked {
            Ok(()) => Ok(Self(name.into())),
            Err(why) => Err(InvalidPluginName {
                name: name.chars().take(120).collect(),
                why,
            }),
        }
    }

    /// What the plugin is called where it serves one of several streams: `NAME.STREAM`. No file can
    /// be named so.
    #[must_use]
    pub fn on_stream(&self, stream: &str) -> Self {
        Self(format!("{}.{stream}", self.0).into())
    }

    /// The plugin of a component's file, whose name without `.wasm` is `NAME`, or `NAME.shadow` for
    /// a version that runs in the shadow of the plugin.
    ///
    /// # Errors
    /// `NAME` cannot name a plugin.
    pub fn of_file(stem: &str) -> Result<Self, InvalidPluginName> {
        match stem.strip_suffix(SHADOW_ENDING) {
            Some(plugin) => Ok(Self::new(plugin)?.shadow()),
            None => Self::new(stem),
        }
    }

    /// A name as it was written somewhere: a plugin's own, or what it is called on one of its
    /// streams ([`PluginName::on_stream`]).
    ///
    /// # Errors
    /// It is neither.
    pub fn of_label(label: &str) -> Result<Self, InvalidPluginName> {
        let plugin = Self::new(plugin_of_label(label))?;
        let stream = &label[plugin.0.len()..];
        let is_word = |b: u8| b.is_ascii_alphanumeric() || b"_.-".contains(&b);
        // A stream has at most 128 characters (AWS), and a number may follow.
        if stream.is_empty() || stream.len() <= 150 && stream.bytes().all(is_word) {
            return Ok(Self(label.into()));
        }
        Err(InvalidPluginName {
            name: label.chars().take(120).collect(),
            why: NameFault::Letters,
        })
    }

    /// The plugin itself, of what it is called on one of its streams.
    #[must_use]
    pub fn plugin(&self) -> Self {
        Self(plugin_of_label(&self.0).into())
    }

    /// What a version is called that runs in the shadow of this plugin: it has shares, log lines
    /// and measurements of its own. A stream that is called `shadow` shares the label.
    #[must_use]
    pub fn shadow(&self) -> Self {
        Self(format!("{}{SHADOW_ENDING}", self.0).into())
    }

    /// The plugin in whose shadow it runs, of a name by [`PluginName::of_file`]; `None` for a
    /// plugin itself.
    pub fn shadowed(&self) -> Option<Self> {
        let plugin = self.0.strip_suffix(SHADOW_ENDING)?;
        Some(Self(plugin.into()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Whether `label` is `plugin` itself, or what it is called on one of its streams
/// ([`PluginName::on_stream`]).
pub fn is_label_of(label: &str, plugin: &str) -> bool {
    label
        .strip_prefix(plugin)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// The plugin that `label` is of ([`is_label_of`]).
pub fn plugin_of_label(label: &str) -> &str {
    label.split('.').next().unwrap_or(label)
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

    /// What a hash function gave.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        let mut hex = String::with_capacity(64);
        for byte in bytes {
            // Writing into a text cannot fail.
            let _ = write!(hex, "{byte:02x}");
        }
        Self(hex.into())
    }

    /// All 64 hex digits, in lower case.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_read_back_as_it_was_written() {
        let plugin = PluginName::new("orders").unwrap();
        for written in [
            plugin.on_stream("clicks.eu_1"),
            plugin.clone(),
            plugin.shadow(),
        ] {
            assert_eq!(PluginName::of_label(written.as_str()).unwrap(), written);
            assert_eq!(written.plugin(), plugin);
        }
        for bad in ["", "or", "or.clicks", ".clicks", "orders.a b", "orders/x"] {
            assert!(PluginName::of_label(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_file_names_a_plugin_or_the_shadow_of_one() {
        let shadow = PluginName::of_file("orders.shadow").unwrap();
        assert_eq!(shadow.as_str(), "orders.shadow");
        assert_eq!(shadow.shadowed(), PluginName::new("orders").ok());
        assert_eq!(PluginName::of_file("orders").unwrap().shadowed(), None);
        for bad in [
            "or.shadow",
            ".shadow",
            "orders.shadow.shadow",
            "orders.canary",
        ] {
            assert!(PluginName::of_file(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_name_that_a_file_or_a_table_could_not_have_is_refused() {
        for good in ["abc", "a_b-c", "9lives", &"n".repeat(100)] {
            let name = PluginName::new(good).unwrap();
            assert_eq!((name.as_str(), name.to_string().as_str()), (good, good));
        }
        for bad in ["", "ab", "-abc", "_abc", "a.b", "a b", &"n".repeat(101)] {
            assert!(
                PluginName::new(bad)
                    .unwrap_err()
                    .to_string()
                    .contains("cannot name a plugin"),
                "{bad}"
            );
        }
        for table in ["flights-coordinator", "totals-state"] {
            let refused = PluginName::new(table).unwrap_err().to_string();
            assert!(
                refused.contains("cannot name a plugin: it ends in \"-"),
                "{refused}"
            );
        }
        assert_eq!(
            PluginName::new("clean")
                .unwrap()
                .on_stream("orders")
                .as_str(),
            "clean.orders"
        );
    }

    #[test]
    fn a_version_is_sixty_four_hex_digits_of_which_people_see_twelve() {
        let digest = PluginDigest::from_hex(&"0123456789ABcdef".repeat(4)).unwrap();
        assert_eq!(digest.as_str(), "0123456789abcdef".repeat(4));
        assert_eq!(
            (digest.short(), digest.to_string().as_str()),
            ("0123456789ab", "0123456789ab")
        );
        for bad in [
            "",
            "0123",
            &"0".repeat(63),
            &"0".repeat(65),
            &"g".repeat(64),
        ] {
            assert_eq!(PluginDigest::from_hex(bad), None, "{bad}");
        }
    }
}
