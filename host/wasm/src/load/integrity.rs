//! Which components are loaded at all: by digest, and by a detached ed25519 signature, on the bytes
//! that were read once.
//!
//! A signature covers a statement: this plugin, this version of it, these bytes. A component signed
//! for one plugin is refused for another; and versions only rise, so that an old one, which was
//! once signed for good reasons, does not come back.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::signature::{ED25519, UnparsedPublicKey};
use shardmill_core::plugin::{PluginDigest, PluginName};

/// Bytes of an ed25519 public key.
const KEY_BYTES: usize = 32;
/// Bytes of an ed25519 signature.
const SIGNATURE_BYTES: usize = 64;
/// The bytes before the key itself in the DER form that openssl writes (RFC 8410).
const DER_PREFIX: [u8; 12] = [
    0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00,
];

/// How the statement begins that is signed. Nothing else that a key signs looks like it.
const STATEMENT: &str = "shardmill plugin signature 1";

/// The rules of a host: general ones, and those of single plugins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Integrity {
    /// For plugins without their own rules.
    pub general: IntegrityRules,
    /// By plugin name; in place of the general ones.
    pub of_plugins: BTreeMap<String, IntegrityRules>,
    /// The newest versions seen, which later ones must not be older than.
    versions: SignedVersions,
}

/// The newest signed version of each plugin that was let in. Shared by clones, and so kept for as
/// long as a host runs.
#[derive(Debug, Clone, Default)]
struct SignedVersions(Arc<Mutex<BTreeMap<String, u64>>>);

impl PartialEq for SignedVersions {
    /// Always equal: the versions seen so far are not part of the rules.
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for SignedVersions {}

/// What a trusted component is signed as; 0 if it is not signed, or the signature names no version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignedVersion(u64);

impl SignedVersions {
    fn refuse_older(
        &self,
        name: &PluginName,
        version: u64,
        version_min: u64,
    ) -> Result<(), IntegrityError> {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let newest = seen.get(name.as_str()).copied().unwrap_or(0);
        let least = version_min.max(newest);
        if version < least {
            return Err(IntegrityError::OldVersion { version, least });
        }
        Ok(())
    }

    fn rise(&self, name: &PluginName, version: u64) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let newest = seen.entry(name.as_str().to_owned()).or_insert(0);
        *newest = version.max(*newest);
    }
}

/// Which components are loaded. The default loads all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IntegrityRules {
    /// Only these; `None` is all.
    pub allowed_digests: Option<Vec<PluginDigest>>,
    /// Whether a component without a signature is refused. One with a signature must bear a right
    /// one in any case, if there are keys.
    pub require_signature: bool,
    /// The public keys whose signatures count. Empty: signatures are not verified.
    pub keys: Vec<PublicKey>,
    /// Whether signatures over the bytes alone count, which say neither for which plugin nor which
    /// version they are.
    pub accept_bare_signatures: bool,
    /// The oldest version that is loaded; a bare signature has none, and counts as 0.
    pub version_min: u64,
}

/// An ed25519 public key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicKey([u8; KEY_BYTES]);

/// A text that is not a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not an ed25519 public key: give its 32 bytes in base64 or hex, or the base64 \
        line that `openssl pkey -pubout` prints"
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
        "its digest {} is not among integrity.allowed-digests: add it there if it is meant to \
            run, or put back a file that is",
        .digest.as_str()
    )]
    NotAllowed {
        /// Its digest.
        digest: PluginDigest,
    },
    /// There is no signature.
    #[error(
        "it is not signed: put the signature beside it as {file}.sig; docs/configuration.md, \
            [integrity], says how it is made"
    )]
    Unsigned {
        /// The component's file.
        file: String,
    },
    /// No known key made this signature for the component.
    #[error(
        "its signature {file}.sig does not match these bytes, this name and this version under \
            any of integrity.keys: sign this very file for this plugin with a key that is listed, \
            or list the key"
    )]
    WrongSignature {
        /// The component's file.
        file: String,
    },
    /// The signature says neither for which plugin nor which version it is.
    #[error(
        "its signature {file}.sig covers the bytes alone, so it would be valid for any plugin, \
            and for an outdated version: sign the name and a version with them \
            (docs/configuration.md, [integrity]), or set integrity.accept-bare-signatures = true"
    )]
    BareSignature {
        /// The component's file.
        file: String,
    },
    /// A later version was loaded, or is required.
    #[error(
        "it is signed as version {version}, and {least} is the oldest that is loaded here: sign a \
            newer version, which may have the same bytes, or lower integrity.version-min if that says so"
    )]
    OldVersion {
        /// What is signed.
        version: u64,
        /// What is asked for.
        least: u64,
    },
    /// The file does not hold a signature.
    #[error(
        "its signature {file}.sig is malformed: it must hold a line `version NUMBER` and a line \
            `signature BASE64`, as docs/configuration.md, [integrity], says"
    )]
    NotASignature {
        /// The component's file.
        file: String,
    },
}

