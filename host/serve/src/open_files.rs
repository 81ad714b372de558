//! How many files this process may have open: as many as it is allowed, and the operator is told if
//! that is few.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// More than any host needs: each connection is one, and all that are counted have bounds.
const WANTED: u64 = 65_536;
/// A host has some 40 at its start, 64 connections to its pages at most, and some to AWS, to sinks
/// and from plugins.
const ENOUGH: u64 = 256;

/// Raises the limit of this process as far as its user may, and tells if that is not enough.
pub fn provide() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(WANTED, |most| most.min(WANTED));
    // No limit is enough.
    let Some(current) = limit.current else { return };
    let raised = Rlimit {
        current: Some(wanted),
        maximum: limit.maximum,
    };
    let has = if current < wanted && setrlimit(Resource::Nofile, raised).is_ok() {
        wanted
    } else {
        current
    };
    if has < ENOUGH {
        tracing::warn!(
            files = has,
            code = "few-files",
            "this process may open few files; without more it cannot load plugins, connect or \
                serve its pages: raise the limit to {ENOUGH} or more with ulimit -n, or with \
                LimitNOFILE= in a systemd unit"
        );
    }
}
