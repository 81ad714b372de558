//! Which other users may write to the folder's files, and so choose the code that sees the records.

use std::path::Path;

use rustix::fs::{FileType, Stat};
use shardmill_core::text::printable;

const WRITE_BY_ALL: u32 = 0o002;
const WRITE_BY_GROUP: u32 = 0o020;

/// This process, to the file system.
#[derive(Debug, Clone, Copy)]
pub(super) struct Me {
    user: u32,
    group: u32,
}

impl Me {
    pub(super) fn of_process() -> Self {
        Self {
            user: rustix::process::geteuid().as_raw(),
            group: rustix::process::getegid().as_raw(),
        }
    }

    /// A user's private group, which has the same number as the user. The members of any other
    /// group are unknown here.
    fn is_own_group(self, group: u32) -> bool {
        group == self.group && group == self.user
    }
}

/// Which other users may write to `path`, and what to do about it; `None` if only this user and
/// root may. This is reported and not refused: volumes of containers are often writable by all,
/// where no other user exists.
pub(super) fn others(path: &Path, stat: &Stat, me: Me) -> Option<String> {
    let (mode, owner, group) = (stat.st_mode, stat.st_uid, stat.st_gid);
    // A link is not opened, and its mode says nothing.
    if FileType::from_raw_mode(mode) == FileType::Symlink {
        return None;
    }
    let (who, fix) = if mode & WRITE_BY_ALL != 0 {
        ("every user".to_owned(), "chmod o-w it")
    } else if owner != 0 && owner != me.user {
        let who = format!("its owner, the user {owner},");
        (who, "chown it to root or to this host's user")
    } else if mode & WRITE_BY_GROUP != 0 && !me.is_own_group(group) {
        (format!("the group {group}"), "chmod g-w it")
    } else {
        return None;
    };
    Some(format!(
        "{who} may write to {}, and so choose the code that sees the records: {fix}, or require \
            signatures under [integrity]",
        printable(&path.display().to_string())
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: Me = Me {
        user: 1_000,
        group: 1_000,
    };

    fn warning(mode: u32, owner: u32, group: u32, me: Me) -> Option<String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut stat = rustix::fs::stat(file.path()).unwrap();
        (stat.st_mode, stat.st_uid, stat.st_gid) = (0o100_000 | mode, owner, group);
        others(Path::new("/plugins/a.wasm"), &stat, me)
    }

    #[test]
    fn whoever_else_may_write_is_named_with_what_to_do() {
        for (mode, owner, group, expected) in [
            (
                0o666,
                1_000,
                1_000,
                "every user may write to /plugins/a.wasm",
            ),
            (0o644, 1_001, 1_000, "the user 1001, may write"),
            (0o664, 1_000, 50, "the group 50 may write"),
            (0o664, 0, 0, "the group 0 may write"),
        ] {
            let told = warning(mode, owner, group, ME).unwrap();
            assert!(
                told.contains(expected) && told.contains("[integrity]"),
                "{told}"
            );
        }
    }

    #[test]
    fn root_this_user_and_his_own_group_are_nobody_else() {
        for (mode, owner, group) in [
            (0o644, 1_000, 50),
            (0o644, 0, 0),
            (0o664, 1_000, 1_000),
            (0o640, 0, 1_000),
        ] {
            assert_eq!(
                warning(mode, owner, group, ME),
                None,
                "{mode:o} {owner} {group}"
            );
        }
        let in_staff = Me {
            user: 1_000,
            group: 50,
        };
        assert!(warning(0o664, 1_000, 50, in_staff).is_some());
    }
}
