//! Versions of plugins that are kept elsewhere: in a registry, on a web server, in a bucket. What
//! their references mean, what an artifact holds, and which one a host is to have in its folder.

mod contents;
mod ecr;
mod proof;
mod pull;
mod reference;
mod wanted;

pub use contents::{
    COMPONENT_TYPE, CONFIG_TYPE, Contents, INDEX_TYPES, Layer, MANIFEST_TYPES, NotAPlugin,
    SETTINGS_TYPE, SIGNATURE_TYPE, Sizes, contents_of,
};
pub use ecr::EcrRegistry;
pub use proof::{Came, FoundOut, InEffect, TriedSettings, found_out};
pub use pull::{Pull, PullPolicy};
pub use reference::{ArtifactRef, Location, ReferenceFault, Sha256, is_loopback};
pub use wanted::{Decided, Here, Keeps, NOT_HEEDED, Orders, Wanted, WantedBy, refusal, wanted};
