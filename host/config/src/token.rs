//! Tokens that requests for the admin pages must show.

use std::path::Path;

use shardmill_core::plugin::SecretSource;

use crate::files;

/// Shortest token; a shorter one can be guessed.
const TOKEN_BYTES_MIN: usize = 16;
/// Longest: a header has to hold it.
const TOKEN_BYTES_MAX: usize = 1_024;

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

/// Reads a token: 16 to 1,024 visible ASCII characters, without the line ends after them.
///
/// # Errors
///
/// If there is none in that place, or one that cannot be used.
pub fn read_token(source: &SecretSource) -> Result<String, TokenError> {
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
    files::read_text(path, TOKEN_BYTES_MAX as u64 + 2).map_err(|source| TokenError::NoFile {
        path: path.display().to_string(),
        source,
    })
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
            read_token(&SecretSource::File(path.clone())).map_err(|error| error.to_string())
        };
        assert_eq!(from_file(&format!("{TOKEN}\n")), Ok(TOKEN.to_owned()));
        assert!(from_file("short\n").unwrap_err().contains("openssl rand"));
        assert!(from_file("0123456789 abcdef").is_err());
        assert!(from_file(&"x".repeat(2_000)).is_err());
        let unset = read_token(&SecretSource::Variable(
            "SHARDMILL_NO_SUCH_TOKEN".to_owned(),
        ))
        .unwrap_err();
        assert!(
            unset.to_string().contains("SHARDMILL_NO_SUCH_TOKEN"),
            "{unset}"
        );
    }
}
