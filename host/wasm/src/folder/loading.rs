//! From a file to a plugin, or to the reason why not. Compiling may take minutes, so files wait in
//! line for it: in the folder, not in memory.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use shardmill_core::plugin::{PluginDigest, PluginName};
use shardmill_core::ports::ProcessorFactory;
use tokio::sync::Semaphore;

use super::Refusal;
use super::line::Line;
use super::reading::{Reading, read, read_signature};
use super::scan::{Stamp, Stamps};
use super::tracker::Ended;
use crate::blocking::blocking;
use crate::{Integrity, Plugin, Runtime, SignedVersion, digest_of};

/// Which tasks may hold the bytes of a file: one that compiles, and one that looks at a file
/// meanwhile.
pub(super) struct Turns {
    compile: Line,
    look: Semaphore,
}

/// One file to be loaded.
pub(super) struct Loading {
    pub(super) runtime: Runtime,
    pub(super) integrity: Arc<Integrity>,
    pub(super) turns: Arc<Turns>,
    pub(super) folder: PathBuf,
    pub(super) file: String,
    pub(super) name: PluginName,
    pub(super) stamps: Stamps,
    /// Digests that need not be compiled again.
    pub(super) known: HashSet<PluginDigest>,
}

/// What came of it.
pub(super) struct Load {
    pub(super) file: String,
    pub(super) name: PluginName,
    pub(super) stamps: Stamps,
    pub(super) ended: Ended,
    pub(super) plugin: Option<Plugin>,
}

impl Turns {
    pub(super) fn new() -> Self {
        Self {
            compile: Line::default(),
            look: Semaphore::new(1),
        }
    }
}

impl Loading {
    pub(super) async fn run(self) -> Load {
        let (ended, plugin) = match self.load().await {
            Ok(plugin) => (Ended::Loaded(plugin.digest().clone()), Some(plugin)),
            Err(ended) => (ended, None),
        };
        Load {
            file: self.file,
            name: self.name,
            stamps: self.stamps,
            ended,
            plugin,
        }
    }

    async fn load(&self) -> Result<Plugin, Ended> {
        let line = &self.turns.compile;
        let _turn = if let Some(turn) = line.try_take(&self.name) {
            turn
        } else {
            self.look().await?;
            line.take(&self.name).await.ok_or(Ended::Moved)?
        };
        let Trusted {
            bytes,
            digest,
            version,
        } = self.read().await?;
        let loaded = self.runtime.load(self.name.clone(), bytes).await;
        let plugin = loaded.map_err(|error| Ended::Failed(Refusal::Bytes { digest, error }))?;
        self.integrity.loaded(&self.name, version);
        Ok(plugin)
    }

    /// What is known or not trusted ends here, without waiting. The bytes of the rest are dropped.
    async fn look(&self) -> Result<(), Ended> {
        let _turn = self.turns.look.acquire().await.map_err(|_| Ended::Moved)?;
        self.read().await.map(drop)
    }

    /// The bytes, if they are new and trusted. They are what is hashed, checked and compiled.
    async fn read(&self) -> Result<Trusted, Ended> {
        let Found {
            bytes,
            digest,
            signature,
        } = self.read_files().await?;
        if self.known.contains(&digest) {
            return Err(Ended::Known);
        }
        let trusted = self
            .integrity
            .check(&self.name, &bytes, &digest, signature.as_deref());
        match trusted {
            Ok(version) => Ok(Trusted {
                bytes,
                digest,
                version,
            }),
            Err(error) => Err(Ended::Failed(Refusal::Untrusted { digest, error })),
        }
    }

    async fn read_files(&self) -> Result<Found, Ended> {
        let (folder, file) = (self.folder.clone(), self.file.clone());
        let component = self.stamps.component;
        let is_signed = self.stamps.signature.is_some() && self.integrity.reads_signatures();
        let read = move || Found::read(&folder, &file, component, is_signed);
        let found = blocking(read)
            .await
            .unwrap_or_else(|message| Err(std::io::Error::other(message)));
        match found {
            Ok(Some(found)) => Ok(found),
            Ok(None) => Err(Ended::Moved),
            Err(error) => Err(Ended::Failed(Refusal::Unreadable {
                message: error.to_string(),
            })),
        }
    }
}

/// What may be compiled.
struct Trusted {
    bytes: Bytes,
    digest: PluginDigest,
    version: SignedVersion,
}

/// What lies in the folder of a plugin.
struct Found {
    bytes: Bytes,
    digest: PluginDigest,
    signature: Option<Vec<u8>>,
}

impl Found {
    /// `None` if the file is no longer the one that was seen.
    fn read(
        folder: &Path,
        file: &str,
        component: Stamp,
        is_signed: bool,
    ) -> std::io::Result<Option<Self>> {
        // First: a signature that comes while the component is read belongs to the next one.
        let signature = if is_signed {
            let signature = read_signature(folder, file);
            Some(signature.map_err(|error| of_signature(&error))?)
        } else {
            None
        };
        let Reading::Bytes(bytes) = read(folder, file, component)? else {
            return Ok(None);
        };
        Ok(Some(Self {
            digest: digest_of(&bytes),
            bytes,
            signature,
        }))
    }
}

fn of_signature(error: &std::io::Error) -> std::io::Error {
    std::io::Error::new(error.kind(), format!("its signature: {error}"))
}

#[cfg(test)]
mod tests {
    use super::super::scan::{Seen, scan};
    use super::*;
    use crate::{EMPTY_COMPONENT, RuntimeOptions};

    fn loading(folder: &std::path::Path, turns: &Arc<Turns>) -> Loading {
        let listing = scan(folder, 1 << 20).unwrap();
        let (file, seen) = listing.seen.into_iter().next().unwrap();
        let Seen::File(name, stamps) = seen else {
            panic!("{file} is refused")
        };
        Loading {
            runtime: Runtime::new(RuntimeOptions::default()).unwrap(),
            integrity: Arc::default(),
            turns: Arc::clone(turns),
            folder: folder.to_owned(),
            file,
            name,
            stamps,
            known: HashSet::new(),
        }
    }

    #[tokio::test]
    async fn a_file_that_waits_for_the_compiler_is_not_held_in_memory_meanwhile() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("empty.wasm");
        std::fs::write(&file, EMPTY_COMPONENT).unwrap();
        let turns = Arc::new(Turns::new());
        let busy = turns.compile.try_take(&PluginName::new("busy").unwrap());
        assert!(busy.is_some());
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(loading(folder.path(), &turns).run());
        tokio::task::yield_now().await;
        // A known file is reported without a turn of the compiler, but after the other has looked,
        // since those take turns too.
        let mut known = loading(folder.path(), &turns);
        known.known.insert(digest_of(EMPTY_COMPONENT));
        assert!(matches!(known.run().await.ended, Ended::Known));
        assert!(tasks.try_join_next().is_none());
        std::fs::remove_file(&file).unwrap();
        drop(busy);
        let waited = tasks.join_next().await.unwrap().unwrap();
        assert!(matches!(waited.ended, Ended::Moved), "it was read again");
        std::fs::write(&file, EMPTY_COMPONENT).unwrap();
        assert!(matches!(
            loading(folder.path(), &turns).run().await.ended,
            Ended::Loaded(_)
        ));
    }
}
