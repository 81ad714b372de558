//! What the process does without, so that what it knows stays in it.

/// No core dumps: memory holds AWS credentials, secrets of plugins and records. A pipe that collects dumps does not ask
/// for the limit, only for the second; neither can other processes of the same user read this one's memory then.
#[cfg(target_os = "linux")]
pub fn forbid_core_dumps() -> std::io::Result<()> {
    use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// Elsewhere there is only the limit, which is the user's to set.
#[cfg(not(target_os = "linux"))]
pub fn forbid_core_dumps() -> std::io::Result<()> {
    Ok(())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use rustix::process::{DumpableBehavior, Resource, dumpable_behavior, getrlimit};

    #[test]
    fn a_process_that_forbade_it_leaves_no_core() {
        super::forbid_core_dumps().unwrap();
        assert_eq!(getrlimit(Resource::Core).maximum, Some(0));
        assert_eq!(dumpable_behavior().unwrap(), DumpableBehavior::NotDumpable);
    }
}
