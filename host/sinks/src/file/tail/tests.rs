//! What a file sink does on a disk that loses what it could not store, and says so once.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use shardmill_core::plugin::PluginName;
use shardmill_core::ports::{Origin, Sink};
use shardmill_core::stream::{Emitted, ShardId};
use tempfile::TempDir;

use super::*;
use crate::LineFormat;
use crate::file::{FileSink, FileSinkOptions};

/// How many of the next calls fail, by kind.
#[derive(Default)]
struct Faults {
    syncs: AtomicU32,
    writes: AtomicU32,
    cuts: AtomicU32,
}

/// A file whose system drops the pages that it could not store.
struct Faulty {
    file: File,
    /// The same file, to be written anywhere.
    pages: File,
    stored: u64,
    faults: Arc<Faults>,
}

impl Faulty {
    fn drop_pages(&mut self) -> io::Error {
        let length = self.file.metadata().unwrap().len();
        let lost = usize::try_from(length.saturating_sub(self.stored)).unwrap();
        let nothing = vec![0; lost];
        self.pages.write_all_at(&nothing, self.stored).unwrap();
        self.stored = length;
        io::ErrorKind::StorageFull.into()
    }
}

fn is_next(failing: &AtomicU32) -> bool {
    failing
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
            left.checked_sub(1)
        })
        .is_ok()
}

