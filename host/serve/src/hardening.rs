//! What the process does without, so that what it knows stays in it, and so that a hole in it leads
//! nowhere.

use std::sync::OnceLock;

/// `off` omits the second wall, for credential helpers that need what it denies.
const WALL_VARIABLE: &str = "SHARDMILL_WALL";

/// What the wall around this process lacks; not set while there is none.
static LACKS: OnceLock<Vec<String>> = OnceLock::new();

/// Whether to raise the second wall: yes, unless the operator says otherwise.
pub(crate) fn is_wall_wanted() -> bool {
    std::env::var_os(WALL_VARIABLE).is_none_or(|value| value != "off")
}

/// Raises the second wall around this process and all that it starts, unless the operator does not
/// want it. Before anything else is started.
pub fn raise_wall() {
    if is_wall_wanted() {
        LACKS.get_or_init(shardmill_wasm::wall::raise_for_host);
    }
}

/// Logs what the wall lacks, if anything, so that the operator can decide whether that is enough.
pub fn report_wall() {
    for lack in wall_lacks() {
        tracing::warn!(
            lack,
            code = "wall-incomplete",
            "the wall around this process is incomplete; continuing without the missing part"
        );
    }
}

/// What the wall around this process lacks, each with why; nothing where it is whole.
pub(crate) fn wall_lacks() -> Vec<String> {
    LACKS.get().cloned().unwrap_or_else(|| {
        vec![format!(
            "everything: {WALL_VARIABLE}=off, or the process never raised it"
        )]
    })
}

/// No core dumps: memory holds AWS credentials, secrets of plugins and records. A pipe that
/// collects dumps does not ask for the limit, only for the second; neither can other processes of
/// the same user read this one's memory then.
#[cfg(target_os = "linux")]
pub fn forbid_core_dumps() -> std::io::Result<()> {
    use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

    setrlimit(
        Resource::Core,
        Rlimit {
            current: Some(0),
            maximum: Some(0),
        },
    )?;
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// Other systems only have the limit, which the user sets.
#[cfg(not(target_os = "linux"))]
pub fn forbid_core_dumps() -> std::io::Result<()> {
    Ok(())
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use rustix::process::{DumpableBehavior, Resource, dumpable_behavior, getrlimit};

    #[test]
    fn a_process_that_forbade_it_leaves_no_core() {
        super::forbid_core_dumps().unwrap();
        assert_eq!(getrlimit(Resource::Core).maximum, Some(0));
        assert_eq!(dumpable_behavior().unwrap(), DumpableBehavior::NotDumpable);
    }
}
