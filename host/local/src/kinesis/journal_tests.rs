use super::*;

fn write(path: &Path, names: &[&str]) {
    let mut journal = Journal::open(path, |_, _| {}).unwrap();
    for name in names {
        journal
            .append(&[Entry::StreamDeleted((*name).to_owned())])
            .unwrap();
    }
}

fn read(path: &Path) -> Result<Vec<String>, StartError> {
    let mut names = Vec::new();
    Journal::open(path, |entry, _| {
        if let Entry::StreamDeleted(name) = entry {
            names.push(name);
        }
    })?;
    Ok(names)
}

#[test]
fn what_was_written_is_read_back_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    write(&path, &["a", "b"]);
    write(&path, &["c"]);
    assert_eq!(read(&path).unwrap(), ["a", "b", "c"]);
}

#[test]
fn a_torn_tail_of_any_length_is_cut_off_and_the_journal_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    write(&path, &["a", "b"]);
    let whole = fs::read(&path).unwrap();
    let one = whole.len() - (whole.len() - MAGIC.len()) / 2;
    for cut in one..whole.len() {
        fs::write(&path, &whole[..cut]).unwrap();
        write(&path, &["c"]);
        assert_eq!(read(&path).unwrap(), ["a", "c"], "cut at {cut}");
    }
}

#[test]
fn zeros_after_a_power_cut_count_as_torn() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    write(&path, &["a"]);
    let mut bytes = fs::read(&path).unwrap();
    bytes.extend_from_slice(&[0; 100]);
    fs::write(&path, bytes).unwrap();
    assert_eq!(read(&path).unwrap(), ["a"]);
}

#[test]
fn damage_in_the_middle_is_reported_and_nothing_is_cut_off() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    write(&path, &["a", "b"]);
    let mut bytes = fs::read(&path).unwrap();
    bytes[MAGIC.len() + HEADER_BYTES] ^= 0xff;
    fs::write(&path, &bytes).unwrap();
    let error = read(&path).unwrap_err();
    assert!(
        matches!(error, StartError::Journal { at: 8, .. }),
        "{error}"
    );
    assert_eq!(fs::read(&path).unwrap(), bytes);
}

#[test]
fn a_rewrite_replaces_everything_and_can_be_appended_to() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    write(&path, &["a", "b"]);
    let mut journal = Journal::open(&path, |_, _| {}).unwrap();
    journal
        .rewrite(std::iter::once(Entry::StreamDeleted("c".to_owned())))
        .unwrap();
    journal
        .append(&[Entry::StreamDeleted("d".to_owned())])
        .unwrap();
    assert_eq!(journal.len(), fs::metadata(&path).unwrap().len());
    assert_eq!(read(&path).unwrap(), ["c", "d"]);
}

#[test]
fn a_disk_that_is_full_is_reported_with_the_file_and_what_to_do() {
    let full = PathBuf::from("/dev/full");
    let mut journal = Journal {
        file: OpenOptions::new().append(true).open(&full).unwrap(),
        path: full,
        len: 0,
        is_broken: false,
    };
    let written = journal.append(&[Entry::StreamDeleted("a".to_owned())]);
    assert_eq!(
        written.unwrap_err().to_string(),
        "/dev/full: No space left on device (os error 28); free space there, or keep the data \
            elsewhere with --data"
    );
}

#[test]
fn nothing_is_kept_in_a_file_that_was_deleted_and_what_is_kept_moves_with_its_folder() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (dir.path().join("old"), dir.path().join("new"));
    fs::create_dir(&old).unwrap();
    let mut journal = Journal::open(&old.join("journal"), |_, _| {}).unwrap();
    fs::rename(&old, &new).unwrap();
    journal
        .append(&[Entry::StreamDeleted("a".to_owned())])
        .unwrap();
    assert_eq!(read(&new.join("journal")).unwrap(), ["a"]);
    fs::remove_dir_all(&new).unwrap();
    let written = journal.append(&[Entry::StreamDeleted("b".to_owned())]);
    let told = written.unwrap_err().to_string();
    assert!(
        told.ends_with("the file was deleted, so nothing more can be kept; start again"),
        "{told}"
    );
}
