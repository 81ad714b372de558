//! Texts of libraries' errors that no type distinguishes. Decisions depend on these words, so all
//! of them are here, and a test of each fails if the words change.
//!
//! Read in wasmtime and wasmtime-wasi 48.0.8, wasmparser 0.254.2, and the standard library of Rust
//! 1.95.

/// wasmtime, before a list of frames that has every name in it at its full length.
const FRAMES: &str = "error while executing at wasm backtrace";

/// wasmtime and wasmtime-wasi, by the limit that a guest exceeded.
const LIMITS: [(&str, Limit); 7] = [
    (
        "fuel allocated for hostcalls has been exhausted",
        Limit::HostcallBytes,
    ),
    ("instance count too high", Limit::CoreInstances),
    ("memory count too high", Limit::Memories),
    ("table count too high", Limit::Tables),
    ("resource table has no free keys", Limit::Handles),
    ("store handle limit exceeded", Limit::Handles),
    ("exceeds limit 65536", Limit::RandomBytes),
];

/// wasmparser, of bytes that are missing.
const ENDS_EARLY: [&str; 2] = ["unexpected end", "out of bounds"];
/// wasmparser, of a string or a list that is longer than any may be. No bytes are missing.
const TOO_LONG: [&str; 2] = ["string size", "size is out of bounds"];

/// wasmparser's validator, of a component that needs async.
const ASYNC: &str = "async";
/// The validator, of sections; wasmtime, of the code in functions, which the compiler checks.
const INVALID: [&str; 2] = ["(at offset", "Invalid input WebAssembly code"];
/// The validator, of what would be valid with another feature.
const SWITCHED_OFF: [&str; 6] = [
    "not enabled",
    "must be enabled",
    "proposal",
    "feature",
    "disabled",
    "required for",
];

/// Rust, when an allocation fails, and any error of the system for lack of memory (ENOMEM).
const LACKS_MEMORY: [&str; 2] = ["memory allocation of", "os error 12"];

/// A limit without its own error type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    HostcallBytes,
    CoreInstances,
    Memories,
    Tables,
    Handles,
    RandomBytes,
}

/// Why the compiler refuses a component.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Objection {
    Async,
    /// It needs a feature of WebAssembly that is switched off.
    SwitchedOff,
    Invalid,
    /// Any other trouble of the compiler.
    Other,
}

/// Whether a cause of an error is a list of frames.
pub(crate) fn is_list_of_frames(cause: &str) -> bool {
    cause.starts_with(FRAMES)
}

/// The limit that a failed call exceeded, if the error says so.
pub(crate) fn limit_exceeded(error: &str) -> Option<Limit> {
    let found = LIMITS.iter().find(|(words, _)| error.contains(words));
    found.map(|(_, limit)| *limit)
}

/// Whether the parser ran out of bytes.
pub(crate) fn ends_early(error: &str) -> bool {
    has_any(error, &ENDS_EARLY) && !has_any(error, &TOO_LONG)
}

/// What the compiler, with its validator, objects to.
pub(crate) fn objection(error: &str) -> Objection {
    if error.contains(ASYNC) {
        Objection::Async
    } else if !has_any(error, &INVALID) {
        Objection::Other
    } else if has_any(error, &SWITCHED_OFF) {
        Objection::SwitchedOff
    } else {
        Objection::Invalid
    }
}

/// Whether a process that failed had too little memory.
pub(crate) fn lacks_memory(last_words: &str) -> bool {
    has_any(last_words, &LACKS_MEMORY)
}

fn has_any(text: &str, words: &[&str]) -> bool {
    words.iter().any(|words| text.contains(words))
}

#[cfg(test)]
mod tests;