impl Write for Faulty {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if is_next(&self.faults.writes) {
            self.file.write_all(&bytes[..bytes.len() / 2])?;
            return Err(self.drop_pages());
        }
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Medium for Faulty {
    fn metadata(&self) -> io::Result<Metadata> {
        self.file.metadata()
    }

    fn set_len(&mut self, bytes: u64) -> io::Result<()> {
        if is_next(&self.faults.cuts) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.stored = self.stored.min(bytes);
        self.file.set_len(bytes)
    }

    fn sync_data(&mut self) -> io::Result<()> {
        if is_next(&self.faults.syncs) {
            return Err(self.drop_pages());
        }
        self.stored = self.file.metadata()?.len();
        Ok(())
    }
}

/// A sink whose first file has faults.
struct Fixture {
    folder: TempDir,
    sink: FileSink,
    faults: Arc<Faults>,
}

impl Fixture {
    async fn new(rotate_bytes: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.ndjson");
        let sink = FileSink::open(FileSinkOptions {
            name: "out".into(),
            path: path.clone(),
            rotate_bytes,
            format: LineFormat::Data,
            mode: None,
        })
        .unwrap();
        let faults = Arc::<Faults>::default();
        sink.file.lock().await.tail.medium = Box::new(Faulty {
            file: File::options().append(true).open(&path).unwrap(),
            pages: File::options().write(true).open(&path).unwrap(),
            stored: 0,
            faults: Arc::clone(&faults),
        });
        Self {
            folder,
            sink,
            faults,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        read(&self.path(name))
    }
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

async fn write(sink: &FileSink, shard: u32, text: impl Into<Bytes>) -> bool {
    let origin = Arc::new(Origin {
        plugin: PluginName::new("alerts").unwrap(),
        shard: ShardId::new(format!("shardId-{shard:012}")).unwrap(),
        through: None,
        trace: None,
    });
    let emitted = Arc::new(vec![Emitted {
        destination: "out".into(),
        key: String::new(),
        data: text.into(),
    }]);
    sink.write(origin, emitted).await.is_ok()
}

fn fail(calls: &AtomicU32, times: u32) {
    calls.store(times, Ordering::Relaxed);
}

#[tokio::test]
async fn what_a_flush_could_not_store_is_written_again_before_the_next_one_says_that_it_is_stored()
{
    let fixture = Fixture::new(1 << 20).await;
    let sink = &fixture.sink;
    assert!(write(sink, 0, "first").await);
    sink.flush().await.unwrap();
    assert!(write(sink, 0, "second").await);
    fail(&fixture.faults.syncs, 1);
    assert!(sink.flush().await.is_err());
    assert!(!fixture.read("out.ndjson").contains("second"), "it is lost");
    sink.flush().await.unwrap();
    assert_eq!(fixture.read("out.ndjson"), "first\nsecond\n");
}

#[tokio::test]
async fn a_failed_flush_of_one_shard_is_not_the_end_of_what_another_has_written() {
    let fixture = Fixture::new(1 << 20).await;
    let first = &fixture.sink;
    let second = &fixture.sink.with_format(LineFormat::Data);
    assert!(write(first, 0, "of the first").await);
    assert!(write(second, 1, "of the second").await);
    fail(&fixture.faults.syncs, 1);
    assert!(second.flush().await.is_err());
    first.flush().await.unwrap();
    assert_eq!(
        fixture.read("out.ndjson"),
        "of the first\nof the second\n",
        "the error came to the other one, and once"
    );
    second.flush().await.unwrap();
    assert_eq!(
        fixture.read("out.ndjson"),
        "of the first\nof the second\n",
        "and nothing comes twice"
    );
}

#[tokio::test]
async fn what_is_written_after_a_failed_flush_follows_what_is_written_again() {
    let fixture = Fixture::new(1 << 20).await;
    let sink = &fixture.sink;
    assert!(write(sink, 0, "first").await);
    fail(&fixture.faults.syncs, 1);
    assert!(sink.flush().await.is_err());
    assert!(write(sink, 1, "second").await);
    sink.flush().await.unwrap();
    assert_eq!(fixture.read("out.ndjson"), "first\nsecond\n");
}

#[tokio::test]
async fn a_file_is_not_rotated_before_all_of_it_is_stored() {
    let fixture = Fixture::new(10).await;
    let sink = &fixture.sink;
    assert!(write(sink, 0, "first1").await);
    fail(&fixture.faults.syncs, 2);
    assert!(!write(sink, 0, "second").await);
    assert!(!write(sink, 0, "second").await);
    assert!(!fixture.path("out.ndjson.1").exists());
    assert!(write(sink, 0, "second").await);
    assert_eq!(fixture.read("out.ndjson.1"), "first1\n");
    assert_eq!(fixture.read("out.ndjson"), "second\n");
}

#[tokio::test]
async fn what_a_moved_file_does_not_store_goes_to_the_new_one() {
    let fixture = Fixture::new(1 << 20).await;
    let sink = &fixture.sink;
    assert!(write(sink, 0, "first").await);
    std::fs::rename(fixture.path("out.ndjson"), fixture.path("moved")).unwrap();
    fail(&fixture.faults.syncs, u32::MAX);
    assert!(write(sink, 0, "second").await);
    sink.flush().await.unwrap();
    assert_eq!(fixture.read("out.ndjson"), "first\nsecond\n");
}

#[tokio::test]
async fn a_line_that_a_full_disk_let_through_in_part_is_never_followed_by_another() {
    let fixture = Fixture::new(1 << 20).await;
    let sink = &fixture.sink;
    assert!(write(sink, 0, "first").await);
    fail(&fixture.faults.writes, 1);
    fail(&fixture.faults.cuts, 2);
    assert!(!write(sink, 0, "torn").await);
    assert!(fixture.read("out.ndjson").len() > "first\n".len());
    assert!(!write(sink, 0, "torn").await, "it cannot be cut off yet");
    assert!(write(sink, 0, "next").await);
    sink.flush().await.unwrap();
    assert_eq!(
        fixture.read("out.ndjson"),
        "first\nnext\n",
        "a write that fails may be all that is heard of a line that is lost"
    );
}

#[tokio::test]
async fn what_is_too_large_to_be_kept_is_stored_before_it_is_accepted() {
    let fixture = Fixture::new(1 << 30).await;
    let sink = &fixture.sink;
    let large = "x".repeat(KEPT_BYTES);
    assert!(write(sink, 0, "first").await);
    // That of the first line works.
    sink.flush().await.unwrap();
    fail(&fixture.faults.syncs, 1);
    assert!(!write(sink, 0, large.clone()).await);
    assert_eq!(fixture.read("out.ndjson"), "first\n", "its owner has it");
    assert!(write(sink, 0, large.clone()).await);
    assert_eq!(fixture.read("out.ndjson"), format!("first\n{large}\n"));
    fail(&fixture.faults.syncs, 1);
    sink.flush().await.unwrap();
    assert!(write(sink, 0, "last").await);
    assert!(sink.flush().await.is_err());
    sink.flush().await.unwrap();
    assert_eq!(
        fixture.read("out.ndjson"),
        format!("first\n{large}\nlast\n")
    );
}

#[tokio::test]
async fn a_file_keeps_no_more_than_its_bound_in_memory_however_long_nobody_flushes_it() {
    let fixture = Fixture::new(1 << 30).await;
    for _ in 0..10 {
        assert!(write(&fixture.sink, 0, "x".repeat(1 << 20)).await);
        let file = fixture.sink.file.lock().await;
        assert!(file.tail.unstored.len() <= KEPT_BYTES);
        assert!(file.tail.unstored.capacity() <= KEPT_BYTES);
    }
}

#[tokio::test]
async fn what_was_truncated_after_a_copy_is_not_written_again_unless_it_could_not_be_stored() {
    let fixture = Fixture::new(1 << 20).await;
    let sink = &fixture.sink;
    assert!(write(sink, 0, "copied").await);
    File::create(fixture.path("out.ndjson")).unwrap();
    assert!(write(sink, 0, "second").await);
    assert_eq!(fixture.read("out.ndjson"), "second\n");
    fail(&fixture.faults.syncs, 1);
    assert!(sink.flush().await.is_err());
    File::create(fixture.path("out.ndjson")).unwrap();
    assert!(write(sink, 0, "third").await);
    sink.flush().await.unwrap();
    assert_eq!(fixture.read("out.ndjson"), "second\nthird\n");
}
