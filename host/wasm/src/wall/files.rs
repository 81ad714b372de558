//! Rules for files, by Landlock. They apply to the calling thread and the threads it starts.

use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, RulesetStatus, Scope, make_bitflags,
};

/// The denied operations: everything that this version of Landlock knows, and less on older
/// kernels.
const NEWEST: ABI = ABI::V6;

/// Denies all files except those below `folders`, where regular files may be created, read, written
/// and removed. Also denies all network addresses and all other processes.
pub(super) fn allow_only(folders: &[&Path]) -> Result<(), String> {
    match restrict(folders) {
        Ok(RulesetStatus::NotEnforced) => {
            Err("this kernel has no Landlock, or it is disabled".to_owned())
        }
        Ok(_) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

fn restrict(folders: &[&Path]) -> Result<RulesetStatus, RulesetError> {
    let mut ruleset = Ruleset::default()
        .handle_access(AccessFs::from_all(NEWEST))?
        .handle_access(AccessNet::from_all(NEWEST))?
        .scope(Scope::from_all(NEWEST))?
        .create()?;
    for folder in folders {
        // One that cannot be opened gets no rule, and then nothing can be written to it: the
        // attempt reports that.
        if let Ok(folder) = PathFd::new(folder) {
            ruleset = ruleset.add_rule(PathBeneath::new(folder, in_the_folder()))?;
        }
    }
    Ok(ruleset.restrict_self()?.ruleset)
}

fn in_the_folder() -> BitFlags<AccessFs> {
    make_bitflags!(AccessFs::{
        ReadFile | ReadDir | WriteFile | Truncate | MakeReg | MakeDir | RemoveFile | RemoveDir
    })
}
