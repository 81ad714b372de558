//! An NDJSON file, rotated by size.

mod batch;
mod tail;

use std::fs::{File, Metadata, OpenOptions, Permissions, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use shardmill_core::ports::{Origin, PortFuture, Sink, SinkError};
use shardmill_core::stream::Emitted;
use tokio::sync::Mutex;

use self::batch::Batch;
use self::tail::Tail;
use super::LineFormat;

/// The mode of a new file, unless another is set: output and dead letters are records, or made of
/// them.
const FILE_MODE: u32 = 0o600;

/// Where and how to write.
#[derive(Debug, Clone)]
pub(crate) struct FileSinkOptions {
    /// The sink's name, for messages.
    pub(crate) name: String,
    /// The file; rotated files get `.1`, `.2` and so on behind the name, rising with time.
    pub(crate) path: PathBuf,
    /// Rotate before a write that would make the file larger than this, in bytes.
    pub(crate) rotate_bytes: u64,
    /// How lines look.
    pub(crate) format: LineFormat,
    /// The mode of the file and of its successors, regardless of the umask. Without it, new files
    /// are for the owner only, and an existing one keeps its mode.
    pub(crate) mode: Option<u32>,
}

/// Why a file sink cannot start.
#[derive(Debug, thiserror::Error)]
pub enum FileSinkError {
    /// The file or its folder cannot be used.
    #[error("cannot open {path} for output: {source}")]
    Open {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is a pipe, a device or the like: nothing of it could be cut off or rotated.
    #[error("{path} is not a regular file; the sink stdout writes to pipes and devices")]
    NotRegular {
        /// The file.
        path: PathBuf,
    },
    /// Another process writes to it.
    #[error("another process writes to {path}; give each host its own file")]
    InUse {
        /// The file.
        path: PathBuf,
    },
}

/// Appends lines to a file. Blocking calls run on the blocking pool.
pub(crate) struct FileSink {
    options: Arc<FileSinkOptions>,
    // Waited for before a thread is taken: a disk that hangs holds one, and not all of the host's.
    file: Arc<Mutex<OpenFile>>,
}

/// The file that was at the path when a line was written last.
struct OpenFile {
    tail: Tail,
}

// === impl FileSink ===

impl FileSink {
    /// Opens the file for appending and locks it against other processes.
    ///
    /// A last line without an end is cut off: it was torn by a crash, was never acknowledged, and
    /// its records will be delivered again.
    pub(crate) fn open(options: FileSinkOptions) -> Result<Self, FileSinkError> {
        let file = OpenFile::open(&options.path, options.mode)?;
        Ok(Self {
            options: Arc::new(options),
            file: Arc::new(Mutex::new(file)),
        })
    }

    /// The same file, with lines in another format.
    #[must_use]
    pub(crate) fn with_format(&self, format: LineFormat) -> Self {
        let options = FileSinkOptions {
            format,
            ..FileSinkOptions::clone(&self.options)
        };
        Self {
            options: Arc::new(options),
            file: Arc::clone(&self.file),
        }
    }

    async fn blocking(
        &self,
        work: impl FnOnce(&mut OpenFile, &FileSinkOptions) -> io::Result<()> + Send + 'static,
    ) -> Result<(), SinkError> {
        let (file, options) = (Arc::clone(&self.file), Arc::clone(&self.options));
        let mut file = file.lock_owned().await;
        let done = tokio::task::spawn_blocking(move || work(&mut file, &options));
        let result = done
            .await
            .unwrap_or_else(|error| Err(io::Error::other(error)));
        result.map_err(|error| {
            let message = format!("{}: {error}", self.options.path.display());
            SinkError {
                sink: self.options.name.clone(),
                message,
            }
        })
    }
}

impl Sink for FileSink {
    fn write(
        &self,
        origin: Arc<Origin>,
        emitted: Arc<Vec<Emitted>>,
    ) -> PortFuture<'_, Result<(), SinkError>> {
        Box::pin(self.blocking(move |file, options| {
            let batch = Batch {
                format: options.format,
                origin: &origin,
                emitted: &emitted,
            };
            let bytes = batch.bytes();
            file.follow(&options.path, options.mode)?;
            let before = file.tail.bytes();
            if before > 0 && before + bytes as u64 > options.rotate_bytes {
                file.rotate(&options.path, options.mode)?;
            }
            file.tail.append(&batch, bytes)
        }))
    }

    fn flush(&self) -> PortFuture<'_, Result<(), SinkError>> {
        Box::pin(self.blocking(|file, _| file.tail.sync()))
    }
}

// === impl OpenFile ===

