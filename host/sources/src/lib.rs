//! Pulls versions of plugins from registries, web servers and buckets, and pushes them to
//! registries. What is fetched is hashed on the way, and never larger than it may be: neither a
//! component, nor a list, nor a token, nor the text of an error.
//!
//! ```text
//!   ArtifactRef ─▶ registry: list of layers ─▶ which are the plugin's (core) ─▶ bytes ─▶ a file
//!               └▶ web, bucket: bytes ────────────────────────────────────────┘
//! ```

mod answer;
mod aws_access;
mod challenge;
mod credentials;
mod docker;
mod ecr_login;
mod login;
mod manifest;
mod pull_error;
mod push;
mod registry;
mod sources;
mod transport;
mod web;

pub use aws_access::AwsAccess;
pub use login::Login;
pub use pull_error::PullError;
pub use push::{PluginFiles, Pushed};
pub use sources::{Pulled, Resolved, SourceOptions, Sources};
