//! What must hold whatever a configuration file says.

use std::path::Path;

use super::config::Config;

/// Parses the bytes, if they are text.
///
/// # Panics
///
/// If it is refused without words, or with more than anybody reads.
pub(super) fn check(bytes: &[u8]) {
    /// A parser may quote the line that it does not like, twice and escaped.
    const WORDS_MAX: usize = 16 << 10;
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    match Config::parse(text, Path::new("/etc/shardmill")) {
        Ok(config) => assert!(config.plugins.is_absolute()),
        Err(message) => {
            assert!(!message.trim().is_empty());
            assert!(
                message.len() <= WORDS_MAX + 16 * text.len(),
                "{} bytes of words",
                message.len()
            );
        }
    }
}
