//! The folder of marks: how marks are written, and how they are read.

use std::collections::BTreeSet;
use std::fs::{DirBuilder, File};
use std::io::{Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{FileType, FlockOperation, Mode, OFlags, flock, fstat, openat};
use shardmill_core::deaths::{Death, Proven, Stage};
use shardmill_core::plugin::{PluginDigest, PluginName};

use super::build;
use super::mark::Mark;
use crate::{beside_cache, own_folder};

/// Of the folder's name, behind that of compiled plugins.
const ENDING: &str = ".marks";
/// For the owner only.
const MODE: u32 = 0o700;
const PROVEN: &str = "proven";
const TOLD: &str = "told";
/// Before the name of an application, in a line.
const APPLICATION: &str = "application ";
/// Names have up to 243 bytes, and a host has at most some hundreds of them.
const TOLD_BYTES_MAX: u64 = 64 << 10;
/// Before the name of a file that is not whole yet.
const FRESH: &str = "fresh-";
/// A file that is not whole after so long was left by a process that died.
const FRESH_FOR: Duration = Duration::from_hours(1);
/// A mark has some 150 bytes.
const MARK_BYTES_MAX: u64 = 1_024;
/// As long as [`shardmill_core::deaths::PROVEN_MAX`] lines, and some of other builds.
const PROVEN_BYTES_MAX: u64 = 256 << 10;
/// Files that are kept; the oldest go first. Two deaths of each of as many versions as anybody
/// tries in a year.
const FILES_MAX: usize = 4_096;
/// Files that go at one start: a host must not wait for more.
const CLEARED_MAX: usize = 4_096;
/// Deaths that are looked at of one version: more change nothing.
const DEATHS_SEEN_MAX: usize = 16;

/// The folder, open to this user alone.
pub(super) struct Folder {
    path: PathBuf,
    /// This process: there may be others with the same cache.
    run: String,
    /// What runs here: another build may fail where this one does not.
    build: String,
}

impl Folder {
    /// Makes it if it is missing, and clears it of what is too much.
    pub(super) fn open(cache: &Path) -> std::io::Result<Self> {
        let path = beside_cache(cache, ENDING);
        // Write access here decides what a host may run.
        own_folder(&path, rustix::process::geteuid().as_raw())?;
        let nanos = since_epoch().as_nanos();
        let folder = Self {
            run: format!("{:x}-{nanos:x}", std::process::id()),
            path,
            build: build::of_this_process(),
        };
        folder.clear()?;
        Ok(folder)
    }

    /// Versions that were proven.
    pub(super) fn proven(&self) -> Proven {
        let text =
            open_regular(&self.path.join(PROVEN)).and_then(|file| read(&file, PROVEN_BYTES_MAX));
        Proven::of_text(&text.unwrap_or_default(), &self.build)
    }

    /// Adds one to what other processes may have written meanwhile.
    pub(super) fn prove(&self, digest: &PluginDigest) -> std::io::Result<()> {
        let mut proven = self.proven();
        proven.add(digest.clone());
        let mut fresh = self.fresh()?;
        fresh.write_all(proven.to_text(&self.build).as_bytes())?;
        fresh.persist(self.path.join(PROVEN))?;
        Ok(())
    }

    /// Marks a version as on trial in this process.
    pub(super) fn mark(
        &self,
        plugin: &PluginName,
        digest: &PluginDigest,
        stage: Stage,
        is_alone: bool,
    ) -> std::io::Result<Mark> {
        let now = since_epoch().as_millis();
        let mut fresh = self.fresh()?;
        // Before it has the name under which others look for it.
        flock(fresh.as_file(), FlockOperation::NonBlockingLockExclusive)?;
        let process = std::process::id();
        write!(fresh, "plugin {plugin}\nprocess {process}\nat {now}\n")?;
        write_alone(fresh.as_file(), is_alone)?;
        write_stage(fresh.as_file(), stage)?;
        let path = self.path.join(format!("{}.{}", digest.as_str(), self.run));
        let file = fresh.persist(&path)?;
        Ok(Mark { path, file, stage })
    }

    /// The marks of a version that no process holds.
    pub(super) fn deaths(&self, digest: &PluginDigest) -> std::io::Result<Vec<Death>> {
        let marks = self
            .files_of(digest)?
            .into_iter()
            .filter(|path| !is_named(path, TOLD));
        Ok(marks
            .filter_map(|path| death(&path))
            .take(DEATHS_SEEN_MAX)
            .collect())
    }

    /// Removes all that is known of a version, but what processes hold that are alive.
    pub(super) fn forget(&self, digest: &PluginDigest) -> std::io::Result<()> {
        let files = self.files_of(digest)?;
        for path in files
            .iter()
            .filter(|path| is_named(path, TOLD) || death(path).is_some())
        {
            std::fs::remove_file(path)?;
        }
        Ok(())
    }

    /// The applications whose fleets were told. None, if a host wrote the file that did not say
    /// which: they are told again, so that nothing counts as released that they were never told of.
    pub(super) fn published(&self, digest: &PluginDigest) -> BTreeSet<String> {
        let file = open_regular(&self.path_of_told(digest));
        let text = file.and_then(|file| read(&file, TOLD_BYTES_MAX));
        let text = text.unwrap_or_default();
        let applications = text
            .lines()
            .filter_map(|line| line.strip_prefix(APPLICATION));
        applications.map(str::to_owned).collect()
    }

    /// Adds one to the applications that are known.
    pub(super) fn mark_published(
        &self,
        digest: &PluginDigest,
        application: &str,
    ) -> std::io::Result<()> {
        let mut all = self.published(digest);
        all.insert(application.to_owned());
        let mut fresh = self.fresh()?;
        for application in all {
            writeln!(fresh, "{APPLICATION}{application}")?;
        }
        fresh.persist(self.path_of_told(digest))?;
        Ok(())
    }

    fn path_of_told(&self, digest: &PluginDigest) -> PathBuf {
        self.path.join(format!("{}.{TOLD}", digest.as_str()))
    }

    fn files_of(&self, digest: &PluginDigest) -> std::io::Result<Vec<PathBuf>> {
        make(&self.path)?;
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&self.path)? {
            let entry = entry?;
            let name = entry.file_name();
            let rest = name
                .to_str()
                .and_then(|name| name.strip_prefix(digest.as_str()));
            if rest.is_some_and(|rest| rest.starts_with('.')) {
                found.push(entry.path());
            }
        }
        Ok(found)
    }

    /// A file for the owner only that gets its name when it is whole.
    fn fresh(&self) -> std::io::Result<tempfile::NamedTempFile> {
        make(&self.path)?;
        tempfile::Builder::new()
            .prefix(FRESH)
            .tempfile_in(&self.path)
    }

    fn clear(&self) -> std::io::Result<()> {
        let mut files = Vec::new();
        let mut count = 0_usize;
        for entry in std::fs::read_dir(&self.path)? {
            let entry = entry?;
            count += 1;
            if entry.file_name().to_string_lossy().starts_with(FRESH)
                && age(&entry.path()) > FRESH_FOR
            {
                let _ = std::fs::remove_file(entry.path());
            } else if entry.file_name() != PROVEN {
                files.push(entry.path());
            }
        }
        if count > FILES_MAX {
            files.sort_by_cached_key(|path| std::cmp::Reverse(age(path)));
            for path in files
                .iter()
                .take((count - FILES_MAX).min(CLEARED_MAX))
                .filter(|path| !is_held(path))
            {
                let _ = std::fs::remove_file(path);
            }
        }
        Ok(())
    }
}

