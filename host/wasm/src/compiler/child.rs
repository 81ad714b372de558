//! The compiling process: confines itself, then compiles what it is given into the cache.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, getrlimit, nice, setrlimit, umask};
use wasmtime::Engine;
use wasmtime::component::Component;

use super::CompileLimits;
use super::functions::FunctionStore;
use crate::Metering;
use crate::engine::code_cache::CodeCache;
use crate::engine::{EngineError, new_compiler, new_engine};
use crate::text::{SAID_BYTES_MAX, shown};
use crate::wall;

/// Open files: three streams, the component's code, the cache. No compiler needs more.
const FILES_MAX: u64 = 32;
/// How much lower its priority is than the host's: with 5, a busy host gets three quarters of a
/// core that both want. With 10 it was nine tenths, and a JavaScript plugin took four minutes on a
/// busy machine for its eleven seconds.
const NICENESS: i32 = 5;

/// What it says on its standard output, where nothing that a component holds is written, once the
/// code is in the cache.
pub(super) const KEPT: &str = "kept\n";

/// One compilation, by a separate process that does nothing else.
#[derive(Debug, Clone)]
pub struct CompileJob {
    /// Where the code goes, with an absolute path.
    pub cache_dir: PathBuf,
    /// How many bytes the component has.
    pub component_bytes: u64,
    /// What it may cost. The parent process enforces the wall time and sets the number of threads.
    pub limits: CompileLimits,
    /// Whether it raises its [wall](crate::wall).
    pub is_walled: bool,
    /// Whether it keeps the code of each function beside it, for the next version. A cache that is
    /// emptied after each compilation has no use for it.
    pub keeps_functions: bool,
}

/// Why nothing was compiled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompileFailure {
    /// The bytes are no component that compiles.
    #[error("{0}")]
    Refused(String),
    /// There is too much code.
    #[error("{0} bytes of code")]
    TooMuchCode(usize),
    /// The process could not do its part.
    #[error("{0}")]
    Host(String),
}

impl CompileFailure {
    /// The process's exit code, by which the host knows what it was.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Refused(_) => 65,
            Self::TooMuchCode(_) => 66,
            Self::Host(_) => 71,
        }
    }
}

impl CompileJob {
    /// The arguments that say all this. A program that is a compiler reads them back.
    pub(super) fn to_args(&self) -> Vec<OsString> {
        let numbers = [
            ("--component-bytes", self.component_bytes),
            ("--cpu-seconds", self.limits.cpu.as_secs()),
            ("--memory-bytes", self.limits.memory_bytes),
            ("--code-bytes", self.limits.code_bytes as u64),
        ];
        let numbers = numbers
            .into_iter()
            .flat_map(|(name, value)| [name.into(), value.to_string().into()]);
        let wall = (!self.is_walled).then(|| "--no-wall".into());
        let functions = self.keeps_functions.then(|| "--keep-functions".into());
        numbers
            .chain(["--cache".into(), self.cache_dir.clone().into()])
            .chain(wall)
            .chain(functions)
            .collect()
    }

    /// Confines this process permanently, then compiles the contents of `input`. Returns what its
    /// wall lacks, for the host to report.
    pub fn run(&self, input: impl Read) -> Result<Option<String>, CompileFailure> {
        self.confine()
            .map_err(|error| CompileFailure::Host(format!("cannot set its own limits: {error}")))?;
        let functions = self.functions();
        let lacks = if self.is_walled {
            let functions = functions.as_ref().map(|functions| functions.folder());
            let folders: Vec<&Path> = functions.into_iter().chain([&*self.cache_dir]).collect();
            wall::raise_for_compiler(&folders)
        } else {
            Vec::new()
        };
        let mut bytes = Vec::new();
        let read = input.take(self.component_bytes).read_to_end(&mut bytes);
        read.map_err(|error| CompileFailure::Host(format!("cannot read the component: {error}")))?;
        if bytes.len() as u64 != self.component_bytes {
            return Err(CompileFailure::Host(format!(
                "got {} of {} bytes",
                bytes.len(),
                self.component_bytes
            )));
        }
        self.compile(&bytes, functions)?;
        Ok((!lacks.is_empty()).then(|| format!("{}{}", wall::LACKS, lacks.join("; "))))
    }

