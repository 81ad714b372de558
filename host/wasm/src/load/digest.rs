//! The identity of a version.

use sha2::{Digest, Sha256};
use shardmill_core::plugin::PluginDigest;

/// The digest that names the version with these bytes.
pub fn digest_of(bytes: &[u8]) -> PluginDigest {
    let hex = hex::encode(Sha256::digest(bytes));
    // SHA-256 has 64 hex digits, always.
    PluginDigest::from_hex(&hex).unwrap_or_else(|| unreachable!("a SHA-256 is 64 hex digits"))
}
