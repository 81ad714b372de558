//! Versions that killed this host: reports them to their fleets, so that no other host starts one
//! by itself, and notices when somebody releases one. This host does not load them, so no worker of
//! theirs could do it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use shardmill_core::lease::WorkerId;
use shardmill_core::plugin::{PluginDigest, PluginName};
use shardmill_core::ports::{Coordinator, StoreError};
use shardmill_core::rollout::Quarantined;
use shardmill_wasm::Marks;
use tokio::task::{AbortHandle, JoinSet};

use super::Supervisor;
use super::refused::wall_ms;

/// How often the tables are looked at: an operator who releases a version waits for three looks.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Looks in a row that must miss a row before its version counts as released: a look may be stale.
const MISSING_LOOKS: u32 = 3;
/// How old a row may become before it is rewritten: rows expire after days, and a version that
/// kills hosts stays one.
const WRITE_AGAIN: Duration = Duration::from_hours(24);

/// The versions that killed this host, and which fleets know.
pub(super) struct Deadly {
    marks: Marks,
    /// Versions that are not reported yet, and why they are quarantined.
    untold: HashMap<PluginName, (PluginDigest, String)>,
    /// The tasks that look after reported versions.
    telling: HashMap<PluginDigest, AbortHandle>,
    tasks: JoinSet<()>,
}

/// One version, and where it is reported.
struct Telling {
    tables: Vec<Arc<dyn Coordinator>>,
    digest: PluginDigest,
    host: WorkerId,
    why: String,
    marks: Marks,
}

impl Deadly {
    pub(super) fn new(marks: Marks) -> Self {
        Self {
            marks,
            untold: HashMap::new(),
            telling: HashMap::new(),
            tasks: JoinSet::new(),
        }
    }

    /// Updates the marks, and drops tasks that have ended.
    pub(super) fn look(&mut self) {
        self.marks.look();
        while self.tasks.try_join_next().is_some() {}
        self.telling.retain(|_, task| !task.is_finished());
    }

    /// The host is shutting down as planned.
    pub(super) fn end(&mut self) {
        self.marks.end();
        self.tasks.abort_all();
    }
}

impl Supervisor {
    pub(super) fn found_deadly(&mut self, name: PluginName, digest: PluginDigest, why: String) {
        self.deadly.untold.insert(name, (digest, why));
        self.report_deadly();
    }

    /// Reports what is not reported yet, as soon as the plugin's settings say to which fleets.
    pub(super) fn report_deadly(&mut self) {
        if self.deadly.untold.is_empty() {
            return;
        }
        for (name, (digest, why)) in std::mem::take(&mut self.deadly.untold) {
            if self.deadly.telling.contains_key(&digest) {
                continue;
            }
            let Ok(settings) = self.parts.settings(&name) else {
                self.deadly.untold.insert(name, (digest, why));
                continue;
            };
            let tables = self.parts.coordinators(&settings.plugin);
            let (host, marks) = (self.parts.worker_id().clone(), self.deadly.marks.clone());
            let telling = Telling {
                tables,
                digest: digest.clone(),
                host,
                why,
                marks,
            };
            self.deadly
                .telling
                .insert(digest, self.deadly.tasks.spawn(telling.until_released()));
        }
    }
}

impl Telling {
    async fn until_released(self) {
        let mut missing = 0;
        while missing < MISSING_LOOKS {
            match self.look().await {
                Ok(true) => missing = 0,
                Ok(false) => missing += 1,
                Err(error) => {
                    let digest = &self.digest;
                    tracing::debug!(%digest, %error, "cannot report to the fleet a version that \
                        killed this host, trying again");
                }
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        self.marks.release(&self.digest);
        tracing::info!(digest = %self.digest, "version released from quarantine, trying it again");
    }

    /// Reports it once; true if the fleets know.
    async fn look(&self) -> Result<bool, StoreError> {
        if !self.marks.is_published(&self.digest) {
            for table in &self.tables {
                table.ensure_table().await?;
                table.quarantine(&self.entry()).await?;
            }
            self.marks.mark_published(&self.digest);
            return Ok(true);
        }
        let mut is_known = false;
        for table in &self.tables {
            let board = table.board().await?;
            let Some(row) = board
                .quarantined
                .iter()
                .find(|row| row.digest == self.digest)
            else {
                continue;
            };
            is_known = true;
            if row.is_older(wall_ms(), WRITE_AGAIN) {
                table.quarantine(&self.entry()).await?;
            }
        }
        Ok(is_known)
    }

    fn entry(&self) -> Quarantined {
        Quarantined {
            digest: self.digest.clone(),
            host: self.host.clone(),
            reason: self.why.clone(),
            at_ms: wall_ms(),
        }
    }
}