impl Integrity {
    /// The `general` rules, and in their place those of some plugins, by name.
    pub fn new(general: IntegrityRules, of_plugins: BTreeMap<String, IntegrityRules>) -> Self {
        Self {
            general,
            of_plugins,
            versions: SignedVersions::default(),
        }
    }

    /// Checks the bytes of a component, with the signature file beside it, before they are used for
    /// anything.
    pub fn check(
        &self,
        name: &PluginName,
        bytes: &[u8],
        digest: &PluginDigest,
        signature: Option<&[u8]>,
    ) -> Result<SignedVersion, IntegrityError> {
        let unsigned = SignedVersion(0);
        let file = format!("{name}.wasm");
        let name = &plugin_of(name);
        let rules = self.of_plugins.get(name.as_str()).unwrap_or(&self.general);
        if !rules.allow(digest) {
            return Err(IntegrityError::NotAllowed {
                digest: digest.clone(),
            });
        }
        if rules.keys.is_empty() {
            // Nothing to check with, and so nothing is required either: the configuration refuses
            // the one without the other.
            return Ok(unsigned);
        }
        let Some(signature) = signature else {
            if rules.require_signature {
                return Err(IntegrityError::Unsigned { file });
            }
            return Ok(unsigned);
        };
        let Some(signature) = Signature::read(signature) else {
            return Err(IntegrityError::NotASignature { file });
        };
        if signature.version.is_none() && !rules.accept_bare_signatures {
            return Err(IntegrityError::BareSignature { file });
        }
        if !rules.have_signed(&signature.signed(name, bytes, digest), &signature) {
            return Err(IntegrityError::WrongSignature { file });
        }
        let version = signature.version.unwrap_or(0);
        self.versions
            .refuse_older(name, version, rules.version_min)?;
        Ok(SignedVersion(version))
    }

    /// A component is loaded: older ones are refused from now on. One that does not load is no
    /// reason to refuse the one before it, which somebody may want to put back.
    /// Nor is one that only runs in a plugin's shadow.
    pub fn loaded(&self, name: &PluginName, version: SignedVersion) {
        if name.shadowed().is_none() {
            self.versions.rise(name, version.0);
        }
    }

    /// Whether signatures matter to any plugin, so that they are read.
    pub(crate) fn reads_signatures(&self) -> bool {
        self.of_plugins
            .values()
            .chain([&self.general])
            .any(|rules| !rules.keys.is_empty())
    }
}

/// The plugin that a component is signed for, also one that runs in its shadow: so it can be
/// promoted as it is.
fn plugin_of(name: &PluginName) -> PluginName {
    name.shadowed().unwrap_or_else(|| name.clone())
}

impl IntegrityRules {
    fn allow(&self, digest: &PluginDigest) -> bool {
        self.allowed_digests
            .as_ref()
            .is_none_or(|allowed| allowed.contains(digest))
    }

    /// Whether this is the signature of these bytes by any of the keys.
    fn have_signed(&self, bytes: &[u8], signature: &Signature) -> bool {
        self.keys.iter().any(|key| {
            UnparsedPublicKey::new(&ED25519, &key.0)
                .verify(bytes, &signature.bytes)
                .is_ok()
        })
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
        let invalid = || InvalidKey {
            text: text.chars().take(120).collect(),
        };
        let bytes = hex::decode(text)
            .ok()
            .or_else(|| STANDARD.decode(text).ok())
            .ok_or_else(invalid)?;
        let key = bytes.strip_prefix(&DER_PREFIX).unwrap_or(&bytes);
        key.try_into().map(Self).map_err(|_| invalid())
    }
}

/// The text that is signed for a version of a plugin.
fn statement(name: &PluginName, version: u64, digest: &PluginDigest) -> String {
    format!(
        "{STATEMENT}\nname {name}\nversion {version}\nsha256 {}\n",
        digest.as_str()
    )
}

/// What the file of a signature holds.
struct Signature {
    bytes: Vec<u8>,
    /// `None` if it is of the bytes alone.
    version: Option<u64>,
}

impl Signature {
    /// The bytes that it should be a signature of.
    fn signed<'a>(
        &self,
        name: &PluginName,
        bytes: &'a [u8],
        digest: &PluginDigest,
    ) -> Cow<'a, [u8]> {
        match self.version {
            Some(version) => Cow::Owned(statement(name, version, digest).into_bytes()),
            None => Cow::Borrowed(bytes),
        }
    }

    fn read(file: &[u8]) -> Option<Self> {
        if let Some(bytes) = decode(file) {
            return Some(Self {
                bytes,
                version: None,
            });
        }
        let (mut bytes, mut version) = (None, None);
        for line in std::str::from_utf8(file).ok()?.lines() {
            match line.trim().split_once(' ') {
                Some(("version", number)) => version = Some(number.trim().parse().ok()?),
                Some(("signature", text)) => bytes = Some(decode(text.as_bytes())?),
                None if line.trim().is_empty() => {}
                Some(_) | None => return None,
            }
        }
        Some(Self {
            bytes: bytes?,
            version: Some(version?),
        })
    }
}

