//! Reads answers: never more of one than it may have, and hashed on the way.

use bytes::Bytes;
use reqwest::{Response, StatusCode};
use sha2::{Digest, Sha256 as Hasher};
use shardmill_core::artifact::Sha256;
use shardmill_core::text::{one_line, shortened};
use tokio::io::AsyncWriteExt;

use crate::pull_error::PullError;
use crate::transport::{host_of, unreachable};

/// Bytes of an error's text that are read: registries send some hundred.
const ERROR_BYTES_MAX: u64 = 16 << 10;
/// Characters of it that are shown.
const ERROR_CHARS_SHOWN: usize = 200;

/// The bytes of a whole answer, which has at most `limit`.
pub(crate) async fn read(
    mut response: Response,
    what: &str,
    limit: u64,
) -> Result<Bytes, PullError> {
    refuse_longer(&response, what, limit)?;
    let mut bytes = Vec::new();
    while let Some(chunk) = chunk(&mut response).await? {
        if (bytes.len() + chunk.len()) as u64 > limit {
            return Err(too_big(what, limit));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes.into())
}

/// Writes an answer of at most `limit` bytes into a file, and gives its digest. The file is
/// flushed, and not yet on the disk.
pub(crate) async fn store(
    mut response: Response,
    what: &str,
    limit: u64,
    file: &mut tokio::fs::File,
) -> Result<Sha256, PullError> {
    refuse_longer(&response, what, limit)?;
    let (mut hasher, mut size) = (Hasher::new(), 0_u64);
    while let Some(chunk) = chunk(&mut response).await? {
        size += chunk.len() as u64;
        if size > limit {
            return Err(too_big(what, limit));
        }
        hasher.update(&chunk);
        file.write_all(&chunk).await?;
    }
    file.flush().await?;
    Ok(hashed(hasher))
}

/// The digest of bytes.
pub(crate) fn digest_of(bytes: &[u8]) -> Sha256 {
    hashed(Hasher::new_with_prefix(bytes))
}

/// Refuses bytes that are not those that were asked for.
pub(crate) fn check(what: &str, expected: &Sha256, found: &Sha256) -> Result<(), PullError> {
    if expected == found {
        return Ok(());
    }
    Err(PullError::Digest {
        what: what.to_owned(),
        expected: expected.to_string(),
        found: found.to_string(),
    })
}

/// The answer, if it is a good one; what is wrong otherwise.
pub(crate) async fn good(response: Response, what: &str) -> Result<Response, PullError> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let (host, what) = (host_of(response.url()), what.to_owned());
    let why = explanation(response).await;
    Err(match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => PullError::Denied {
            host,
            what,
            why: if why.is_empty() {
                status.to_string()
            } else {
                why
            },
        },
        StatusCode::NOT_FOUND => PullError::NotThere { what, why },
        _ => PullError::Answer {
            host,
            what,
            status: status.as_u16(),
            why,
        },
    })
}

/// What the host says about an error: the first message of a registry's list, or the beginning of
/// the text.
async fn explanation(response: Response) -> String {
    let Ok(bytes) = read(response, "an error", ERROR_BYTES_MAX).await else {
        return String::new();
    };
    let text = message_of(&bytes).unwrap_or_else(|| String::from_utf8_lossy(&bytes).into_owned());
    let line = one_line(text.trim()).into_owned();
    shortened(&line, ERROR_CHARS_SHOWN).into_owned()
}

fn message_of(bytes: &[u8]) -> Option<String> {
    let answer: serde_json::Value = serde_json::from_slice(bytes).ok()?;
    let first = answer.get("errors")?.get(0)?;
    let part = |name: &str| first.get(name).and_then(serde_json::Value::as_str);
    let text = part("message").or_else(|| part("code"))?;
    Some(text.to_owned())
}

fn refuse_longer(response: &Response, what: &str, limit: u64) -> Result<(), PullError> {
    match response.content_length() {
        Some(length) if length > limit => Err(too_big(what, limit)),
        Some(_) | None => Ok(()),
    }
}

async fn chunk(response: &mut Response) -> Result<Option<Bytes>, PullError> {
    let chunk = response.chunk().await;
    chunk.map_err(|error| match unreachable(&error) {
        PullError::Unreachable { why, .. } => PullError::Unreachable {
            host: host_of(response.url()),
            why,
        },
        other => other,
    })
}

fn too_big(what: &str, limit: u64) -> PullError {
    PullError::TooBig {
        what: what.to_owned(),
        limit,
    }
}

fn hashed(hasher: Hasher) -> Sha256 {
    Sha256::from_bytes(hasher.finalize().into())
}
