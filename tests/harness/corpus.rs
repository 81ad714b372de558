//! The hostile corpus: files and components that a plugins folder may meet, each with what it
//! attacks and what must come of it. The engine's tests run it in one process, a scenario drops it
//! on the real host.
//!
//! Rows such as `D5` are those of `docs/faults.md`; `GHSA-…` are classes of past advisories of
//! wasmtime.

// The engine's tests include this file by its path, from where a plain `mod` would look elsewhere.
#[path = "corpus/behaviour.rs"]
mod behaviour;
#[path = "corpus/bombs.rs"]
pub mod bombs;
#[path = "corpus/bulk.rs"]
pub mod bulk;
#[path = "corpus/calls.rs"]
mod calls;
#[path = "corpus/components.rs"]
mod components;
#[path = "corpus/contract.rs"]
pub mod contract;
#[path = "corpus/counts.rs"]
pub mod counts;
#[path = "corpus/exports.rs"]
mod exports;
#[path = "corpus/files.rs"]
mod files;
#[path = "corpus/imports.rs"]
pub mod imports;
#[path = "corpus/linked.rs"]
mod linked;
#[path = "corpus/names.rs"]
mod names;
#[path = "corpus/proposals.rs"]
mod proposals;
#[path = "corpus/requests.rs"]
mod requests;
#[path = "corpus/sections.rs"]
mod sections;
#[path = "corpus/starts.rs"]
mod starts;
#[path = "corpus/strings.rs"]
mod strings;
#[path = "corpus/values.rs"]
mod values;
#[path = "corpus/world.rs"]
mod world;

/// One hostile thing.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Its name, fit to be a plugin's; used once.
    pub name: &'static str,
    /// The row of `docs/faults.md` or the class of advisories.
    pub attacks: &'static str,
    /// Makes its bytes. Most make one file; mutations make some hundred, of which each must come to
    /// what is expected.
    pub files: fn() -> Vec<Vec<u8>>,
    /// Configuration values that it is given.
    pub config: &'static [(&'static str, &'static str)],
    /// What must come of it.
    pub expected: Expected,
}

/// What must come of an entry. Texts are parts of what an operator reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// Refused by what only a whole host has: the folder, which does not read what is too large, or
    /// the compiler in its own process.
    RefusedByHost(&'static str),
    /// Refused by what is said, which names what is wrong, and the fix.
    Refused {
        /// What is wrong.
        says: &'static str,
        /// What to do.
        mend: &'static str,
    },
    /// Loaded; a call fails.
    Fails {
        /// Which.
        call: Call,
        /// [`ProcessorError::code`](shardmill_core::plugin::ProcessorError::code).
        kind: &'static str,
        /// What the error says.
        says: &'static str,
    },
    /// It does its work: what it tried is cut, dropped or not worth an error.
    Harmless,
    /// Loaded; its calls do well or fail, but none outlasts its deadline.
    Runs,
    /// Any of the above, but no crash, and no call that outlasts its deadline.
    Contained,
}

/// Calls into a plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// Instantiation, start functions and `init`.
    Init,
    /// `process`, the first that fails of a few.
    Process,
    /// `save`.
    Save,
    /// `load` of a state that it did not save.
    Load,
    /// `close`.
    Close,
}

impl Entry {
    fn new(
        name: &'static str,
        attacks: &'static str,
        files: fn() -> Vec<Vec<u8>>,
        expected: Expected,
    ) -> Self {
        Self {
            name,
            attacks,
            files,
            config: &[],
            expected,
        }
    }
}

/// A refusal with its fix.
const fn refused(says: &'static str, mend: &'static str) -> Expected {
    Expected::Refused { says, mend }
}

const fn fails(call: Call, kind: &'static str, says: &'static str) -> Expected {
    Expected::Fails { call, kind, says }
}

/// All of it, in a fixed order.
pub fn all() -> Vec<Entry> {
    by_class().map(|(_, entries)| entries).concat()
}

/// All of it by class, each under the name of its file here; `docs/attacks.md` lists them so.
pub fn by_class() -> [(&'static str, Vec<Entry>); 17] {
    [
        ("files", files::entries()),
        ("components", components::entries()),
        ("names", names::entries()),
        ("counts", counts::entries()),
        ("calls", calls::entries()),
        ("proposals", proposals::entries()),
        ("starts", starts::entries()),
        ("values", values::entries()),
        ("strings", strings::entries()),
        ("world", world::entries()),
        ("behaviour", behaviour::entries()),
        ("imports", imports::entries()),
        ("bulk", bulk::entries()),
        ("linked", linked::entries()),
        ("exports", exports::entries()),
        ("requests", requests::entries()),
        ("sections", sections::entries()),
    ]
}
