use std::path::Path;

use super::*;
use crate::recordings::folder::read;
use crate::recordings::sample::recording;

const EMPTY: &[u8] = shardmill_wasm::EMPTY_COMPONENT;

fn config(folder: &Path) -> Config {
    let text = "stream = \"s\"\nplugins = \"plugins\"\n[host]\ncache = \"cache\"\n";
    std::fs::create_dir_all(folder.join("plugins")).unwrap();
    Config::parse(text, folder).unwrap()
}

fn start(parent: &Path) -> (Writer, RecordingsFolder) {
    let config = config(parent);
    let cache = config.host.cache.folder().unwrap();
    let folder = RecordingsFolder::beside(cache);
    let kept = Kept::beside(cache, config.host.plugin_bytes_max);
    folder.prepare().unwrap();
    let writer = Writer::start(folder.clone(), kept, &config).unwrap();
    (writer, folder)
}

/// Waits for the thread. It ends when nobody can leave it anything any more, and all is done.
#[expect(
    clippy::disallowed_methods,
    reason = "these tests are not async, and nothing is cancelled"
)]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..2_000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{what} does not come");
}

fn written(folder: &RecordingsFolder) -> usize {
    folder.list().map_or(0, |found| found.len())
}

#[test]
fn a_recording_is_on_the_disk_with_the_component_that_failed() {
    let parent = tempfile::tempdir().unwrap();
    let (writer, folder) = start(parent.path());
    std::fs::write(parent.path().join("plugins/orders.wasm"), EMPTY).unwrap();
    let mut failed = recording("shardId-1", 17, 1);
    failed.digest = shardmill_wasm::digest_of(EMPTY);
    writer.keep(failed.clone());
    until("the recording", || written(&folder) == 1);
    let found = folder.list().unwrap().remove(0);
    assert_eq!(
        read(&found.path).unwrap().batch.records,
        failed.batch.records
    );
    let component = Components::new(&folder).find(&failed.digest).unwrap();
    assert_eq!(std::fs::read(component).unwrap(), EMPTY);
}

#[test]
fn a_version_whose_file_is_gone_is_recorded_without_its_component() {
    let parent = tempfile::tempdir().unwrap();
    let (writer, folder) = start(parent.path());
    std::fs::write(parent.path().join("plugins/orders.wasm"), "another").unwrap();
    let failed = recording("shardId-1", 17, 1);
    writer.keep(failed.clone());
    until("the recording", || written(&folder) == 1);
    assert!(Components::new(&folder).find(&failed.digest).is_none());
}

#[test]
fn nobody_waits_for_a_disk_that_hangs() {
    let (waiting, hanging) = sync_channel(WAITING_MAX);
    let writer = Writer {
        waiting,
        rate: Mutex::new(TokenBucket::new(PER_SECOND, BURST, BootClock.now())),
    };
    for number in 0..1_000 {
        writer.keep(recording("shardId-1", number, 1));
    }
    assert_eq!(hanging.try_iter().count(), WAITING_MAX);
}

#[test]
fn a_thousand_shards_that_fail_at_once_write_no_more_than_their_rate() {
    let (waiting, recordings) = sync_channel(10_000);
    let writer = Writer {
        waiting,
        rate: Mutex::new(TokenBucket::new(PER_SECOND, BURST, BootClock.now())),
    };
    let started = BootClock.now();
    for shard in 0..1_000 {
        writer.keep(recording(&format!("shardId-{shard}"), 1, 1));
    }
    let seconds = BootClock.now().since(started).as_secs() + 1;
    let most = u64::from(BURST) + u64::from(PER_SECOND) * seconds;
    let left = recordings.try_iter().count() as u64;
    assert!((u64::from(BURST)..=most).contains(&left), "{left}");
}

#[test]
fn a_folder_that_cannot_be_written_to_costs_recordings_and_nothing_else() {
    let parent = tempfile::tempdir().unwrap();
    let (writer, folder) = start(parent.path());
    std::fs::remove_dir_all(folder.path()).unwrap();
    std::fs::write(folder.path(), "a file in the way").unwrap();
    writer.keep(recording("shardId-1", 17, 1));
    std::fs::remove_file(folder.path()).unwrap();
    until("one that is written", || {
        writer.keep(recording("shardId-1", 18, 1));
        written(&folder) > 0
    });
}
