//! Tokens that requests show.

use std::sync::Arc;

use axum::http::{HeaderMap, HeaderValue, header};
use shardmill_config::{TokenError, read_token};
use shardmill_core::plugin::SecretSource;

/// What a request shows in the header `authorization: Bearer TOKEN`.
#[derive(Clone)]
pub struct Token(Arc<str>);

impl Token {
    /// Reads it from where the configuration says.
    pub fn read(source: &SecretSource) -> Result<Self, TokenError> {
        Ok(Self(read_token(source)?.into()))
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

#[cfg(test)]
impl From<&str> for Token {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}
