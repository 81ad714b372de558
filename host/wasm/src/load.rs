//! The bytes of a component, judged before anything runs: what they are, whom they come from, what
//! they import and export, what an instance of them would take.

mod bytes_kind;
mod digest;
mod footprint;
pub(crate) mod function_types;
mod integrity;
mod load_error;
pub(crate) mod world;

pub use bytes_kind::BytesKind;
pub use digest::digest_of;
pub use integrity::{
    Integrity, IntegrityError, IntegrityRules, InvalidKey, PublicKey, SignedVersion,
};
pub use load_error::LoadError;
