//! Versions that killed this host: reports them to their fleets, so that no other host starts one
//! by itself, and notices when somebody releases one. This host does not load them, so no worker of
//! theirs could do it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use shardmill_core::deaths::{Reports, Row};
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
/// How old a row may become before it is rewritten: rows expire after days, and a version that
/// kills hosts stays one.
const WRITE_AGAIN: Duration = Duration::from_hours(24);

/// The versions that killed this host, and which fleets know.
pub(super) struct Deadly {
    marks: Marks,
    /// Versions that are not reported yet, each with the plugin that it is a version of, and why
    /// they are quarantined.
    untold: HashMap<(PluginName, PluginDigest), String>,
    /// The tasks that look after reported versions.
    telling: HashMap<PluginDigest, Watched>,
    tasks: JoinSet<()>,
}

/// A version that a task looks after.
struct Watched {
    task: AbortHandle,
    tables: Tables,
}

/// Where a version is reported, by application: several plugins may have the same bytes.
#[derive(Clone, Default)]
struct Tables {
    // Written by the supervisor, read by the task; never held across an await.
    by_application: Arc<Mutex<BTreeMap<String, Arc<dyn Coordinator>>>>,
}

/// One version, and where it is reported.
struct Telling {
    tables: Tables,
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
        self.telling
            .retain(|_, watched| !watched.task.is_finished());
    }

    /// The host is shutting down as planned.
    pub(super) fn end(&mut self) {
        self.marks.end();
        self.tasks.abort_all();
    }
}

impl Tables {
    fn add(&self, tables: Vec<(String, Arc<dyn Coordinator>)>) {
        self.lock().extend(tables);
    }

