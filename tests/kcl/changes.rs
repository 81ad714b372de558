//! Who followed whom: the lease table looked at all the time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use harness::setting::Setting;
use shardmill_aws::LeaseTable;
use shardmill_core::ports::LeaseStore;
use tokio::task::JoinSet;

use crate::toolchain::APPLICATION;

const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Changes of owner, as far as they were seen; ends when dropped.
pub(crate) struct Changes {
    seen: Arc<Mutex<Vec<(String, String)>>>,
    // Aborts the task when dropped.
    _task: JoinSet<()>,
}

impl Changes {
    pub(crate) fn watch(setting: &Setting) -> Self {
        let table = LeaseTable::new(setting.clients.dynamodb.clone(), APPLICATION);
        let seen: Arc<Mutex<Vec<(String, String)>>> = Arc::default();
        let changes = Arc::clone(&seen);
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut last: BTreeMap<String, String> = BTreeMap::new();
            loop {
                tokio::time::sleep(LOOK_EVERY).await;
                let Ok(listing) = table.list().await else {
                    continue;
                };
                for lease in listing.leases.iter().filter(|lease| !lease.is_finished()) {
                    // A release is half a change: what counts is who comes next.
                    let Some(owner) = &lease.owner else { continue };
                    let before =
                        last.insert(lease.key.as_str().to_owned(), owner.as_str().to_owned());
                    if let Some(before) = before.filter(|before| before != owner.as_str()) {
                        let mut changes = changes.lock().unwrap_or_else(PoisonError::into_inner);
                        changes.push((before, owner.as_str().to_owned()));
                    }
                }
            }
        });
        Self { seen, _task: task }
    }

    /// How often a lease went from a worker whose id starts with `from` to one that starts with
    /// `to`.
    pub(crate) fn count(&self, from: &str, to: &str) -> usize {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.iter()
            .filter(|(before, after)| before.starts_with(from) && after.starts_with(to))
            .count()
    }
}
