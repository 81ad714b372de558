//! Which components are loaded at all: by digest, and by a detached ed25519 signature, on the bytes that were read once.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::signature::{ED25519, UnparsedPublicKey};
use shardmill_core::plugin::{PluginDigest, PluginName};

/// Bytes of an ed25519 public key.
const KEY_BYTES: usize = 32;
/// Bytes of an ed25519 signature.
const SIGNATURE_BYTES: usize = 64;
/// What stands before the key itself in the DER form that openssl writes (RFC 8410).
const DER_PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// The rules of a host: general ones, and those of plugins that have some of their own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Integrity {
    /// For plugins that have none of their own.
    pub general: IntegrityRules,
    /// By plugin name; in place of the general ones.
    pub of_plugins: BTreeMap<String, IntegrityRules>,
}

/// Which components are loaded. The default loads all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IntegrityRules {
    /// Only these; `None` is all.
    pub allowed_digests: Option<Vec<PluginDigest>>,
    /// Whether a component without a signature is refused. One with a signature must bear a right one in any case, if there
    /// are keys.
    pub require_signature: bool,
    /// Whose signatures count.
    pub keys: Vec<PublicKey>,
}

/// An ed25519 public key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicKey([u8; KEY_BYTES]);

/// A text that is no key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is no ed25519 public key: give its 32 bytes in base64 or hex, or the base64 line that `openssl pkey -pubout` prints"
)]
pub struct InvalidKey {
    /// As found, cut to a sane length.
    pub text: String,
}

/// Why a component is not trusted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IntegrityError {
    /// Its digest is not on the list.
    #[error(
        "its digest {} is not among integrity.allowed-digests: add it there if it is meant to run, or put back a file that is",
        .digest.as_str()
    )]
    NotAllowed {
        /// Its digest.
        digest: PluginDigest,
    },
    /// There is no signature.
    #[error(
        "it is not signed: put the signature beside it as {file}.sig (openssl pkeyutl -sign -rawin -inkey KEY.pem -in {file} \
         -out {file}.sig)"
    )]
    Unsigned {
        /// The component's file.
        file: String,
    },
    /// The signature is none of the component by a known key.
    #[error(
        "its signature {file}.sig is not of these bytes by any of integrity.keys: sign this very file with a key that is \
         listed, or list the key"
    )]
    WrongSignature {
        /// The component's file.
        file: String,
    },
    /// The signature's file is none.
    #[error(
        "its signature {file}.sig is not one: it must hold the 64 bytes of an ed25519 signature, or these in base64 or hex"
    )]
    NotASignature {
        /// The component's file.
        file: String,
    },
}

impl Integrity {
    /// Checks the bytes of a component, and what lies beside it as its signature, before anything is made of them.
    pub fn check(
        &self,
        name: &PluginName,
        (bytes, digest): (&[u8], &PluginDigest),
        signature: Option<&[u8]>,
    ) -> Result<(), IntegrityError> {
        let rules = self.of_plugins.get(name.as_str()).unwrap_or(&self.general);
        let file = || format!("{name}.wasm");
        if rules.allowed_digests.as_ref().is_some_and(|allowed| !allowed.contains(digest)) {
            return Err(IntegrityError::NotAllowed { digest: digest.clone() });
        }
        if rules.keys.is_empty() {
            // Nothing to check with, and so nothing is required either: the configuration refuses the one without the other.
            return Ok(());
        }
        let Some(signature) = signature else {
            return if rules.require_signature { Err(IntegrityError::Unsigned { file: file() }) } else { Ok(()) };
        };
        let signature = decode(signature).ok_or_else(|| IntegrityError::NotASignature { file: file() })?;
        let is_by = |key: &PublicKey| UnparsedPublicKey::new(&ED25519, &key.0).verify(bytes, &signature).is_ok();
        if rules.keys.iter().any(is_by) { Ok(()) } else { Err(IntegrityError::WrongSignature { file: file() }) }
    }

    /// Whether signatures matter to any plugin, so that they are read.
    pub fn reads_signatures(&self) -> bool {
        self.of_plugins.values().chain([&self.general]).any(|rules| !rules.keys.is_empty())
    }
}

impl IntegrityError {
    /// Whether a pair of files that is still being copied may look like this.
    pub fn may_be_incomplete(&self) -> bool {
        !matches!(self, Self::NotAllowed { .. })
    }
}

impl PublicKey {
    /// Takes 32 bytes in hex or base64, or the DER form of them in base64.
    pub fn parse(text: &str) -> Result<Self, InvalidKey> {
        let invalid = || InvalidKey { text: text.chars().take(120).collect() };
        let bytes = hex::decode(text).ok().or_else(|| STANDARD.decode(text).ok()).ok_or_else(invalid)?;
        let key = bytes.strip_prefix(&DER_PREFIX).unwrap_or(&bytes);
        key.try_into().map(Self).map_err(|_| invalid())
    }
}

