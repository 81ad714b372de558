//! The second wall: what the process asks the system to deny it for good, so that a hole in the
//! first one, which is WebAssembly and its compiler, does not open the machine.
//!
//! ```text
//!   the host         no new privileges · no system calls that no host needs
//!   its compiler     no new privileges · only the system calls that a compiler needs · no file but the cache
//! ```
//!
//! Where a system or a container does not give one of these, the process goes on and says what is
//! lacking.

use std::path::Path;

#[cfg(target_os = "linux")]
mod files;
#[cfg(target_os = "linux")]
mod system_calls;

/// How the compiling process begins to tell its host what its wall lacks.
pub(crate) const LACKS: &str = "the wall around the compiler lacks ";

/// Raises the host's wall, around all threads there are and will be, and around the processes that
/// it starts; gives what it lacks.
#[cfg(target_os = "linux")]
pub fn raise_for_host() -> Vec<String> {
    lack(
        "a filter of system calls",
        system_calls::deny_what_no_host_needs(),
    )
    .into_iter()
    .collect()
}

/// Raises the wall of a process that only compiles, into the directory `cache`; gives what it
/// lacks. Called while there is one thread.
#[cfg(target_os = "linux")]
pub(crate) fn raise_for_compiler(cache: &Path) -> Vec<String> {
    // In this order: the filter denies the calls that bring the rules.
    let files = lack("rules for files", files::allow_only(cache));
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

/// Other systems have no such thing that a process can ask for itself.
#[cfg(not(target_os = "linux"))]
pub fn raise_for_host() -> Vec<String> {
    vec!["everything: only Linux has such a wall".to_owned()]
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn raise_for_compiler(_cache: &Path) -> Vec<String> {
    raise_for_host()
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests;
