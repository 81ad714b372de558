//! Keeps versions that do well, each once: a whole component is read and written, and the file in
//! the folder may be another version's. What fails is tried again: a disk that is full now has room
//! later.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use shardmill_core::backoff::Backoff;
use shardmill_core::plugin::{PluginDigest, PluginName};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::kept::Kept;

/// The first wait after a failure: each try may write 32 MiB.
const FIRST_WAIT: Duration = Duration::from_secs(30);
/// The longest wait. The host may be restarted at any time, and then needs what is kept.
const LONGEST_WAIT: Duration = Duration::from_mins(10);

/// What is kept of the plugins that run.
pub(super) struct Keepings {
    kept: Kept,
    /// Where the files of plugins are.
    folder: PathBuf,
    asked: HashMap<PluginName, Asked>,
    tasks: JoinSet<Tried>,
}

/// A version, and the time of the file that may hold it.
type Found = (PluginDigest, Option<SystemTime>);

/// What was to be kept last of a plugin.
struct Asked {
    found: Found,
    failures: u32,
    /// When it is tried again, if it could not be kept.
    again_at: Option<Instant>,
    /// Why it could not, as it was logged.
    trouble: Option<String>,
}

/// A try that has ended.
struct Tried {
    name: PluginName,
    found: Found,
    result: std::io::Result<()>,
}

/// A file that is to be kept.
struct Keeping {
    kept: Kept,
    name: PluginName,
    digest: PluginDigest,
    folder: PathBuf,
    /// The plugins that run.
    running: Vec<PluginName>,
}

impl Keepings {
    pub(super) fn new(kept: Kept, folder: PathBuf) -> Self {
        Self {
            kept,
            folder,
            asked: HashMap::new(),
            tasks: JoinSet::new(),
        }
    }

    /// Takes in what has ended since the last look.
    pub(super) fn look(&mut self) {
        while let Some(ended) = self.tasks.try_join_next() {
            // After a panic it is not tried again.
            if let Ok(tried) = ended {
                self.ended(tried);
            }
        }
    }

    /// Begins to keep a version, unless that was tried, or is to be tried later. `running` are the
    /// plugins that run.
    pub(super) fn keep<'a>(
        &mut self,
        name: &PluginName,
        digest: PluginDigest,
        running: impl Iterator<Item = &'a PluginName>,
    ) {
        let metadata = std::fs::metadata(file_in(&self.folder, name));
        let changed_at = metadata.and_then(|metadata| metadata.modified()).ok();
        let found = (digest.clone(), changed_at);
        if !self.is_due(name, &found) {
            return;
        }
        let keeping = Keeping {
            kept: self.kept.clone(),
            name: name.clone(),
            digest,
            folder: self.folder.clone(),
            running: running.cloned().collect(),
        };
        self.tasks.spawn_blocking(move || Tried {
            name: keeping.name.clone(),
            found,
            result: keeping.run(),
        });
    }

    fn is_due(&mut self, name: &PluginName, found: &Found) -> bool {
        match self.asked.entry(name.clone()) {
            Entry::Occupied(mut asked) => asked.get_mut().begins(found, Instant::now()),
            Entry::Vacant(none) => {
                none.insert(Asked::new(found.clone()));
                true
            }
        }
    }

    fn ended(&mut self, tried: Tried) {
        let Some(asked) = self.asked.get_mut(&tried.name) else {
            return;
        };
        let (name, (digest, _)) = (&tried.name, &tried.found);
        match tried.result {
            Ok(()) => asked.succeeded(&tried.found),
            Err(error) => {
                let roll = fastrand::f64();
                if asked.failed(&tried.found, error.to_string(), Instant::now(), roll) {
                    tracing::warn!(
                        plugin = %name,
                        %digest,
                        %error,
                        code = "version-not-kept",
                        "the version cannot be kept, trying again later"
                    );
                }
            }
        }
    }
}

impl Asked {
    fn new(found: Found) -> Self {
        Self {
            found,
            failures: 0,
            again_at: None,
            trouble: None,
        }
    }

    /// Whether a try begins: of what was not tried yet, or is to be tried again by now.
    fn begins(&mut self, found: &Found, now: Instant) -> bool {
        if self.found != *found {
            let trouble = self.trouble.take();
            *self = Self {
                trouble,
                ..Self::new(found.clone())
            };
            return true;
        }
        self.again_at.take_if(|at| *at <= now).is_some()
    }

    fn succeeded(&mut self, found: &Found) {
        if self.found == *found {
            *self = Self::new(found.clone());
        }
    }

