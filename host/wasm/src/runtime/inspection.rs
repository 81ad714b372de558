//! What `shardmill check` shows: everything about some bytes, without running them.

use std::time::Duration;

use bytes::Bytes;
use shardmill_core::plugin::PluginDigest;

use crate::load::world::{World, is_granted};
use crate::runtime::{digest_of, on_blocking_thread};
use crate::{BytesKind, LoadError, Runtime};

/// A report on some bytes.
#[derive(Debug, Clone)]
pub struct Inspection {
    /// What they are.
    pub kind: BytesKind,
    /// How many.
    pub size: usize,
    /// Their SHA-256: the version's identity.
    pub digest: PluginDigest,
    /// The version of the contract that it was built against, if it is a record processor.
    pub contract: Option<String>,
    /// What it imports.
    pub imports: Vec<InspectedImport>,
    /// Whether it can make HTTP requests, if it is granted any host.
    pub sends_http: bool,
    /// What it exports.
    pub exports: Vec<String>,
    /// Whether it saves state that it can load again, as far as it was compiled.
    pub saves_state: bool,
    /// How long compiling took, if it came to that.
    pub compile_time: Option<Duration>,
    /// Why the host would refuse it, if it would.
    pub refusal: Option<LoadError>,
}

/// One import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InspectedImport {
    /// Its name, with its version.
    pub name: String,
    /// Whether plugins are given it.
    pub is_granted: bool,
}

impl Inspection {
    pub(crate) async fn of(runtime: &Runtime, bytes: Bytes) -> Result<Self, LoadError> {
        let read = bytes.clone();
        let world = on_blocking_thread(move || World::read(&read)).await?;
        let (world, unreadable) = match world {
            Ok(world) => (world, None),
            Err(error) => (World::default(), Some(error)),
        };
        let compiled = match unreadable {
            Some(error) => Err(error),
            None => runtime.compile(bytes.clone(), None).await,
        };
        let (compile_time, saves_state, refusal) = match compiled {
            Ok(compiled) => (Some(compiled.compile_time), compiled.state.is_some(), None),
            Err(error) => (None, false, Some(error)),
        };
        let import = |name: &String| InspectedImport {
            is_granted: is_granted(name),
            name: name.clone(),
        };
        Ok(Self {
            kind: BytesKind::of(&bytes),
            size: bytes.len(),
            digest: digest_of(&bytes),
            contract: world.processor_version().map(str::to_owned),
            imports: world.imports.iter().map(import).collect(),
            sends_http: world.sends_http(),
            exports: world.exports,
            saves_state,
            compile_time,
            refusal,
        })
    }
}
