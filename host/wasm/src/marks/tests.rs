use std::fs::File;
use std::os::unix::fs::PermissionsExt;

use super::*;

/// A process: marks of its own, which it drops as it dies, or as it ends.
struct Process {
    marks: Marks,
    at_work: Vec<AtWork>,
}

impl Process {
    fn starts(cache: &Path) -> Self {
        Self {
            marks: Marks::beside(cache),
            at_work: Vec::new(),
        }
    }

    /// As a host does at its start, as far as it gets.
    fn tries(&mut self, version: u64) -> Result<(), String> {
        let newcomer = self
            .marks
            .newcomer(&name(version), &digest(version))
            .map_err(|error| error.to_string())?;
        drop(
            newcomer
                .enter(Stage::Load)
                .map_err(|error| LoadError::from(error).to_string())?,
        );
        for stage in [Stage::Start, Stage::Call] {
            self.at_work.extend(
                newcomer
                    .enter(stage)
                    .map_err(|error| LoadError::from(error).to_string())?,
            );
        }
        Ok(())
    }

    /// The system closes its files, and nobody removes them.
    fn dies(self) {
        let shared = self.marks.shared.clone().unwrap();
        for (_, mark) in shared.lock().held.drain() {
            let file = mark.file.try_clone().unwrap();
            std::mem::forget(mark);
            flock_off(&file);
        }
    }
}

fn flock_off(file: &File) {
    rustix::fs::flock(file, rustix::fs::FlockOperation::Unlock).unwrap();
}

fn digest(version: u64) -> PluginDigest {
    PluginDigest::from_hex(&format!("{version:064x}")).unwrap()
}

fn name(version: u64) -> PluginName {
    PluginName::new(&format!("plugin-{version}")).unwrap()
}

/// The applications whose fleets were told of version 1.
fn published(process: &Process) -> Vec<String> {
    process.marks.published(&digest(1)).into_iter().collect()
}

fn files(cache: &Path) -> usize {
    std::fs::read_dir(cache.with_extension("marks")).map_or(0, Iterator::count)
}

#[test]
fn a_version_that_two_processes_died_of_is_not_loaded_until_it_is_released() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    for life in 0..2 {
        let mut host = Process::starts(&cache);
        assert_eq!(host.tries(1), Ok(()), "life {life}");
        host.dies();
    }
    let mut host = Process::starts(&cache);
    let refused = host.tries(1).unwrap_err();
    assert!(
        refused.contains("died 2 times") && refused.contains("in its calls"),
        "{refused}"
    );
    assert!(
        refused.contains("plugins plugin-1 --release 000000000000"),
        "{refused}"
    );
    assert_eq!(host.tries(2), Ok(()), "the others run on");
    host.marks.mark_published(&digest(1), "orders");
    assert_eq!(published(&host), ["orders"]);
    host.marks.release(&digest(1));
    assert_eq!(published(&host), [""; 0]);
    host.marks.end();
    assert_eq!(Process::starts(&cache).tries(1), Ok(()));
}

#[test]
fn of_two_versions_on_trial_at_once_the_one_is_blamed_that_the_host_dies_of_alone() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    let mut host = Process::starts(&cache);
    assert_eq!((host.tries(1), host.tries(2)), (Ok(()), Ok(())));
    host.dies();
    let mut host = Process::starts(&cache);
    assert_eq!(host.tries(2), Ok(()));
    let waits = host.tries(1).unwrap_err();
    assert!(
        waits.contains("tried alone") && waits.contains("the trial of plugin-2"),
        "{waits}"
    );
    assert!(
        host.tries(3).unwrap_err().contains("plugin-2"),
        "whoever is new would blur it"
    );
    host.dies();
    let mut host = Process::starts(&cache);
    assert!(host.tries(2).unwrap_err().contains("quarantined"));
    assert_eq!(host.tries(1), Ok(()));
}

#[test]
fn a_process_that_lives_or_ended_on_purpose_is_no_death() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    let mut first = Process::starts(&cache);
    assert_eq!(first.tries(1), Ok(()));
    let mut second = Process::starts(&cache);
    assert_eq!(
        (second.tries(1), second.tries(2)),
        (Ok(()), Ok(())),
        "the other one lives"
    );
    assert_eq!(files(&cache), 3);
    first.marks.end();
    second.marks.end();
    assert_eq!(files(&cache), 0);
    assert_eq!(first.tries(3), Ok(()));
    assert_eq!(
        files(&cache),
        0,
        "whatever comes after the end is no version's doing"
    );
}

#[test]
fn a_proven_version_is_marked_no_more_and_its_deaths_are_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    let mut host = Process::starts(&cache);
    assert_eq!(host.tries(1), Ok(()));
    host.dies();
    let mut host = Process::starts(&cache);
    assert_eq!(host.tries(1), Ok(()));
    host.at_work.clear();
    host.marks
        .shared
        .as_ref()
        .unwrap()
        .look(Moment::from_origin(std::time::Duration::from_mins(2)));
    for _ in 0..3 {
        let mut host = Process::starts(&cache);
        assert_eq!(
            (host.tries(1), files(&cache)),
            (Ok(()), 1),
            "the list of what is proven and nothing else"
        );
        host.dies();
    }
    assert_eq!(Process::starts(&cache).tries(1), Ok(()));
}

