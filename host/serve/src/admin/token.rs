//! Tokens that requests show.

use std::path::Path;
use std::sync::Arc;

use axum::http::{HeaderMap, HeaderValue, header};
use shardmill_core::plugin::SecretSource;

/// Shortest token; a shorter one can be guessed.
const TOKEN_BYTES_MIN: usize = 16;
/// Longest: a header has to hold it.
const TOKEN_BYTES_MAX: usize = 1_024;

/// What a request shows in the header `authorization: Bearer TOKEN`.
#[derive(Clone)]
pub struct Token(Arc<str>);

/// A token that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The variable that should hold it is not set.
    #[error("the variable {0} is not set")]
    NoVariable(String),
    /// The file that should hold it cannot be read.
    #[error("cannot read {path}: {source}")]
    NoFile {
        /// The file.
        path: String,
        /// Why not.
        source: std::io::Error,
    },
    /// It has so many bytes, or characters that no header can hold.
    #[error(
        "the token has {0} bytes, and must have {TOKEN_BYTES_MIN} to {TOKEN_BYTES_MAX} \
            visible ASCII characters: `openssl rand -hex 32` makes one"
    )]
    Unfit(usize),
}

impl Token {
    /// Reads the token: 16 to 1,024 visible ASCII characters.
    pub fn read(source: &SecretSource) -> Result<Self, TokenError> {
        Ok(Self(read(source)?.into()))
    }

    /// Whether a request with these headers shows it.
    pub fn is_shown_in(&self, headers: &HeaderMap) -> bool {
        let shown = headers.get(header::AUTHORIZATION);
        let shown = shown.map(HeaderValue::as_bytes).unwrap_or_default();
        shown
            .strip_prefix(b"Bearer ")
            .is_some_and(|shown| is_same(shown, self.0.as_bytes()))
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(..)")
    }
}

/// Compares in a time that does not depend on where the two differ.
fn is_same(shown: &[u8], token: &[u8]) -> bool {
    let difference = shown
        .iter()
        .zip(token)
        .fold(0, |difference, (a, b)| difference | (a ^ b));
    shown.len() == token.len() && difference == 0
}

fn read(source: &SecretSource) -> Result<String, TokenError> {
    let text = match source {
        SecretSource::Variable(name) => {
            std::env::var(name).map_err(|_| TokenError::NoVariable(name.clone()))?
        }
        SecretSource::File(path) => read_file(path)?,
    };
    let token = text.trim_end_matches(['\r', '\n']);
    let is_fit = (TOKEN_BYTES_MIN..=TOKEN_BYTES_MAX).contains(&token.len());
    if is_fit && token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(token.to_owned());
    }
    Err(TokenError::Unfit(token.len()))
}

fn read_file(path: &Path) -> Result<String, TokenError> {
    shardmill_config::files::read_text(path, TOKEN_BYTES_MAX as u64 + 2).map_err(|source| {
        TokenError::NoFile {
            path: path.display().to_string(),
            source,
        }
    })
}

#[cfg(test)]
impl From<&str> for Token {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    #[test]
    fn a_token_is_read_from_a_file_or_a_variable_and_must_be_hard_to_guess() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let from_file = |text: &str| {
            std::fs::write(&path, text).unwrap();
            read(&SecretSource::File(path.clone())).map_err(|error| error.to_string())
        };
        assert_eq!(from_file(&format!("{TOKEN}\n")), Ok(TOKEN.to_owned()));
        assert!(from_file("short\n").unwrap_err().contains("openssl rand"));
        assert!(from_file("0123456789 abcdef").is_err());
        assert!(from_file(&"x".repeat(2_000)).is_err());
        let unset = read(&SecretSource::Variable(
            "SHARDMILL_NO_SUCH_TOKEN".to_owned(),
        ))
        .unwrap_err();
        assert!(
            unset.to_string().contains("SHARDMILL_NO_SUCH_TOKEN"),
            "{unset}"
        );
    }
}