impl OpenFile {
    fn open(path: &Path, mode: Option<u32>) -> Result<Self, FileSinkError> {
        let failed = |source| FileSinkError::Open {
            path: path.to_owned(),
            source,
        };
        let mut file = open_for_append(path).map_err(failed)?;
        if !file.metadata().map_err(failed)?.is_file() {
            return Err(FileSinkError::NotRegular {
                path: path.to_owned(),
            });
        }
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(FileSinkError::InUse {
                    path: path.to_owned(),
                });
            }
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        if let Some(mode) = mode {
            set_mode(&file, mode).map_err(failed)?;
        }
        let bytes = cut_torn_line(&mut file).map_err(failed)?;
        Ok(Self {
            tail: Tail::new(Box::new(file), bytes),
        })
    }

    /// Opens the file at `path` if it is another one by now: somebody rotated or removed it, or
    /// mounted something over its folder, and nobody would read what is written to the old one.
    fn follow(&mut self, path: &Path, mode: Option<u32>) -> io::Result<()> {
        let own = self.tail.metadata()?;
        if is_at(path, &own)? {
            return self.tail.has_length(own.len());
        }
        let mut next = Self::open(path, mode).map_err(io::Error::other)?;
        let path = path.display();
        if let Err(error) = self.tail.sync() {
            // A disk that was replaced may never work again.
            next.tail.take_over(&mut self.tail);
            tracing::warn!(%path, %error, code = "old-file-failed", "the last lines of a file that \
                was moved or removed cannot be stored there, writing them to the new one");
        }
        *self = next;
        tracing::info!(%path, "the file of a sink was moved or removed, writing to a new one");
        Ok(())
    }

    fn rotate(&mut self, path: &Path, mode: Option<u32>) -> io::Result<()> {
        self.tail.sync()?;
        std::fs::rename(path, next_rotated(path))?;
        *self = Self::open(path, mode).map_err(io::Error::other)?;
        Ok(())
    }
}

