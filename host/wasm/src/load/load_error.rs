//! Why some bytes did not become a plugin: what it is, what is wrong with it, and how to fix it.

use shardmill_core::plugin::{PluginDigest, PluginName};

use super::bytes_kind::BytesKind;
use crate::engine::wording::{self, Objection};
use crate::text::{SAID_BYTES_MAX, clean};

/// Why a version of a plugin was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// Not a component at all.
    #[error("it is {kind}; {}", kind.mend())]
    NotAComponent {
        /// What it is.
        kind: BytesKind,
    },
    /// A component whose bytes end early.
    #[error("it ends after {size} bytes, in the middle of a section; copy it again")]
    Truncated {
        /// How many bytes there are.
        size: usize,
    },
    /// A component whose bytes make no sense.
    #[error("it is not a valid component: {message}; build it again, or copy it again")]
    Malformed {
        /// What the parser or the validator says.
        message: String,
    },
    /// Bigger in some way than a plugin may be.
    #[error("it has {actual} {what}, more than the {limit} allowed; build it smaller")]
    TooBig {
        /// What there is too much of.
        what: &'static str,
        /// How many there are.
        actual: u64,
        /// How many there may be.
        limit: u64,
    },
    /// A component that is not a record processor.
    #[error(
        "it does not export {expected}, so it is not a record processor; build it against the \
            world shardmill:processor/plugin. it exports: {}",
        listed(exports)
    )]
    NoProcessor {
        /// The export that makes a record processor.
        expected: &'static str,
        /// What it exports instead.
        exports: Vec<String>,
    },
    /// A record processor for a contract that this host does not know.
    #[error(
        "it exports {found}, but this host knows {expected}; build it against that version, or \
            run a host that knows it"
    )]
    WrongVersion {
        /// What it exports.
        found: String,
        /// What this host knows.
        expected: &'static str,
    },
    /// It wants what the host does not give.
    #[error(
        "it imports interfaces that plugins do not get: {}; build it without them",
        listed(imports)
    )]
    UnknownImports {
        /// The imports, by name.
        imports: Vec<String>,
    },
    /// It uses the component model's async features.
    #[error(
        "it uses async features of the component model, which this host does not run; build it \
            with synchronous exports ({message})"
    )]
    Async {
        /// What the validator says.
        message: String,
    },
    /// It uses a proposal to WebAssembly that is switched off here.
    #[error(
        "it uses a feature of WebAssembly that this host does not run ({message}); build it \
            without it: for Rust, as `wasm32-wasip2` builds by default"
    )]
    Feature {
        /// What the validator says; it names the feature.
        message: String,
    },
    /// Its imports or exports have the right names and the wrong types.
    #[error(
        "its imports or exports do not match the contract: {message}; build it against the WIT of this host"
    )]
    Mismatch {
        /// The first one that does not match.
        message: String,
    },
    /// The compiler gave up.
    #[error(
        "it does not compile: {message}; build it again, with smaller functions if they are too big"
    )]
    Compile {
        /// What the compiler says.
        message: String,
    },
    /// Compiling it costs more than it may.
    #[error("compiling it takes more than {limit} of {what}; build it smaller, or raise {key}")]
    CompileLimit {
        /// What there is too much of.
        what: &'static str,
        /// How much there may be, with its unit.
        limit: String,
        /// The key that sets it.
        key: &'static str,
    },
    /// The host died with it on trial, again and again.
    #[error(
        "{why}: it is quarantined until you run `shardmill plugins {plugin} --release {digest}`"
    )]
    Deadly {
        /// Whose version it is.
        plugin: PluginName,
        /// Which.
        digest: PluginDigest,
        /// What is known of the deaths.
        why: String,
    },
    /// It is not its turn: after a death of the host, suspects are tried alone.
    #[error(
        "it waits for the trial of {others}: the host died, and each version that may have caused \
            it is tried alone"
    )]
    OutOfTurn {
        /// Whose versions are on trial.
        others: String,
    },
    /// The code of all versions together leaves no room for this one's.
    #[error(
        "its compiled code takes {} MiB, and {} MiB are left for this plugin: raise host.code-memory; \
            it is tried again from time to time",
        needed.div_ceil(1 << 20), free >> 20
    )]
    CodeMemory {
        /// What its code takes, in bytes.
        needed: usize,
        /// What is left, in bytes.
        free: usize,
    },
    /// The host could not do its part.
    #[error("the host could not load it: {message}")]
    Host {
        /// What went wrong.
        message: String,
    },
}

impl LoadError {
    /// The key of the one limit on compiling that a busy machine may exceed with any component.
    pub(crate) const WALL_KEY: &'static str = "compile.wall";

    /// From what the compiler says of a component, which is all that is known when it ran in
    /// another process.
    pub(crate) fn from_compiler(said: &str) -> Self {
        let message = clean(said, SAID_BYTES_MAX);
        match wording::objection(&message) {
            Objection::Async => Self::Async { message },
            Objection::SwitchedOff => Self::Feature { message },
            Objection::Invalid => Self::Malformed { message },
            Objection::Other => Self::Compile { message },
        }
    }

    /// Whether it says nothing of the component. Too little time by the clock is the host's too: a
    /// component that takes long runs into the limit on processor time first, unless others have
    /// the processors.
    pub fn is_hosts(&self) -> bool {
        self.may_pass()
            || matches!(
                self,
                Self::Host { .. }
                    | Self::CodeMemory { .. }
                    | Self::CompileLimit {
                        key: Self::WALL_KEY,
                        ..
                    }
            )
    }

    /// Whether it was not even tried, and will be when others are through or somebody says so.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Deadly { .. } | Self::OutOfTurn { .. })
    }

    /// Whether a file that is still being written may look like this.
    pub fn may_be_incomplete(&self) -> bool {
        match self {
            Self::NotAComponent { kind } => matches!(kind, BytesKind::Empty | BytesKind::Truncated),
            Self::Truncated { .. } | Self::NoProcessor { .. } | Self::Malformed { .. } => true,
            _ => false,
        }
    }
}

/// A list for people; a hostile component can have a million names.
fn listed(names: &[String]) -> String {
    const SHOWN_MAX: usize = 20;
    const NAME_BYTES_MAX: usize = 200;
    let shown: Vec<String> = names
        .iter()
        .take(SHOWN_MAX)
        .map(|name| clean(name, NAME_BYTES_MAX))
        .collect();
    match names.len() {
        0 => "nothing".to_owned(),
        count if count > SHOWN_MAX => {
            format!("{} and {} more", shown.join(", "), count - SHOWN_MAX)
        }
        _ => shown.join(", "),
    }
}