/// Makes the folder, also again: somebody may remove it while the host runs.
fn make(path: &Path) -> std::io::Result<()> {
    DirBuilder::new().recursive(true).mode(MODE).create(path)
}

/// Adds how far a version came: the last such line holds.
pub(super) fn write_stage(mut file: &File, stage: Stage) -> std::io::Result<()> {
    file.write_all(format!("stage {}\n", stage.code()).as_bytes())
}

/// Adds whether it is the only unproven version: the last such line holds.
pub(super) fn write_alone(mut file: &File, is_alone: bool) -> std::io::Result<()> {
    file.write_all(format!("alone {is_alone}\n").as_bytes())
}

/// What a mark that no process holds says. If part of it cannot be read, the rest counts.
fn death(path: &Path) -> Option<Death> {
    let file = open_regular(path).ok()?;
    flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
    // Its process may have removed it between the two.
    if fstat(&file).ok()?.st_nlink == 0 {
        return None;
    }
    let text = read(&file, MARK_BYTES_MAX).unwrap_or_default();
    let stage = last_value(&text, "stage").and_then(Stage::of_code);
    let process = last_value(&text, "process").and_then(|process| process.parse().ok());
    let at_ms = last_value(&text, "at").and_then(|at| at.parse().ok());
    Some(Death {
        stage: stage.unwrap_or(Stage::Load),
        was_alone: last_value(&text, "alone") == Some("true"),
        process: process.unwrap_or(0),
        at_ms: at_ms.unwrap_or(0),
    })
}

/// Each line has a key and a value; a later one replaces those before it.
fn last_value<'t>(text: &'t str, key: &str) -> Option<&'t str> {
    text.lines()
        .rev()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(' '))
}

fn is_held(path: &Path) -> bool {
    open_regular(path)
        .is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockExclusive).is_err())
}

/// Opens a regular file and nothing else: no link, no pipe, no device.
fn open_regular(path: &Path) -> std::io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(openat(rustix::fs::CWD, path, flags, Mode::empty())?);
    if FileType::from_raw_mode(fstat(&file)?.st_mode) != FileType::RegularFile {
        return Err(std::io::Error::other("it is not a regular file"));
    }
    Ok(file)
}

/// As much of a file as is looked at.
fn read(file: &File, bytes_max: u64) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    file.take(bytes_max).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn is_named(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|found| found == extension)
}

/// Nothing, if the clock was set back, or the file is gone.
fn age(path: &Path) -> Duration {
    let modified = path.symlink_metadata().and_then(|file| file.modified());
    modified
        .ok()
        .and_then(|at| at.elapsed().ok())
        .unwrap_or_default()
}

#[expect(
    clippy::disallowed_methods,
    reason = "marks are written at the edge, and their times are for people"
)]
fn since_epoch() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}
