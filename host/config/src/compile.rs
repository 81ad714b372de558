//! The section `[compile]`: what compiling one plugin may cost.

use std::time::Duration;

use bytesize::ByteSize;
use serde::Deserialize;
use shardmill_wasm::CompileLimits;

use super::duration;
use super::floor;
use super::machine::memory_bytes;
use super::problem::Problem;
use super::size;
use super::units::to_usize;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct CompileFile {
    #[serde(default, deserialize_with = "duration::optional")]
    wall: Option<Duration>,
    #[serde(default, deserialize_with = "duration::optional")]
    cpu: Option<Duration>,
    #[serde(default, deserialize_with = "size::optional")]
    memory: Option<ByteSize>,
    #[serde(default, deserialize_with = "size::optional")]
    code: Option<ByteSize>,
    threads: Option<usize>,
}

/// That many start within the default address space; 65,536 do not.
const THREADS_MAX: usize = 256;
/// The compiler does not start with less.
const MEMORY_MIN: u64 = 256 << 20;

impl CompileFile {
    pub(super) fn check(self) -> Result<CompileLimits, Problem> {
        let defaults = CompileLimits::default();
        let limits = CompileLimits {
            wall: floor::COMPILE_WALL.check(self.wall, defaults.wall)?,
            cpu: self.cpu.unwrap_or(defaults.cpu),
            memory_bytes: self
                .memory
                .map_or_else(default_memory_bytes, |size| size.as_u64()),
            code_bytes: self.code.map_or(defaults.code_bytes, to_usize),
            threads: self.threads.unwrap_or(defaults.threads),
        };
        match unusable(&limits) {
            Some((key, message)) => Err(Problem::new(key, message)),
            None => Ok(limits),
        }
    }
}

/// A quarter of what the process may have, which the compiler's process shares with it; not more
/// than any component needs, and not less than the compiler starts with.
fn default_memory_bytes() -> u64 {
    let most = CompileLimits::default().memory_bytes;
    let of_process = memory_bytes().map_or(most, |bytes| bytes / 4);
    of_process.clamp(MEMORY_MIN, most)
}

/// The key of a limit under which nothing compiles, and why.
fn unusable(limits: &CompileLimits) -> Option<(&'static str, &'static str)> {
    const ABOVE_ZERO: &str = "must be above zero";
    if limits.cpu.is_zero() || limits.cpu.subsec_nanos() > 0 {
        let message = "must be whole seconds, at least one: the system counts no finer";
        return Some(("compile.cpu", message));
    }
    if limits.memory_bytes < MEMORY_MIN {
        let message = "must be at least 256MiB: the compiler does not start with less";
        return Some(("compile.memory", message));
    }
    if !(1..=THREADS_MAX).contains(&limits.threads) {
        return Some(("compile.threads", "must be from 1 to 256"));
    }
    if limits.code_bytes == 0 {
        return Some(("compile.code", ABOVE_ZERO));
    }
    None
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::Config;

    fn limits(section: &str) -> Result<CompileLimits, String> {
        Ok(Config::parse(&format!("[compile]\n{section}"), Path::new("."))?.compile)
    }

    #[test]
    fn what_is_not_set_is_as_by_default() {
        let limits = limits("cpu = \"90s\"\nmemory = \"1GiB\"\nthreads = 3").unwrap();
        let expected = CompileLimits {
            cpu: Duration::from_secs(90),
            memory_bytes: 1 << 30,
            threads: 3,
            ..CompileLimits::default()
        };
        assert_eq!(limits, expected);
    }

    #[test]
    fn limits_under_which_nothing_compiles_are_refused_with_their_place() {
        for (section, expected) in [
            (
                "wall = \"999ms\"",
                "line 2: compile.wall: must be at least 1s",
            ),
            (
                "cpu = \"500ms\"",
                "line 2: compile.cpu: must be whole seconds",
            ),
            (
                "memory = \"64MiB\"",
                "line 2: compile.memory: must be at least 256MiB",
            ),
            (
                "threads = 0",
                "line 2: compile.threads: must be from 1 to 256",
            ),
            (
                "threads = 257",
                "line 2: compile.threads: must be from 1 to 256",
            ),
            ("code = \"0B\"", "line 2: compile.code: must be above zero"),
            ("time = \"1s\"", "unknown field `time`"),
        ] {
            let error = limits(section).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
