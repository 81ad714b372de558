//! How components are compiled, and what that may cost. Compiling is the one thing that is done
//! with untrusted bytes before any limit of an instance applies, and its time and memory grow
//! faster than the bytes. So a separate process does it, which has limits from the system, puts the
//! code into the cache, and ends. Then the host finds it there.
//!
//! ```text
//!   host: World::read ─▶ child: limits ─▶ compile ─▶ cache ─▶ host: Component::new, a hit ─▶ link
//! ```

mod child;
mod functions;
mod parent;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

pub use child::{CompileFailure, CompileJob};
pub(crate) use parent::compile_in_child;

/// How components are compiled: by a separate process, or by this one.
#[derive(Debug, Clone, Default)]
pub enum Compiler {
    /// This process, without limits on time and memory. For tests and benchmarks, which trust their
    /// plugins.
    #[default]
    InProcess,
    /// Another process, which runs a [`CompileJob`].
    Child(CompilerProgram),
}

/// A program that runs a [`CompileJob`], whose arguments are appended to these.
#[derive(Debug, Clone)]
pub struct CompilerProgram {
    /// An absolute path: the process starts in the root directory.
    pub program: PathBuf,
    /// Arguments before those of the job.
    pub args: Vec<OsString>,
}

/// What compiling one component may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompileLimits {
    /// From start to end. 5 min: no bomb keeps other plugins from being compiled for longer, and a
    /// machine on which seven others want two cores has been seen to take one for a JavaScript
    /// engine.
    pub wall: Duration,
    /// Processor time, over all threads; whole seconds. 2 min: ten times what a JavaScript engine
    /// takes.
    pub cpu: Duration,
    /// Address space. 2 GiB: five times what a JavaScript engine takes, and twice what as many
    /// functions take as there may be.
    pub memory_bytes: u64,
    /// Compiled code, with its tables. 256 MiB: the host loads all of it; CPython's is 35 MiB.
    pub code_bytes: usize,
    /// Threads that compile. Half of the cores, at most 4: the rest is the host's, whatever the
    /// system makes of priorities.
    pub threads: usize,
}

impl Default for CompileLimits {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
        Self {
            wall: Duration::from_mins(5),
            cpu: Duration::from_mins(2),
            memory_bytes: 2 << 30,
            code_bytes: 256 << 20,
            threads: (cores / 2).clamp(1, 4),
        }
    }
}