    /// Only a hit proves that the code is in the cache: wasmtime does not report a failed write as
    /// an error.
    fn compile(
        &self,
        bytes: &[u8],
        functions: Option<Arc<FunctionStore>>,
    ) -> Result<(), CompileFailure> {
        let host = |error: EngineError| CompileFailure::Host(error.to_string());
        let cache = CodeCache::open(&self.cache_dir).map_err(host)?;
        let engine = engine(&cache, functions.as_ref()).map_err(host)?;
        // Each second time finds what the one before has kept.
        for tries in 1..=4 {
            let component = Component::new(&engine, bytes)
                .map_err(|error| CompileFailure::Refused(shown(error, SAID_BYTES_MAX)))?;
            check_code(&component, self.limits.code_bytes)?;
            if cache.cache().cache_hits() > 0 {
                // From here on the code is there, whatever becomes of this process: saving takes
                // room, memory and time, and limits of those end it.
                let _ = std::io::stdout().write_all(KEPT.as_bytes());
                let _ = std::io::stdout().flush();
                // What is not kept is compiled again: that costs time, and nothing else.
                let _ = functions.map(|functions| functions.save());
                return Ok(());
            }
            if tries == 2
                && let Some(functions) = &functions
            {
                // Whole components matter more than the code of single functions.
                functions.make_room();
            }
        }
        let place = self.cache_dir.display();
        Err(CompileFailure::Host(format!(
            "cannot keep compiled code in {place}: is there room, and may it be written to?"
        )))
    }

    /// Where they cannot be kept, each version is compiled whole: that costs time and no more.
    fn functions(&self) -> Option<Arc<FunctionStore>> {
        if !self.keeps_functions {
            return None;
        }
        FunctionStore::beside(&self.cache_dir).ok().map(Arc::new)
    }

    fn confine(&self) -> std::io::Result<()> {
        // Where the machine runs out of memory, the system ends this process and not the host. To
        // raise it needs no right; a system without it has no such choice to make.
        let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
        lower(Resource::Core, 0, 0)?;
        lower(Resource::Nofile, FILES_MAX, FILES_MAX)?;
        lower(
            Resource::As,
            self.limits.memory_bytes,
            self.limits.memory_bytes,
        )?;
        let seconds = self.limits.cpu.as_secs().max(1);
        // The first limit sends its own signal, by which the host recognises it; the second kills a
        // process that ignores that.
        lower(Resource::Cpu, seconds, seconds + 2)?;
        nice(NICENESS)?;
        // The host runs its output as native code: no other user may change it, whatever the host's
        // own mask is.
        umask(Mode::RWXG | Mode::RWXO);
        Ok(())
    }
}

fn engine(
    cache: &CodeCache,
    functions: Option<&Arc<FunctionStore>>,
) -> Result<Engine, EngineError> {
    let cache = Some(cache.cache().clone());
    let Some(functions) = functions else {
        return new_engine(cache, Metering::Deadline);
    };
    let engine = new_compiler(cache, functions.clone())?;
    functions.serve(&engine);
    Ok(engine)
}

/// Sets a limit, unless there is a lower one already.
fn lower(resource: Resource, current: u64, maximum: u64) -> std::io::Result<()> {
    let before = getrlimit(resource);
    let maximum = before.maximum.map_or(maximum, |most| most.min(maximum));
    Ok(setrlimit(
        resource,
        Rlimit {
            current: Some(current.min(maximum)),
            maximum: Some(maximum),
        },
    )?)
}

/// Refuses a component whose code the host would have to load whole.
fn check_code(component: &Component, bytes_max: usize) -> Result<(), CompileFailure> {
    let range = component.image_range();
    let bytes = (range.end as usize).saturating_sub(range.start as usize);
    if bytes > bytes_max {
        Err(CompileFailure::TooMuchCode(bytes))
    } else {
        Ok(())
    }
}
