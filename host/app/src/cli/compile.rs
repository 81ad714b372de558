//! Arguments of the compiling process, written by the host that starts it.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use shardmill_wasm::{CompileJob, CompileLimits};

/// Arguments of `compile-component`.
#[derive(Debug, Args)]
pub(crate) struct CompileArgs {
    /// Where compiled code goes.
    #[arg(long)]
    pub(crate) cache: PathBuf,
    /// How many bytes the component has, which comes on standard input.
    #[arg(long)]
    pub(crate) component_bytes: u64,
    /// Processor time it may take.
    #[arg(long)]
    pub(crate) cpu_seconds: u64,
    /// Address space it may take.
    #[arg(long)]
    pub(crate) memory_bytes: u64,
    /// Code that it may compile to.
    #[arg(long)]
    pub(crate) code_bytes: usize,
    /// Do without the wall that denies it files, addresses and most system calls.
    #[arg(long)]
    pub(crate) no_wall: bool,
    /// Keep the code of each function in the cache, for the next version.
    #[arg(long)]
    pub(crate) keep_functions: bool,
}

impl CompileArgs {
    /// What to do.
    pub(crate) fn job(&self) -> CompileJob {
        let limits = CompileLimits {
            cpu: Duration::from_secs(self.cpu_seconds),
            memory_bytes: self.memory_bytes,
            code_bytes: self.code_bytes,
            ..CompileLimits::default()
        };
        CompileJob {
            cache_dir: self.cache.clone(),
            component_bytes: self.component_bytes,
            limits,
            is_walled: !self.no_wall,
            keeps_functions: self.keep_functions,
        }
    }
}
