//! Which build of the host this is: what did well on one may fail on another.

use std::fs::Metadata;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;

use crate::Metering;
use crate::engine::new_engine;

/// The process's own binary, also where its file was replaced since.
const BINARY: &str = "/proc/self/exe";

/// What distinguishes two builds. The version alone does not: it is the same for all builds between
/// two releases.
#[derive(Debug, Clone, Default)]
struct Build {
    version: &'static str,
    commit: Option<&'static str>,
    /// What the engine calls code that it can run: its version, its settings, the machine's
    /// processor.
    engine: Option<u64>,
    /// The binary's size and the time it was written. Two builds of one commit may differ too, by
    /// their features.
    binary: Option<(u64, i64, i64)>,
}

/// A word that is the same for each run of one binary on one machine.
pub(super) fn of_this_process() -> String {
    let binary =
        std::fs::metadata(BINARY).or_else(|_| std::env::current_exe().and_then(std::fs::metadata));
    let build = Build {
        version: env!("CARGO_PKG_VERSION"),
        commit: option_env!("SHARDMILL_COMMIT"),
        engine: new_engine(None, Metering::default())
            .ok()
            .map(|engine| hashed(&engine.precompile_compatibility_hash())),
        binary: binary
            .ok()
            .map(|file: Metadata| (file.len(), file.mtime(), file.mtime_nsec())),
    };
    build.word()
}

impl Build {
    fn word(&self) -> String {
        format!(
            "{}-{:016x}",
            self.version,
            hashed(&(self.commit, self.engine, self.binary))
        )
    }
}

/// Not the same from one version of Rust to the next, which makes another build too.
fn hashed(what: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_run_of_a_binary_is_one_build_and_whatever_else_is_built_is_another() {
        assert_eq!(of_this_process(), of_this_process());
        let build = Build {
            version: "0.1.0",
            commit: None,
            engine: Some(1),
            binary: Some((5, 7, 9)),
        };
        let others = [
            Build {
                version: "0.2.0",
                ..build.clone()
            },
            Build {
                commit: Some("abc"),
                ..build.clone()
            },
            Build {
                engine: Some(2),
                ..build.clone()
            },
            Build {
                binary: Some((5, 7, 10)),
                ..build.clone()
            },
            Build::default(),
        ];
        for other in others {
            assert_ne!(other.word(), build.word(), "{other:?}");
        }
        assert!(
            !build.word().contains(char::is_whitespace),
            "it stands in a line of words"
        );
    }
}