    fn all(&self) -> BTreeMap<String, Arc<dyn Coordinator>> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<dyn Coordinator>>> {
        let tables = self.by_application.lock();
        tables.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Supervisor {
    pub(super) fn found_deadly(&mut self, name: PluginName, digest: PluginDigest, why: String) {
        self.deadly.untold.insert((name, digest), why);
        self.report_deadly();
    }

    /// Reports what is not reported yet, as soon as the plugin's settings say to which fleets.
    pub(super) fn report_deadly(&mut self) {
        if self.deadly.untold.is_empty() {
            return;
        }
        for ((name, digest), why) in std::mem::take(&mut self.deadly.untold) {
            let Ok(settings) = self.parts.settings(&name) else {
                self.deadly.untold.insert((name, digest), why);
                continue;
            };
            let tables = self.parts.coordinators(&settings.plugin);
            self.report_in(tables, digest, why);
        }
    }

    fn report_in(
        &mut self,
        tables: Vec<(String, Arc<dyn Coordinator>)>,
        digest: PluginDigest,
        why: String,
    ) {
        let watched = self.deadly.telling.get(&digest);
        if let Some(watched) = watched.filter(|watched| !watched.task.is_finished()) {
            // Another plugin with the same bytes, or other tables of the same.
            return watched.tables.add(tables);
        }
        let telling = Telling {
            tables: Tables::default(),
            digest: digest.clone(),
            host: self.parts.worker_id().clone(),
            why,
            marks: self.deadly.marks.clone(),
        };
        telling.tables.add(tables);
        let watched = Watched {
            tables: telling.tables.clone(),
            task: self.deadly.tasks.spawn(telling.until_released()),
        };
        self.deadly.telling.insert(digest, watched);
    }
}

impl Telling {
    async fn until_released(self) {
        let mut reports = Reports::new(self.marks.published(&self.digest));
        loop {
            let mut rows = Vec::new();
            for (application, table) in self.tables.all() {
                rows.push(self.row(&mut reports, &application, table.as_ref()).await);
            }
            if reports.is_released(&rows) {
                break;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        self.marks.release(&self.digest);
        tracing::info!(digest = %self.digest, "version released from quarantine, trying it again");
    }

    /// Reports it to one fleet, or sees whether that still knows. The others do not wait for a
    /// table that cannot be used.
    async fn row(&self, reports: &mut Reports, application: &str, table: &dyn Coordinator) -> Row {
        let looked = if reports.is_published(application) {
            self.look(table).await
        } else {
            self.publish(reports, application, table).await
        };
        looked.unwrap_or_else(|error| {
            let digest = &self.digest;
            tracing::debug!(%digest, application, %error, "cannot report to the fleet a version \
                that killed this host, trying again");
            Row::Unknown
        })
    }

    async fn publish(
        &self,
        reports: &mut Reports,
        application: &str,
        table: &dyn Coordinator,
    ) -> Result<Row, StoreError> {
        table.ensure_table().await?;
        table.quarantine(&self.entry()).await?;
        reports.publish(application);
        self.marks.mark_published(&self.digest, application);
        Ok(Row::There)
    }

    async fn look(&self, table: &dyn Coordinator) -> Result<Row, StoreError> {
        let board = table.board().await?;
        let mut rows = board.quarantined.iter();
        let Some(row) = rows.find(|row| row.digest == self.digest) else {
            return Ok(Row::Missing);
        };
        if row.is_older(wall_ms(), WRITE_AGAIN) {
            table.quarantine(&self.entry()).await?;
        }
        Ok(Row::There)
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use shardmill_fakes::fake_coordinator::{CoordinatorOp, FakeCoordinator};
    use shardmill_fakes::faults::Fault;

    use super::*;

    fn digest() -> PluginDigest {
        PluginDigest::from_hex(&"d".repeat(64)).unwrap()
    }

    /// A host with what it remembers beside `cache`, and the tables of what runs the version.
    fn telling(cache: &Path, tables: &[(&str, &Arc<FakeCoordinator>)]) -> Telling {
        let telling = Telling {
            tables: Tables::default(),
            digest: digest(),
            host: WorkerId::new("a").unwrap(),
            why: "the host died 2 times".to_owned(),
            marks: Marks::beside(cache),
        };
        add(&telling.tables, tables);
        telling
    }

    fn add(to: &Tables, tables: &[(&str, &Arc<FakeCoordinator>)]) {
        let of = |(application, table): &(&str, &Arc<FakeCoordinator>)| {
            let table: Arc<dyn Coordinator> = Arc::clone(table) as _;
            ((*application).to_owned(), table)
        };
        to.add(tables.iter().map(of).collect());
    }

    fn knows(table: &FakeCoordinator) -> bool {
        let rows = table.rows().quarantined;
        rows.iter().any(|row| row.digest == digest())
    }

    fn release(table: &FakeCoordinator) {
        table.change(|rows| rows.quarantined.clear());
    }

    async fn some_looks() {
        tokio::time::sleep(LOOK_EVERY * 5).await;
    }

    #[tokio::test(start_paused = true)]
    async fn every_fleet_that_runs_the_bytes_hears_of_it_and_all_of_them_have_to_release_it() {
        let folder = tempfile::tempdir().unwrap();
        let [first, second] = [(); 2].map(|()| Arc::new(FakeCoordinator::new()));
        let telling = telling(&folder.path().join("cache"), &[("first", &first)]);
        let (tables, marks) = (telling.tables.clone(), telling.marks.clone());
        let mut tasks = JoinSet::new();
        tasks.spawn(telling.until_released());
        some_looks().await;
        add(&tables, &[("second", &second)]);
        some_looks().await;
        assert!(knows(&first) && knows(&second));
        release(&first);
        some_looks().await;
        assert!(tasks.try_join_next().is_none(), "the second one knows");
        assert!(!knows(&first), "it was written once");
        release(&second);
        some_looks().await;
        assert!(tasks.try_join_next().is_some());
        assert!(marks.published(&digest()).is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_fleet_that_was_never_told_has_not_released_it_though_others_were_told_before() {
        let folder = tempfile::tempdir().unwrap();
        let table = Arc::new(FakeCoordinator::new());
        let telling = telling(&folder.path().join("cache"), &[("second", &table)]);
        telling.marks.mark_published(&digest(), "first");
        let mut tasks = JoinSet::new();
        tasks.spawn(telling.until_released());
        some_looks().await;
        assert!(tasks.try_join_next().is_none() && knows(&table));
    }

    #[tokio::test(start_paused = true)]
    async fn a_release_while_the_host_was_down_is_heeded_and_not_undone() {
        let folder = tempfile::tempdir().unwrap();
        let table = Arc::new(FakeCoordinator::new());
        let telling = telling(&folder.path().join("cache"), &[("orders", &table)]);
        telling.marks.mark_published(&digest(), "orders");
        let mut tasks = JoinSet::new();
        tasks.spawn(telling.until_released());
        some_looks().await;
        assert!(tasks.try_join_next().is_some() && !knows(&table));
    }

    #[tokio::test(start_paused = true)]
    async fn a_table_that_cannot_be_used_keeps_no_other_fleet_from_hearing_and_releases_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let [broken, table] = [(); 2].map(|()| Arc::new(FakeCoordinator::new()));
        broken.faults.draw_from(|op: CoordinatorOp| {
            let is_written = op == CoordinatorOp::Quarantine;
            is_written.then_some(Fault::Refuse)
        });
        let telling = telling(
            &folder.path().join("cache"),
            &[("broken", &broken), ("orders", &table)],
        );
        let mut tasks = JoinSet::new();
        tasks.spawn(telling.until_released());
        some_looks().await;
        assert!(knows(&table) && !knows(&broken));
        release(&table);
        some_looks().await;
        assert!(tasks.try_join_next().is_none(), "one fleet was never told");
        broken.faults.clear();
        some_looks().await;
        assert!(knows(&broken));
    }
}