#[test]
fn what_was_proven_on_another_build_of_the_host_is_on_trial_again() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    let mut host = Process::starts(&cache);
    assert_eq!(host.tries(1), Ok(()));
    host.at_work.clear();
    host.marks
        .shared
        .as_ref()
        .unwrap()
        .look(Moment::from_origin(std::time::Duration::from_mins(2)));
    let proven = cache.with_extension("marks").join("proven");
    let (digest, build) = (digest(1), std::fs::read_to_string(&proven).unwrap());
    let (_, build) = build.trim().split_once(' ').unwrap();
    assert!(
        build.starts_with(concat!(env!("CARGO_PKG_VERSION"), "-")),
        "more than the version: {build}"
    );
    std::fs::write(
        &proven,
        format!("{} {}", digest.as_str(), env!("CARGO_PKG_VERSION")),
    )
    .unwrap();
    let mut upgraded = Process::starts(&cache);
    assert_eq!(
        (upgraded.tries(1), files(&cache)),
        (Ok(()), 2),
        "a mark beside the list"
    );
}

#[test]
fn what_is_no_mark_of_ours_says_nothing_and_a_folder_of_others_is_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    let marks = cache.with_extension("marks");
    let mut host = Process::starts(&cache);
    let hostile = digest(1);
    let of = |end: &str| marks.join(format!("{}.{end}", hostile.as_str()));
    std::fs::write(folder.path().join("target"), "alone true\n").unwrap();
    std::os::unix::fs::symlink(folder.path().join("target"), of("link")).unwrap();
    std::fs::create_dir(of("folder")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        of("pipe"),
        rustix::fs::FileType::Fifo,
        0o600.into(),
        0,
    )
    .unwrap();
    assert_eq!(host.tries(1), Ok(()));
    // What is damaged counts, as it cannot be told from what a full disk leaves.
    std::fs::write(of("empty"), "").unwrap();
    std::fs::write(of("giant"), vec![b'x'; 1 << 20]).unwrap();
    std::fs::write(of("torn"), "alone true\nstage sle\u{0}ep\nat -7\nprocess x").unwrap();
    let refused = host.tries(1).unwrap_err();
    assert!(refused.contains("died 3 times"), "{refused}");
    std::fs::set_permissions(&marks, std::fs::Permissions::from_mode(0o777)).unwrap();
    let open = Marks::beside(&cache);
    assert!(
        open.why_not().unwrap().contains("no other may write"),
        "{:?}",
        open.why_not()
    );
    assert!(open.newcomer(&name(1), &digest(1)).is_ok());
}

#[test]
fn a_folder_that_cannot_be_written_to_keeps_no_plugin_from_running_and_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    let mut host = Process::starts(&cache);
    assert_eq!(host.marks.why_not(), None);
    let marks = cache.with_extension("marks");
    std::fs::remove_dir_all(&marks).unwrap();
    std::fs::write(&marks, "").unwrap();
    assert_eq!(host.tries(1), Ok(()));
    assert!(host.marks.why_not().is_some());
}

#[test]
fn files_that_are_too_many_go_and_what_is_left_counts() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    Process::starts(&cache).dies();
    let marks = cache.with_extension("marks");
    for n in 0..5_000 {
        std::fs::write(marks.join(format!("{n:064x}.old")), "").unwrap();
    }
    let host = Process::starts(&cache);
    assert_eq!(files(&cache), 4_096);
    assert!(host.marks.newcomer(&name(1), &digest(9_999)).is_ok());
}

#[test]
fn a_folder_that_somebody_removed_is_made_again_and_remembers() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    let mut process = Process::starts(&cache);
    std::fs::remove_dir_all(cache.with_extension("marks")).unwrap();
    process.tries(1).unwrap();
    assert_eq!(
        std::fs::read_dir(cache.with_extension("marks"))
            .unwrap()
            .count(),
        1
    );
}

#[test]
fn a_version_that_was_not_left_alone_any_more_is_not_blamed_as_if_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    for _ in 0..2 {
        let mut host = Process::starts(&cache);
        assert_eq!(host.tries(1), Ok(()));
        let shared = host.marks.shared.clone().unwrap();
        shared.lock().end_solitude(&[digest(1)]);
        host.dies();
    }
    let mut host = Process::starts(&cache);
    assert_eq!(
        host.tries(1),
        Ok(()),
        "it is suspected, and tried alone again"
    );
    assert!(host.tries(2).unwrap_err().contains("plugin-1"));
    host.dies();
    assert!(
        Process::starts(&cache)
            .tries(1)
            .unwrap_err()
            .contains("quarantined")
    );
}

#[test]
fn each_application_that_was_told_of_a_death_is_remembered_and_what_names_none_counts_as_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    let mut host = Process::starts(&cache);
    assert_eq!(host.tries(1), Ok(()));
    // Of a host that did not know of applications.
    let told = format!("{}.told", digest(1).as_str());
    std::fs::write(cache.with_extension("marks").join(told), "").unwrap();
    assert_eq!(published(&host), [""; 0]);
    for application in ["returns", "orders", "returns"] {
        host.marks.mark_published(&digest(1), application);
    }
    host.dies();
    let host = Process::starts(&cache);
    assert_eq!(published(&host), ["orders", "returns"]);
    assert_eq!(host.marks.published(&digest(2)).len(), 0);
    let mut host = Process::starts(&cache);
    assert_eq!(host.tries(1), Ok(()), "one death");
}
