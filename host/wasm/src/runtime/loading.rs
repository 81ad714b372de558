//! From the bytes of a component to a version that can be instantiated.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use shardmill_core::deaths::Stage;
use shardmill_core::plugin::{PluginDigest, PluginName};
use wasmtime::component::Component;

use super::{Compiled, Runtime, digest_of, on_blocking_thread};
use crate::bindings::PluginPre;
use crate::compiler::compile_in_child;
use crate::instance::state_exports::StateExports;
use crate::load::function_types;
use crate::load::world::World;
use crate::marks::Newcomer;
use crate::text::{SAID_BYTES_MAX, shown};
use crate::{Compiler, Inspection, LoadError, Plugin};

impl Runtime {
    /// Reads, checks and compiles one version of a plugin, off the async threads.
    pub async fn load(&self, name: PluginName, bytes: Bytes) -> Result<Plugin, LoadError> {
        let (digest, size) = (digest_of(&bytes), bytes.len());
        let newcomer = self.newcomer(&name, &digest).await?;
        let compiled = self.compile(bytes, Some(&newcomer)).await?;
        Ok(Plugin::new(
            self.clone(),
            name,
            digest,
            size,
            compiled,
            newcomer,
        ))
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

    /// Tells all there is to know about some bytes without running them; for people.
    pub async fn inspect(&self, bytes: Bytes) -> Result<Inspection, LoadError> {
        Inspection::of(self, bytes).await
    }

    /// Refuses what compiles beyond the limits. A newcomer is marked meanwhile.
    pub(crate) async fn compile(
        &self,
        bytes: Bytes,
        newcomer: Option<&Arc<Newcomer>>,
    ) -> Result<Compiled, LoadError> {
        let host = |message: String| LoadError::Host { message };
        // The permit is held here, not on a thread: waiting compilations occupy none.
        let _permit = self
            .shared
            .compilations
            .acquire()
            .await
            .map_err(|error| host(error.to_string()))?;
        let _at_work = newcomer
            .map(|newcomer| newcomer.enter(Stage::Load))
            .transpose()?;
        let read = bytes.clone();
        let world = on_blocking_thread(move || {
            let world = World::read(&read)?;
            world.check().map(|()| world)
        })
        .await??;
        let started = Instant::now();
        self.compile_apart(&bytes).await?;
        let runtime = self.clone();
        on_blocking_thread(move || runtime.link(&world, &bytes, started)).await?
    }

    /// Has another process fill the cache, if there is one to do it.
    async fn compile_apart(&self, bytes: &Bytes) -> Result<(), LoadError> {
        let (Compiler::Child(program), Some(code)) =
            (&self.shared.options.compiler, &self.shared.code_cache)
        else {
            return Ok(());
        };
        let compiled = compile_in_child(
            program,
            self.shared.options.compile_limits,
            code.directory(),
            bytes,
        )
        .await;
        compiled.inspect_err(|_| code.sweep())
    }

    fn link(&self, world: &World, bytes: &[u8], started: Instant) -> Result<Compiled, LoadError> {
        // Another process has shown that this stays within the limits: should its code be gone
        // again, compiling it costs no more.
        let component = Component::new(&self.shared.engine, bytes)
            .map_err(|error| LoadError::from_compiler(&shown(error, SAID_BYTES_MAX)))?;
        let compile_time = started.elapsed();
        if let Some(code) = &self.shared.code_cache {
            code.loaded();
        }
        function_types::check(&self.shared.engine, &component)?;
        let mismatch = |error: wasmtime::Error| LoadError::Mismatch {
            message: shown(error, SAID_BYTES_MAX),
        };
        let pre = self
            .shared
            .linker
            .instantiate_pre(&component)
            .map_err(mismatch)?;
        let state = StateExports::of(&component);
        let contract = world.processor_version().unwrap_or_default().to_owned();
        let pre = PluginPre::new(pre).map_err(mismatch)?;
        let instance_bytes = usize::try_from(world.instance_bytes).unwrap_or(usize::MAX);
        Ok(Compiled {
            contract,
            pre,
            state,
            instance_bytes,
            compile_time,
        })
    }
}