/// The signature itself, whatever form its file has.
fn decode(file: &[u8]) -> Option<Vec<u8>> {
    if file.len() == SIGNATURE_BYTES {
        return Some(file.to_vec());
    }
    let text = std::str::from_utf8(file).ok()?.trim();
    let bytes = hex::decode(text)
        .ok()
        .or_else(|| STANDARD.decode(text).ok())?;
    (bytes.len() == SIGNATURE_BYTES).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use ring::rand::SystemRandom;
    use ring::signature::{Ed25519KeyPair, KeyPair};

    use super::*;
    use crate::digest_of;

    /// Made by `openssl genpkey -algorithm ed25519`, `openssl pkey -pubout` and
    /// `openssl pkeyutl -sign -rawin` (3.0.19).
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

    fn checked(
        rules: &IntegrityRules,
        bytes: &[u8],
        signature: Option<&[u8]>,
    ) -> Result<(), IntegrityError> {
        let integrity = Integrity {
            general: rules.clone(),
            ..Integrity::default()
        };
        let name = PluginName::new("orders").unwrap();
        integrity
            .check(&name, bytes, &digest_of(bytes), signature)
            .map(drop)
    }

    #[test]
    fn a_signature_made_by_openssl_is_taken_in_every_form_and_its_key_too() {
        let raw = hex::decode(OPENSSL_SIGNATURE).unwrap();
        let key = PublicKey::parse(OPENSSL_KEY).unwrap();
        assert_eq!(PublicKey::parse(&STANDARD.encode(key.0)), Ok(key.clone()));
        assert_eq!(PublicKey::parse(&hex::encode(key.0)), Ok(key.clone()));
        let rules = IntegrityRules {
            require_signature: true,
            keys: vec![key],
            accept_bare_signatures: true,
            ..IntegrityRules::default()
        };
        let base64 = format!("{}\n", STANDARD.encode(&raw));
        for signature in [&raw[..], OPENSSL_SIGNATURE.as_bytes(), base64.as_bytes()] {
            assert_eq!(checked(&rules, OPENSSL_BYTES, Some(signature)), Ok(()));
        }
        let error = checked(&rules, b"the bytes of A component", Some(&raw)).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("orders.wasm.sig does not match these bytes"),
            "{error}"
        );
    }

    #[test]
    fn any_of_the_keys_may_have_signed_and_no_other() {
        let (first, second, stranger) = (signer(), signer(), signer());
        let keys = vec![key_of(&first), key_of(&second)];
        let rules = IntegrityRules {
            require_signature: true,
            keys,
            ..IntegrityRules::default()
        };
        let signed = |by: &Ed25519KeyPair| {
            checked(
                &rules,
                b"bytes",
                Some(&signature_file(by, "orders", 1, b"bytes")),
            )
        };
        assert_eq!((signed(&first), signed(&second)), (Ok(()), Ok(())));
        assert!(matches!(
            signed(&stranger),
            Err(IntegrityError::WrongSignature { .. })
        ));
        assert!(matches!(
            checked(&rules, b"bytes", None),
            Err(IntegrityError::Unsigned { .. })
        ));
        assert!(matches!(
            checked(&rules, b"bytes", Some(b"short")),
            Err(IntegrityError::NotASignature { .. })
        ));
    }

    fn signature_file(by: &Ed25519KeyPair, name: &str, version: u64, bytes: &[u8]) -> Vec<u8> {
        let statement = statement(&PluginName::new(name).unwrap(), version, &digest_of(bytes));
        let signature = STANDARD.encode(by.sign(statement.as_bytes()).as_ref());
        format!("version {version}\nsignature {signature}\n").into_bytes()
    }

    #[test]
    fn a_signature_for_one_plugin_or_version_is_none_for_another() {
        let by = signer();
        let rules = IntegrityRules {
            require_signature: true,
            keys: vec![key_of(&by)],
            ..IntegrityRules::default()
        };
        let checked = |signature: &[u8]| checked(&rules, b"bytes", Some(signature));
        assert_eq!(checked(&signature_file(&by, "orders", 7, b"bytes")), Ok(()));
        let theirs = signature_file(&by, "alerts", 7, b"bytes");
        assert!(
            matches!(checked(&theirs), Err(IntegrityError::WrongSignature { .. })),
            "signed for another plugin"
        );
        let text = String::from_utf8(signature_file(&by, "orders", 7, b"bytes")).unwrap();
        let raised = text.replace("version 7", "version 8");
        assert!(
            matches!(
                checked(raised.as_bytes()),
                Err(IntegrityError::WrongSignature { .. })
            ),
            "nobody signed version 8"
        );
        let bare = checked(by.sign(b"bytes").as_ref()).unwrap_err();
        assert!(
            bare.to_string().contains("accept-bare-signatures = true"),
            "{bare}"
        );
        for damaged in [
            "version 7\n",
            "signature abc\n",
            "version x\nsignature abc",
            "name orders\n",
            "",
        ] {
            assert!(
                matches!(
                    checked(damaged.as_bytes()),
                    Err(IntegrityError::NotASignature { .. })
                ),
                "{damaged}"
            );
        }
    }

    #[test]
    fn a_version_that_was_replaced_by_a_newer_one_does_not_come_back() {
        let by = signer();
        let general = IntegrityRules {
            keys: vec![key_of(&by)],
            version_min: 3,
            ..IntegrityRules::default()
        };
        let integrity = Integrity {
            general,
            ..Integrity::default()
        };
        let name = PluginName::new("orders").unwrap();
        let put = |version: u64, bytes: &[u8]| {
            let signature = signature_file(&by, "orders", version, bytes);
            let integrity = integrity.clone();
            let version = integrity.check(&name, bytes, &digest_of(bytes), Some(&signature))?;
            integrity.loaded(&name, version);
            Ok(())
        };
        assert_eq!(
            put(2, b"old"),
            Err(IntegrityError::OldVersion {
                version: 2,
                least: 3
            }),
            "the operator says so"
        );
        assert_eq!(
            (put(3, b"good"), put(5, b"better"), put(5, b"better")),
            (Ok(()), Ok(()), Ok(()))
        );
        assert_eq!(
            put(3, b"good"),
            Err(IntegrityError::OldVersion {
                version: 3,
                least: 5
            })
        );
        assert_eq!(
            put(6, b"good"),
            Ok(()),
            "the old bytes may come back, as somebody's decision"
        );
    }

    #[test]
    fn a_version_that_does_not_load_keeps_no_older_one_out() {
        let by = signer();
        let general = IntegrityRules {
            keys: vec![key_of(&by)],
            ..IntegrityRules::default()
        };
        let integrity = Integrity {
            general,
            ..Integrity::default()
        };
        let name = PluginName::new("orders").unwrap();
        let check = |version: u64, bytes: &[u8]| {
            let signature = signature_file(&by, "orders", version, bytes);
            integrity.check(&name, bytes, &digest_of(bytes), Some(&signature))
        };
        integrity.loaded(&name, check(7, b"good").unwrap());
        let broken = check(8, b"does not compile").unwrap();
        assert_eq!(check(7, b"good"), Ok(SignedVersion(7)), "put back");
        integrity.loaded(&name, broken);
        assert!(check(7, b"good").is_err(), "8 has run");
    }

    #[test]
    fn a_signature_that_is_not_required_must_be_right_all_the_same() {
        let (ours, stranger) = (signer(), signer());
        let rules = IntegrityRules {
            keys: vec![key_of(&ours)],
            ..IntegrityRules::default()
        };
        assert_eq!(checked(&rules, b"bytes", None), Ok(()));
        assert!(checked(&rules, b"bytes", Some(stranger.sign(b"bytes").as_ref())).is_err());
        assert_eq!(
            checked(&IntegrityRules::default(), b"bytes", Some(b"whatever")),
            Ok(()),
            "no keys, no opinion"
        );
    }

    #[test]
    fn a_list_of_digests_lets_in_nothing_else_and_a_plugins_own_rules_stand_in_place_of_the_general()
     {
        let rules = IntegrityRules {
            allowed_digests: Some(vec![digest_of(b"good")]),
            ..IntegrityRules::default()
        };
        assert_eq!(checked(&rules, b"good", None), Ok(()));
        let error = checked(&rules, b"other", None).unwrap_err();
        assert!(
            error.to_string().contains(digest_of(b"other").as_str()),
            "the mend needs the whole digest: {error}"
        );
        let of_plugins = BTreeMap::from([("free".to_owned(), IntegrityRules::default())]);
        let integrity = Integrity {
            general: rules,
            of_plugins,
            ..Integrity::default()
        };
        let free = PluginName::new("free").unwrap();
        assert_eq!(
            integrity.check(&free, b"other", &digest_of(b"other"), None),
            Ok(SignedVersion(0))
        );
    }

    #[test]
    fn what_is_no_key_is_refused() {
        for text in [
            "",
            "abc",
            &"00".repeat(31),
            &"00".repeat(33),
            "-----BEGIN PUBLIC KEY-----",
        ] {
            assert!(PublicKey::parse(text).is_err(), "{text}");
        }
    }
}