/// Whether the file with this metadata is the one that the path leads to.
fn is_at(path: &Path, file: &Metadata) -> io::Result<bool> {
    match path.metadata() {
        Ok(there) => Ok((there.dev(), there.ino()) == (file.dev(), file.ino())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Another user's file that has the mode already is taken as it is.
fn open_for_append(path: &Path) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    OpenOptions::new()
        .create(true)
        .append(true)
        .read(true)
        .mode(FILE_MODE)
        .open(path)
}

/// Sets the mode, unless the file has it already: another user's file could not be changed.
fn set_mode(file: &File, mode: u32) -> io::Result<()> {
    const PERMISSIONS: u32 = 0o7777;
    if file.metadata()?.permissions().mode() & PERMISSIONS == mode {
        return Ok(());
    }
    file.set_permissions(Permissions::from_mode(mode))
}

fn next_rotated(path: &Path) -> PathBuf {
    let mut n = 1;
    while numbered(path, n).try_exists().unwrap_or(true) && n < u32::MAX {
        n += 1;
    }
    numbered(path, n)
}

fn numbered(path: &Path, n: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{n}"));
    PathBuf::from(name)
}

/// Cuts what follows the last line end; returns the length left.
fn cut_torn_line(file: &mut File) -> io::Result<u64> {
    const BLOCK_BYTES: u64 = 64 << 10;
    let length = file.seek(SeekFrom::End(0))?;
    let mut end = length;
    let mut block = Vec::new();
    while end > 0 {
        let start = end.saturating_sub(BLOCK_BYTES);
        file.seek(SeekFrom::Start(start))?;
        block.clear();
        Read::by_ref(file)
            .take(end - start)
            .read_to_end(&mut block)?;
        if let Some(newline) = block.iter().rposition(|byte| *byte == b'\n') {
            end = start + newline as u64 + 1;
            break;
        }
        end = start;
    }
    if end < length {
        tracing::warn!(
            bytes = length - end,
            code = "line-incomplete",
            "removed an incomplete last line, its records will be delivered again"
        );
        file.set_len(end)?;
    }
    Ok(end)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use shardmill_core::plugin::PluginName;
    use shardmill_core::stream::ShardId;

    use super::*;

    fn options(path: &Path, rotate_bytes: u64) -> FileSinkOptions {
        FileSinkOptions {
            name: "out".into(),
            path: path.to_owned(),
            rotate_bytes,
            format: LineFormat::Data,
            mode: None,
        }
    }

    fn mode_of(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[tokio::test]
    async fn output_is_for_its_owner_only_unless_another_mode_is_set_also_after_rotation() {
        let folder = tempfile::tempdir().unwrap();
        let private = folder.path().join("private.ndjson");
        drop(FileSink::open(options(&private, 10)).unwrap());
        assert_eq!(mode_of(&private), 0o600);
        std::fs::set_permissions(&private, Permissions::from_mode(0o644)).unwrap();
        drop(FileSink::open(options(&private, 10)).unwrap());
        assert_eq!(mode_of(&private), 0o644, "what somebody chose stays");

        let path = folder.path().join("out.ndjson");
        std::fs::write(&path, "").unwrap();
        let shared = FileSinkOptions {
            mode: Some(0o664),
            ..options(&path, 10)
        };
        let sink = FileSink::open(shared).unwrap();
        for text in ["first1", "second"] {
            sink.write(origin(), line(text)).await.unwrap();
        }
        // No usual mask lets a group write.
        assert_eq!(mode_of(&path), 0o664);
        assert_eq!(mode_of(&folder.path().join("out.ndjson.1")), 0o664);
    }

    fn origin() -> Arc<Origin> {
        let plugin = PluginName::new("alerts").unwrap();
        Arc::new(Origin {
            plugin,
            shard: ShardId::new("shardId-000000000000").unwrap(),
            through: None,
            trace: None,
        })
    }

    fn line(text: &'static str) -> Arc<Vec<Emitted>> {
        Arc::new(vec![Emitted {
            destination: "out".into(),
            key: String::new(),
            data: Bytes::from_static(text.as_bytes()),
        }])
    }

    #[tokio::test]
    async fn a_torn_last_line_is_cut_and_whole_lines_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.ndjson");
        std::fs::write(&path, "whole\nto").unwrap();
        let sink = FileSink::open(options(&path, 1 << 20)).unwrap();
        sink.write(origin(), line("next")).await.unwrap();
        sink.flush().await.unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "whole\nnext\n");
    }

    #[tokio::test]
    async fn rotation_keeps_every_line_and_rising_numbers() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.ndjson");
        let sink = FileSink::open(options(&path, 10)).unwrap();
        for text in ["first1", "second", "third3"] {
            sink.write(origin(), line(text)).await.unwrap();
        }
        let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
        assert_eq!(
            (
                read("out.ndjson.1"),
                read("out.ndjson.2"),
                read("out.ndjson")
            ),
            ("first1\n".into(), "second\n".into(), "third3\n".into())
        );
    }

    #[tokio::test]
    async fn a_file_that_was_moved_or_removed_is_made_again_and_a_truncated_one_is_continued() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out").join("out.ndjson");
        let sink = FileSink::open(options(&path, 20)).unwrap();
        let read = || std::fs::read_to_string(&path).unwrap();
        let write = async |text| {
            sink.write(origin(), line(text)).await.unwrap();
            sink.flush().await.unwrap();
        };
        write("first").await;
        let moved = path.with_extension("old");
        std::fs::rename(&path, &moved).unwrap();
        write("moved").await;
        assert_eq!(read(), "moved\n");
        assert_eq!(std::fs::read_to_string(&moved).unwrap(), "first\n");
        std::fs::rename(&path, &moved).unwrap();
        std::fs::write(&path, "").unwrap();
        write("created").await;
        assert_eq!(read(), "created\n");
        std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
        write("removed").await;
        assert_eq!(read(), "removed\n");
        // Longer than what may be in a file together with what was there before.
        std::fs::write(&path, "").unwrap();
        write("truncated 123").await;
        assert_eq!(read(), "truncated 123\n");
    }

    #[tokio::test]
    async fn nothing_is_put_before_a_batch_that_failed_after_the_file_was_truncated() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.ndjson");
        let sink = FileSink::open(options(&path, 1 << 20)).unwrap();
        sink.write(origin(), line("first")).await.unwrap();
        File::create(&path).unwrap();
        let mut file = sink.file.lock().await;
        file.follow(&path, None).unwrap();
        assert_eq!(file.tail.bytes(), 0, "a failed batch is cut off there");
    }

    #[test]
    fn what_is_no_regular_file_is_refused_and_never_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        for path in [&pipe, Path::new("/dev/null"), Path::new("/dev/full")] {
            let refused = FileSink::open(options(path, 10)).err().unwrap().to_string();
            assert!(refused.contains("is not a regular file"), "{refused}");
        }
    }

    #[tokio::test]
    async fn a_pipe_in_place_of_the_file_holds_records_back_until_it_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.ndjson");
        let sink = FileSink::open(options(&path, 10)).unwrap();
        std::fs::remove_file(&path).unwrap();
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.unwrap().success());
        let error = sink.write(origin(), line("a")).await.unwrap_err();
        assert!(error.message.contains("is not a regular file"), "{error}");
        std::fs::remove_file(&path).unwrap();
        sink.write(origin(), line("a")).await.unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a\n");
    }

    #[test]
    fn two_hosts_cannot_write_to_one_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.ndjson");
        let _first = FileSink::open(options(&path, 10)).unwrap();
        assert!(matches!(
            FileSink::open(options(&path, 10)),
            Err(FileSinkError::InUse { .. })
        ));
    }
}
