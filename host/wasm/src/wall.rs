//! The second wall: rights that the process gives up for good, so that a hole in the first wall,
//! which is WebAssembly and its compiler, does not open the machine.
//!
//! ```text
//!   the host         no new privileges · no system calls that no host needs
//!   its compiler     no new privileges · only the system calls that a compiler needs · no file but the cache
//! ```
//!
//! If a system or a container lacks one of these, the process continues and reports what is
//! missing.

use std::path::Path;

#[cfg(target_os = "linux")]
mod files;
#[cfg(target_os = "linux")]
mod system_calls;

/// The beginning of the line in which the compiling process reports what its wall lacks.
pub(crate) const LACKS: &str = "the wall around the compiler lacks ";

/// Raises the host's wall, around all current and future threads, and around the processes that it
/// starts. Returns what the wall lacks.
#[cfg(target_os = "linux")]
pub fn raise_for_host() -> Vec<String> {
    lack(
        "a filter of system calls",
        system_calls::deny_what_no_host_needs(),
    )
    .into_iter()
    .collect()
}

/// Raises the wall of a process that only compiles into these folders. Returns what the wall lacks.
/// Call it while there is only one thread.
#[cfg(target_os = "linux")]
pub(crate) fn raise_for_compiler(folders: &[&Path]) -> Vec<String> {
    // In this order, since the filter denies the calls that set the rules.
    let files = lack("rules for files", files::allow_only(folders));
    let calls = lack(
        "a filter of system calls",
        system_calls::allow_what_a_compiler_needs(),
    );
    files.into_iter().chain(calls).collect()
}

#[cfg(target_os = "linux")]
fn lack(part: &str, raised: Result<(), String>) -> Option<String> {
    raised.err().map(|why| format!("{part}: {why}"))
}

/// On other systems a process cannot restrict itself like this.
#[cfg(not(target_os = "linux"))]
pub fn raise_for_host() -> Vec<String> {
    vec!["everything: only Linux has such a wall".to_owned()]
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn raise_for_compiler(_folders: &[&Path]) -> Vec<String> {
    raise_for_host()
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests;
