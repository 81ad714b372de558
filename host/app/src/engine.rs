//! The Wasm engine as this binary runs it: everything is compiled by the binary itself, in a process of its own.

use std::path::{Path, PathBuf};

use shardmill_wasm::{Compiler, CompilerProgram, RuntimeOptions};

use crate::config::Config;

/// The subcommand that compiles, as the command line has it.
pub const COMPILE_COMMAND: &str = "compile-component";

/// What the engine is started with.
pub(crate) fn runtime_options(config: &Config) -> std::io::Result<RuntimeOptions> {
    Ok(RuntimeOptions {
        cache_dir: config.host.cache.clone(),
        limits: config.limits,
        compiler: compiler()?,
        compile_limits: config.compile,
        instances_memory_bytes: config.host.instances_memory_bytes,
    })
}

/// The same for a command that has no configuration.
pub(crate) fn default_runtime_options() -> std::io::Result<RuntimeOptions> {
    Ok(RuntimeOptions { compiler: compiler()?, ..RuntimeOptions::default() })
}

fn compiler() -> std::io::Result<Compiler> {
    Ok(Compiler::Child(CompilerProgram { program: own_binary()?, args: vec![COMPILE_COMMAND.into()] }))
}

/// The running binary. On Linux a link that leads to it though the file was replaced since: another version's compiler
/// would write code that this one does not find.
fn own_binary() -> std::io::Result<PathBuf> {
    const OWN: &str = "/proc/self/exe";
    if Path::new(OWN).exists() { Ok(OWN.into()) } else { std::env::current_exe() }
}