/// The signature itself, whatever form its file has.
fn decode(file: &[u8]) -> Option<Vec<u8>> {
    if file.len() == SIGNATURE_BYTES {
        return Some(file.to_vec());
    }
    let text = std::str::from_utf8(file).ok()?.trim();
    let bytes = hex::decode(text).ok().or_else(|| STANDARD.decode(text).ok())?;
    (bytes.len() == SIGNATURE_BYTES).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use ring::rand::SystemRandom;
    use ring::signature::{Ed25519KeyPair, KeyPair};

    use super::*;
    use crate::runtime::digest_of;

    /// Made by `openssl genpkey -algorithm ed25519`, `openssl pkey -pubout` and `openssl pkeyutl -sign -rawin` (3.0.19).
    const OPENSSL_BYTES: &[u8] = b"the bytes of a component";
    const OPENSSL_KEY: &str = "MCowBQYDK2VwAyEAa1ax4it5oV83ya5gHewJYCdD/jTt5t3ZXGicIg0X7YU=";
    const OPENSSL_SIGNATURE: &str = "014335674b3e3bcebd036083a7f1d71b53f5bb831afd206f812698d841a75dba\
                                     2b10d7c1a26c4e4ffec5a7e11136e7da7b1f6e20a4ed8cb10a28e527ca0a6807";

    fn signer() -> Ed25519KeyPair {
        let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).unwrap()
    }

    fn key_of(signer: &Ed25519KeyPair) -> PublicKey {
        PublicKey::parse(&hex::encode(signer.public_key().as_ref())).unwrap()
    }

    fn checked(rules: &IntegrityRules, bytes: &[u8], signature: Option<&[u8]>) -> Result<(), IntegrityError> {
        let integrity = Integrity { general: rules.clone(), of_plugins: BTreeMap::new() };
        integrity.check(&PluginName::new("orders").unwrap(), (bytes, &digest_of(bytes)), signature)
    }

    #[test]
    fn a_signature_made_by_openssl_is_taken_in_every_form_and_its_key_too() {
        let raw = hex::decode(OPENSSL_SIGNATURE).unwrap();
        let key = PublicKey::parse(OPENSSL_KEY).unwrap();
        assert_eq!(PublicKey::parse(&STANDARD.encode(key.0)), Ok(key.clone()));
        assert_eq!(PublicKey::parse(&hex::encode(key.0)), Ok(key.clone()));
        let rules = IntegrityRules { require_signature: true, keys: vec![key], ..IntegrityRules::default() };
        let base64 = format!("{}\n", STANDARD.encode(&raw));
        for signature in [&raw[..], OPENSSL_SIGNATURE.as_bytes(), base64.as_bytes()] {
            assert_eq!(checked(&rules, OPENSSL_BYTES, Some(signature)), Ok(()));
        }
        let error = checked(&rules, b"the bytes of A component", Some(&raw)).unwrap_err();
        assert!(error.to_string().contains("orders.wasm.sig is not of these bytes"), "{error}");
    }

    #[test]
    fn any_of_the_keys_may_have_signed_and_no_other() {
        let (first, second, stranger) = (signer(), signer(), signer());
        let keys = vec![key_of(&first), key_of(&second)];
        let rules = IntegrityRules { require_signature: true, keys, ..IntegrityRules::default() };
        let signed = |by: &Ed25519KeyPair| checked(&rules, b"bytes", Some(by.sign(b"bytes").as_ref()));
        assert_eq!((signed(&first), signed(&second)), (Ok(()), Ok(())));
        assert!(matches!(signed(&stranger), Err(IntegrityError::WrongSignature { .. })));
        assert!(matches!(checked(&rules, b"bytes", None), Err(IntegrityError::Unsigned { .. })));
        assert!(matches!(checked(&rules, b"bytes", Some(b"short")), Err(IntegrityError::NotASignature { .. })));
    }

    #[test]
    fn a_signature_that_is_not_required_must_be_right_all_the_same() {
        let (ours, stranger) = (signer(), signer());
        let rules = IntegrityRules { keys: vec![key_of(&ours)], ..IntegrityRules::default() };
        assert_eq!(checked(&rules, b"bytes", None), Ok(()));
        assert!(checked(&rules, b"bytes", Some(stranger.sign(b"bytes").as_ref())).is_err());
        assert_eq!(checked(&IntegrityRules::default(), b"bytes", Some(b"whatever")), Ok(()), "no keys, no opinion");
    }

    #[test]
    fn a_list_of_digests_lets_in_nothing_else_and_a_plugins_own_rules_stand_in_place_of_the_general() {
        let rules = IntegrityRules { allowed_digests: Some(vec![digest_of(b"good")]), ..IntegrityRules::default() };
        assert_eq!(checked(&rules, b"good", None), Ok(()));
        let error = checked(&rules, b"other", None).unwrap_err();
        assert!(error.to_string().contains(digest_of(b"other").as_str()), "the mend needs the whole digest: {error}");
        let of_plugins = BTreeMap::from([("free".to_owned(), IntegrityRules::default())]);
        let integrity = Integrity { general: rules, of_plugins };
        let free = PluginName::new("free").unwrap();
        assert_eq!(integrity.check(&free, (b"other", &digest_of(b"other")), None), Ok(()));
    }

    #[test]
    fn what_is_no_key_is_refused() {
        for text in ["", "abc", &"00".repeat(31), &"00".repeat(33), "-----BEGIN PUBLIC KEY-----"] {
            assert!(PublicKey::parse(text).is_err(), "{text}");
        }
    }
}
