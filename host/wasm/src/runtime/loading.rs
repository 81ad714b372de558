//! From the bytes of a component to a version that can be instantiated.

use std::collections::HashMap;
use std::sync::{Arc, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use bytes::Bytes;
use shardmill_core::deaths::Stage;
use shardmill_core::plugin::{PluginDigest, PluginName};
use tokio::sync::SemaphorePermit;
use wasmtime::component::Component;

use super::{Compiled, Runtime, on_blocking_thread};
use crate::bindings::PluginPre;
use crate::compiler::compile_in_child;
use crate::instance::bulk_export::BulkExport;
use crate::instance::state_exports::StateExports;
use crate::instance::ticker_export::TickerExport;
use crate::instance::version::Version;
use crate::load::function_types;
use crate::load::world::World;
use crate::marks::Newcomer;
use crate::shares::needs::Needs;
use crate::text::{SAID_BYTES_MAX, shown};
use crate::{Compiler, LoadError, Plugin, digest_of};

impl Runtime {
    /// Reads, checks and compiles one version of a plugin, off the async threads. One at a time, so
    /// that code which is not charged for yet is no more than `compile.code`.
    pub async fn load(&self, name: PluginName, bytes: Bytes) -> Result<Plugin, LoadError> {
        let (digest, size) = (digest_of(&bytes), bytes.len());
        let newcomer = self.newcomer(&name, &digest).await?;
        if let Some(version) = self.still_loaded(&name, &digest) {
            return Ok(Plugin::new(version));
        }
        let compiled = self.compile(bytes, Some(&newcomer)).await?;
        let shares = self.shares_of(&name);
        let version = Arc::new(Version {
            _code: shares.code.hold(compiled.code_bytes)?,
            shares,
            output: self.output_of(&name),
            host: Arc::clone(&self.shared.host),
            needs: Needs::default(),
            pre: compiled.pre,
            state: compiled.state,
            bulk: compiled.bulk,
            ticker: compiled.ticker,
            instance_bytes: compiled.instance_bytes,
            contract: compiled.contract,
            compile_time: compiled.compile_time,
            newcomer,
            name,
            digest,
            size,
        });
        self.note_loaded(&version);
        Ok(Plugin::new(version))
    }

    /// A version that is in use, or kept for a rollback.
    fn still_loaded(&self, name: &PluginName, digest: &PluginDigest) -> Option<Arc<Version>> {
        let loaded = self.loaded();
        loaded.get(&(name.clone(), digest.clone()))?.upgrade()
    }

    fn note_loaded(&self, version: &Arc<Version>) {
        let mut loaded = self.loaded();
        loaded.retain(|_, version| version.strong_count() > 0);
        let key = (version.name.clone(), version.digest.clone());
        loaded.insert(key, Arc::downgrade(version));
    }

    fn loaded(&self) -> MutexGuard<'_, HashMap<(PluginName, PluginDigest), Weak<Version>>> {
        let loaded = self.shared.loaded.lock();
        loaded.unwrap_or_else(PoisonError::into_inner)
    }

    /// A version that may be loaded, as far as is known.
    async fn newcomer(
        &self,
        name: &PluginName,
        digest: &PluginDigest,
    ) -> Result<Arc<Newcomer>, LoadError> {
        let (marks, name, digest) = (self.marks().clone(), name.clone(), digest.clone());
        on_blocking_thread(move || marks.newcomer(&name, &digest)).await?
    }

    /// Refuses what compiles beyond the limits. A newcomer is marked meanwhile.
    pub(crate) async fn compile(
        &self,
        bytes: Bytes,
        newcomer: Option<&Arc<Newcomer>>,
    ) -> Result<Compiled, LoadError> {
        // The permit is held here, not on a thread: waiting compilations occupy none.
        let _permit = self.compilation_turn().await?;
        let _at_work = newcomer
            .map(|newcomer| newcomer.enter(Stage::Load))
            .transpose()?;
        let read = bytes.clone();
        let world = on_blocking_thread(move || fitting_world(&read)).await??;
        let started = Instant::now();
        self.compile_apart(&bytes).await?;
        let runtime = self.clone();
        on_blocking_thread(move || runtime.link(&world, &bytes, started)).await?
    }

    async fn compilation_turn(&self) -> Result<SemaphorePermit<'_>, LoadError> {
        let turn = self.shared.compilations.acquire().await;
        turn.map_err(|error| LoadError::Host {
            message: error.to_string(),
        })
    }

    /// Has another process fill the cache, if there is one to do it.
    async fn compile_apart(&self, bytes: &Bytes) -> Result<(), LoadError> {
        let (Compiler::Child(program), Some(code)) =
            (&self.shared.compiler, &self.shared.code_cache)
        else {
            return Ok(());
        };
        code.restore().map_err(|error| LoadError::Host {
            message: error.to_string(),
        })?;
        let limits = self.shared.compile_limits;
        let compiled = compile_in_child(program, limits, code, bytes).await;
        compiled.inspect_err(|_| code.sweep())
    }

    fn link(&self, world: &World, bytes: &[u8], started: Instant) -> Result<Compiled, LoadError> {
        let component = self.component(bytes)?;
        let compile_time = started.elapsed();
        if let Some(code) = &self.shared.code_cache {
            code.loaded();
        }
        function_types::check(self.shared.host.engine(), &component)?;
        let linked = self.shared.linker.instantiate_pre(&component);
        let pre = linked.and_then(PluginPre::new).map_err(mismatch)?;
        Ok(Compiled {
            contract: world.processor_version().unwrap_or_default().to_owned(),
            pre,
            state: StateExports::of(&component),
            bulk: BulkExport::of(&component),
            ticker: TickerExport::of(&component),
            code_bytes: code_bytes(&component),
            instance_bytes: usize::try_from(world.instance_bytes).unwrap_or(usize::MAX),
            compile_time,
        })
    }

    /// From the cache, if another process compiled. It has shown that this stays within the limits:
    /// should its code be gone again, compiling it costs no more.
    fn component(&self, bytes: &[u8]) -> Result<Component, LoadError> {
        Component::new(self.shared.host.engine(), bytes)
            .map_err(|error| LoadError::from_compiler(&shown(error, SAID_BYTES_MAX)))
    }
}

/// What the component imports and exports, if that fits the contract.
fn fitting_world(bytes: &[u8]) -> Result<World, LoadError> {
    let world = World::read(bytes)?;
    world.check()?;
    Ok(world)
}

/// What its code and its data take while it is loaded.
fn code_bytes(component: &Component) -> usize {
    let image = component.image_range();
    image.end as usize - image.start as usize
}

fn mismatch(error: wasmtime::Error) -> LoadError {
    LoadError::Mismatch {
        message: shown(error, SAID_BYTES_MAX),
    }
}
