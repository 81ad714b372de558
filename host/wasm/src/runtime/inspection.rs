//! What `shardmill check` shows: everything about some bytes, without running them.

use std::time::Duration;

use bytes::Bytes;
use shardmill_core::plugin::PluginDigest;

use super::{Compiled, on_blocking_thread};
use crate::load::world::{World, is_granted};
use crate::{BytesKind, LoadError, Runtime, digest_of};

/// A report on some bytes.
#[derive(Debug, Clone)]
pub struct Inspection {
    /// The format of the bytes, as far as they begin like one that is known.
    pub kind: BytesKind,
    /// How many bytes there are.
    pub size: usize,
    /// Their SHA-256: the version's identity.
    pub digest: PluginDigest,
    /// The version of the contract that it was built against, if it is a record processor.
    pub contract: Option<String>,
    /// The interfaces that it imports, in the component's order.
    pub imports: Vec<InspectedImport>,
    /// Whether it can make HTTP requests, if it is granted any host.
    pub sends_http: bool,
    /// Names of the interfaces that it exports.
    pub exports: Vec<String>,
    /// Whether it saves state that it can load again, as far as it was compiled.
    pub saves_state: bool,
    /// Whether it is to be called when time has passed, as far as it was compiled.
    pub ticks: bool,
    /// How long compiling took, if it came to that.
    pub compile_time: Option<Duration>,
    /// Why the host would refuse it, if it would.
    pub refusal: Option<LoadError>,
}

/// An interface that a component imports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InspectedImport {
    /// Its name, with its version.
    pub name: String,
    /// Whether plugins are given it.
    pub is_granted: bool,
}

impl Runtime {
    /// Shows all there is to know about some bytes without running them; for people.
    pub async fn inspect(&self, bytes: Bytes) -> Result<Inspection, LoadError> {
        let read = bytes.clone();
        let world = on_blocking_thread(move || World::read(&read)).await?;
        match world {
            Ok(world) => {
                let compiled = self.compile(bytes.clone(), None).await;
                Ok(Inspection::new(&bytes, world).with(compiled))
            }
            Err(error) => Ok(Inspection::new(&bytes, World::default()).with(Err(error))),
        }
    }
}

impl Inspection {
    fn new(bytes: &[u8], world: World) -> Self {
        let imports = world.imports.iter().map(|name| InspectedImport {
            is_granted: is_granted(name),
            name: name.clone(),
        });
        Self {
            kind: BytesKind::of(bytes),
            size: bytes.len(),
            digest: digest_of(bytes),
            contract: world.processor_version().map(str::to_owned),
            imports: imports.collect(),
            sends_http: world.sends_http(),
            exports: world.exports,
            saves_state: false,
            ticks: false,
            compile_time: None,
            refusal: None,
        }
    }

    /// With what came of compiling the bytes.
    fn with(self, compiled: Result<Compiled, LoadError>) -> Self {
        match compiled {
            Ok(compiled) => Self {
                saves_state: compiled.state.is_some(),
                ticks: compiled.ticker.is_some(),
                compile_time: Some(compiled.compile_time),
                ..self
            },
            Err(error) => Self {
                refusal: Some(error),
                ..self
            },
        }
    }
}
