use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::clock::wall_now;
use crate::recordings::sample::{HOSTILE_NAME, recording};

const ALL: Retention = Retention {
    per_shard: 2,
    in_all: 3,
    bytes: 1 << 20,
    keep_for: Duration::from_hours(1),
};

fn folder() -> (tempfile::TempDir, RecordingsFolder) {
    let parent = tempfile::tempdir().unwrap();
    let folder = RecordingsFolder::beside(&parent.path().join("cache"));
    folder.prepare().unwrap();
    (parent, folder)
}

fn attempts(folder: &RecordingsFolder) -> Vec<u32> {
    let found = folder.list().unwrap();
    let summaries = found.into_iter().map(|found| found.summary.unwrap());
    summaries.map(|summary| summary.attempt).collect()
}

#[test]
fn a_recording_is_found_by_its_record_whatever_the_names_in_it_hold() {
    let (_parent, folder) = folder();
    folder.write(&recording("shardId-1", 17, 1)).unwrap();
    let found = folder.list().unwrap();
    let place = RecordName::parse("shardId-1@17").unwrap();
    assert!(found[0].may_hold(HOSTILE_NAME, &place));
    assert!(!found[0].may_hold("orders", &place));
    assert!(!found[0].may_hold(HOSTILE_NAME, &RecordName::parse("shardId-2@17").unwrap()));
    assert!(read(&found[0].path).unwrap().holds(&place));
    let name = found[0].path.file_name().unwrap().to_str().unwrap();
    assert!(
        name.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte))
    );
}

#[test]
fn only_the_hosts_own_user_may_read_recordings() {
    let (_parent, folder) = folder();
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    folder.write(&recording("shardId-1", 17, 1)).unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(folder.path()), 0o700);
    assert_eq!(mode(&folder.list().unwrap()[0].path), 0o600);
}

#[test]
fn nothing_is_written_to_a_folder_that_others_may_write_to() {
    let (_parent, folder) = folder();
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).unwrap();
    let told = folder.write(&recording("shardId-1", 17, 1)).unwrap_err();
    assert!(told.to_string().contains("no other may write to"), "{told}");
    assert!(folder.list().unwrap().is_empty());
    assert!(!folder.believes(&folder.path().join("x.wasm")));
}

#[test]
fn a_later_attempt_at_a_batch_takes_the_place_of_the_earlier_one() {
    let (_parent, folder) = folder();
    for attempt in 1..=3 {
        folder.write(&recording("shardId-1", 17, attempt)).unwrap();
    }
    folder.write(&recording("shardId-1", 18, 9)).unwrap();
    assert_eq!(attempts(&folder), [9, 3]);
}

#[test]
fn the_folder_holds_no_more_than_it_may() {
    let (_parent, folder) = folder();
    for number in 0..10 {
        let shard = format!("shardId-{}", number % 5);
        folder.write(&recording(&shard, number, 1)).unwrap();
    }
    folder.prune(&ALL, wall_now()).unwrap();
    assert_eq!(folder.list().unwrap().len(), 3);
    folder
        .prune(&ALL, wall_now() + Duration::from_hours(2))
        .unwrap();
    assert!(folder.list().unwrap().is_empty());
}

#[test]
fn what_a_process_left_that_died_goes_and_what_is_something_else_stays() {
    let (_parent, folder) = folder();
    for name in ["fresh-1", "notes.txt", "x.recording"] {
        std::fs::write(folder.path().join(name), "x").unwrap();
    }
    folder.prune(&ALL, wall_now()).unwrap();
    assert!(folder.path().join("fresh-1").exists(), "it may be at work");
    folder
        .prune(&ALL, wall_now() + Duration::from_hours(2))
        .unwrap();
    assert!(!folder.path().join("fresh-1").exists());
    assert!(folder.path().join("notes.txt").exists());
    assert!(folder.path().join("x.recording").exists());
}

#[test]
fn a_folder_named_like_a_recording_keeps_none_from_being_removed() {
    let (_parent, folder) = folder();
    folder.write(&recording("shardId-1", 17, 1)).unwrap();
    let name = folder.list().unwrap().remove(0).path;
    std::fs::remove_file(&name).unwrap();
    std::fs::create_dir(&name).unwrap();
    folder.write(&recording("shardId-2", 18, 1)).unwrap();
    let later = wall_now() + Duration::from_hours(2);
    assert_eq!(folder.prune(&ALL, later).unwrap(), []);
    assert!(name.is_dir());
    std::fs::remove_dir(&name).unwrap();
    assert!(folder.list().unwrap().is_empty());
}

#[test]
fn a_recording_that_is_damaged_is_listed_with_what_is_wrong() {
    let (_parent, folder) = folder();
    folder.write(&recording("shardId-1", 17, 1)).unwrap();
    let path = folder.list().unwrap().remove(0).path;
    let file = std::fs::read(&path).unwrap();
    std::fs::write(&path, &file[..file.len() - 20]).unwrap();
    assert!(read(&path).unwrap_err().contains("damaged"));
    std::fs::write(&path, "{\"shardmill-recording\":7}").unwrap();
    let problem = folder.list().unwrap().remove(0).summary.unwrap_err();
    assert!(problem.contains("newer shardmill"), "{problem}");
}