    /// Whether it is news that it fails for this reason. `roll` is uniform in `[0, 1)`.
    fn failed(&mut self, found: &Found, why: String, now: Instant, roll: f64) -> bool {
        if self.found != *found {
            return false;
        }
        self.failures = self.failures.saturating_add(1);
        let backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT).unwrap_or(Backoff::standard());
        self.again_at = Some(now + backoff.delay(self.failures, roll));
        let is_news = self.trouble.as_ref() != Some(&why);
        self.trouble = Some(why);
        is_news
    }
}

impl Keeping {
    fn run(&self) -> std::io::Result<()> {
        let (name, digest) = (&self.name, &self.digest);
        if self.kept.keep(name, digest, &file_in(&self.folder, name))? {
            tracing::info!(
                plugin = %name,
                %digest,
                "version kept, to run if a later one cannot"
            );
            self.forget_unused();
        }
        Ok(())
    }

    fn forget_unused(&self) {
        let is_used =
            |name: &PluginName| self.running.contains(name) || file_in(&self.folder, name).exists();
        if let Err(error) = self.kept.forget_unused(is_used) {
            tracing::warn!(
                %error,
                code = "kept-not-removed",
                "cannot remove the kept versions of plugins that are gone"
            );
        }
    }
}

fn file_in(folder: &Path, name: &PluginName) -> PathBuf {
    folder.join(format!("{name}.wasm"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::DirBuilderExt;

    use super::*;

    const BYTES_MAX: u64 = 1_000;

    struct Disk {
        folder: tempfile::TempDir,
        keepings: Keepings,
    }

    impl Disk {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join("orders.wasm"), "good").unwrap();
            let kept = Kept::beside(&folder.path().join("cache"), BYTES_MAX);
            let keepings = Keepings::new(kept, folder.path().to_owned());
            Self { folder, keepings }
        }

        /// Where the versions of the plugin are kept.
        fn own(&self) -> PathBuf {
            self.folder.path().join("cache.kept/orders")
        }

        /// What a look does with a version that does well; whether it was tried.
        async fn does_well(&mut self) -> bool {
            let digest = shardmill_wasm::digest_of(b"good");
            self.keepings.keep(&orders(), digest, std::iter::empty());
            let ended = self.keepings.tasks.join_next().await;
            let was_tried = ended.is_some();
            if let Some(tried) = ended {
                self.keepings.ended(tried.unwrap());
            }
            was_tried
        }

        fn is_kept(&self) -> bool {
            self.keepings.kept.find(&orders()).is_some()
        }
    }

    fn orders() -> PluginName {
        PluginName::new("orders").unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_version_that_could_not_be_kept_is_kept_once_there_is_room() {
        let mut disk = Disk::new();
        let mut own_folder = std::fs::DirBuilder::new();
        own_folder.mode(0o700);
        own_folder
            .create(disk.folder.path().join("cache.kept"))
            .unwrap();
        std::fs::write(disk.own(), "in the way").unwrap();
        assert!(disk.does_well().await);
        assert!(!disk.does_well().await, "not at each look");
        tokio::time::advance(FIRST_WAIT).await;
        assert!(disk.does_well().await && !disk.is_kept());
        std::fs::remove_file(disk.own()).unwrap();
        tokio::time::advance(FIRST_WAIT * 2).await;
        assert!(disk.does_well().await && disk.is_kept());
        tokio::time::advance(LONGEST_WAIT).await;
        assert!(!disk.does_well().await, "it is kept");
    }

    #[tokio::test(start_paused = true)]
    async fn a_reason_is_logged_once_and_the_tries_become_rare() {
        let found = |version: &[u8]| (shardmill_wasm::digest_of(version), None);
        let (first, second) = (found(b"1"), found(b"2"));
        let mut asked = Asked::new(first.clone());
        let start = Instant::now();
        // Fails, and begins again once it is time.
        let fails = |why: &str, found: &Found, asked: &mut Asked| {
            let is_news = asked.failed(found, why.to_owned(), start, 1.0);
            let again_at = asked.again_at.unwrap();
            assert!(!asked.begins(found, start) && asked.begins(found, again_at));
            (is_news, again_at.duration_since(start).as_secs())
        };
        assert_eq!(fails("full", &first, &mut asked), (true, 30));
        assert_eq!(fails("full", &first, &mut asked), (false, 60));
        assert_eq!(fails("denied", &first, &mut asked), (true, 120));
        for _ in 0..40 {
            fails("denied", &first, &mut asked);
        }
        assert_eq!(fails("denied", &first, &mut asked), (false, 600));
        assert!(
            asked.begins(&second, start),
            "another version is tried at once"
        );
        assert_eq!(fails("denied", &second, &mut asked), (false, 30));
        let is_news = asked.failed(&first, "late".to_owned(), start, 1.0);
        assert!(!is_news && asked.again_at.is_none(), "{:?}", asked.again_at);
    }
}
