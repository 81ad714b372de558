//! What `--json` shows of a worker of another library, for every command that watches its fleet.

use serde::Serialize;
use shardmill_core::migration::WorkerLife;

#[derive(Serialize)]
pub(super) struct WorkerReport<'a> {
    pub(super) worker: &'a str,
    /// Shards that it owns.
    pub(super) shards: usize,
    pub(super) life: &'static str,
}

impl<'a> WorkerReport<'a> {
    pub(super) fn of(life: &'a WorkerLife) -> Self {
        Self {
            worker: &life.worker,
            shards: life.shards,
            life: life.pulse.code(),
        }
    }
}
