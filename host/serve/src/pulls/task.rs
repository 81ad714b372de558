//! One source: looks what is wanted, pulls it if it is not there, and waits.

use std::sync::Arc;
use std::time::Duration;

use shardmill_aws::AwsClients;
use shardmill_config::{Config, SourceConfig};
use shardmill_core::artifact::{
    Came, Decided, FoundOut, Here, Keeps, Orders, Pull, PullPolicy, TriedSettings, Wanted,
    WantedBy, wanted,
};
use shardmill_core::backoff::Backoff;
use shardmill_core::plugin::PluginDigest;
use shardmill_core::ports::Clock;
use shardmill_core::time::Moment;
use shardmill_sources::{PullError, Pulled, Sources};
use shardmill_worker::Outcome;
use tempfile::NamedTempFile;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::drop_in::{InFolder, PluginDrop};
use super::in_turns::InTurns;
use super::orders::OrderBook;
use super::ring::DeployRing;
use super::view::{PullBoard, SourceView, Start};
use crate::clock::BootClock;
use crate::metrics::{self, PullOutcome};

/// The first wait after a failure: a registry that restarts is back in seconds.
const RETRY_BASE: Duration = Duration::from_secs(2);
/// The longest one: what was mended is found within minutes, and nobody is flooded.
const RETRY_CAP: Duration = Duration::from_mins(5);
/// How often the tables are read while nobody has proven what was deployed: whoever waits for that
/// hears of it soon, and a query of a few small rows costs next to nothing.
const UNPROVEN_EVERY: Duration = Duration::from_secs(5);

/// Why a version is not put into the folder yet.
const BESIDE: &str = "is tried beside what runs here, as soon as that runs";
const IN_TURN: &str =
    "waits for its turn: it comes with another manifest, which one host tries first";

/// How many times `pull.timeout` a pull may take, over all its requests: the component may need the
/// whole of one, and the lists, tokens and small files before it together have another. So a
/// registry that answers each of a dozen requests at the last moment holds nobody up for longer.
const TIMEOUTS_MAX: u32 = 2;

/// What all sources of a host share.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) sources: Sources,
    pub(super) clients: AwsClients,
    pub(super) config: watch::Receiver<Arc<Config>>,
    pub(super) board: PullBoard,
    /// Of reading and writing components, one at a time. Never held while somebody else is asked.
    pub(super) disk: Arc<Semaphore>,
}

/// One source.
pub(super) struct PullTask {
    shared: Shared,
    source: SourceConfig,
    rings: mpsc::Receiver<DeployRing>,
    files: PluginDrop,
    orders: OrderBook,
    view: SourceView,
    pull: Pull,
    /// Since when a version is not tried here because none runs beside it.
    waits_since: Option<Moment>,
    /// What this host had to start without knowing whether somebody has proven it.
    untried: Option<String>,
    turns: InTurns,
    /// A version whose settings this host took up before all others, and since when.
    tries_settings: Option<(String, Moment)>,
}

/// What came of a look.
enum Looked {
    /// What is wanted was there already.
    Same(PluginDigest),
    /// It was pulled.
    Pulled(PluginDigest),
    /// What is there stays, whatever was deployed: for this reason, for people.
    Kept(&'static str),
}

/// Why a look failed.
#[derive(Debug, thiserror::Error)]
enum LookError {
    #[error("it is not known whether another version was deployed: {0}")]
    Orders(String),
    #[error(transparent)]
    Pull(#[from] PullError),
    #[error("{0}")]
    Folder(#[from] std::io::Error),
    #[error(
        "it took longer than {0:?}, which is {TIMEOUTS_MAX} times pull.timeout: the host that it is \
            pulled from answers too slowly, or pull.timeout is too short for a component of this size"
    )]
    Slow(Duration),
    #[error("{0}")]
    NotHeeded(String),
}

impl PullTask {
    pub(super) fn new(
        shared: Shared,
        source: SourceConfig,
        rings: mpsc::Receiver<DeployRing>,
    ) -> Self {
        metrics::count_pulls_from_zero(&source.plugin);
        let config = shared.config.borrow().clone();
        let view = SourceView::new(source.reference.clone());
        shared.board.set(&source.plugin, view.clone());
        let policy = PullPolicy {
            every: config.pull.every,
            backoff: Backoff::new(RETRY_BASE, RETRY_CAP).unwrap_or(Backoff::standard()),
        };
        Self {
            files: PluginDrop::new(
                &config.plugins,
                &source.plugin,
                config.host.plugin_bytes_max,
            ),
            orders: OrderBook::default(),
            view,
            pull: Pull::new(policy, BootClock.now()),
            waits_since: None,
            untried: None,
            turns: InTurns::default(),
            tries_settings: None,
            shared,
            source,
            rings,
        }
    }

    /// Looks again and again, for as long as it is polled.
    pub(super) async fn run(mut self) {
        loop {
            let wait = self.pull.next_at().since(BootClock.now());
            tokio::select! {
                biased;
                Some(ring) = self.rings.recv() => self.heed(ring).await,
                () = tokio::time::sleep(wait) => {
                    let config = self.shared.config.borrow().clone();
                    let known = self
                        .orders
                        .read(&self.source.plugin, &config, &self.shared.clients)
                        .await;
                    if self.orders.unproven().is_none() {
                        // Nothing else may hold up the start of what is here.
                        self.start_is(Start::Free);
                    }
                    // Why it failed is told once.
                    let is_ok = self.look(known).await.is_ok();
                    self.write_findings().await;
                    if is_ok && self.orders.unproven().is_some() {
                        self.pull.within(BootClock.now(), UNPROVEN_EVERY);
                    }
                }
            }
        }
    }

    /// Pulls what was deployed, and says whether it is there.
    async fn heed(&mut self, ring: DeployRing) {
        let DeployRing {
            deploy,
            control,
            ring,
        } = ring;
        let application = ring.wish.application().unwrap_or_default().to_owned();
        let (reference, version) = (deploy.reference.clone(), deploy.version.clone());
        self.orders.deployed(&application, control, deploy);
        let outcome: Outcome = match self.look(Ok(())).await {
            Ok(_) if self.view.refused.is_some() => {
                Err(self.view.refused.clone().unwrap_or_default())
            }
            Ok(Looked::Kept(why)) => Ok(format!("{reference} {why}: version {version}")),
            Ok(Looked::Same(version)) => Ok(format!("{reference} is here: version {version}")),
            Ok(Looked::Pulled(version)) => Ok(format!("pulled {reference}: version {version}")),
            Err(error) => Err(format!("{error}; it is tried again")),
        };
        ring.answer(&outcome);
        self.pull.within(BootClock.now(), UNPROVEN_EVERY);
    }

    fn start_is(&mut self, start: Start) {
        self.view.start = start;
        self.shared
            .board
            .set(&self.source.plugin, self.view.clone());
    }

    /// Writes down for the fleet what this host knows of the version that is deployed.
    async fn write_findings(&mut self) {
        let plugin = &self.source.plugin;
        let here = self.shared.board.in_effect(plugin);
        let me = self.shared.config.borrow().worker_id.to_string();
        let tries = self.tries_settings.as_ref();
        let came = Came {
            untried: self.untried.as_deref(),
            tries_settings: tries.map(|(reference, since)| TriedSettings {
                reference,
                lasts: BootClock.now().since(*since),
                probation: self.orders.probation(),
            }),
        };
        let Some(found) = self.orders.found_out(here.as_ref(), came, &me) else {
            if self.orders.is_proven() {
                self.end_trial_of_settings();
            }
            return;
        };
        match self.orders.write(&me, &found).await {
            Ok(()) => {
                tracing::info!(%plugin, ?found, "the deployed version was judged");
                if found == FoundOut::Proven {
                    self.end_trial_of_settings();
                }
            }
            Err(error) => tracing::warn!(
                %plugin,
                %error,
                code = "deploy-not-noted",
                "cannot write down how the deployed version does, trying again"
            ),
        }
    }

    /// One look, and what follows for the next one and for people.
    async fn look(&mut self, orders: Result<(), String>) -> Result<Looked, LookError> {
        let looked = self.try_look(orders).await;
        self.pull
            .ended(BootClock.now(), looked.is_ok(), fastrand::f64());
        match &looked {
            Ok(found) => self.note_found(found),
            Err(error) => self.note_failure(error),
        }
        self.shared
            .board
            .set(&self.source.plugin, self.view.clone());
        looked
    }

    fn note_found(&mut self, found: &Looked) {
        let plugin = &self.source.plugin;
        let (version, outcome) = match found {
            Looked::Kept(_) => (self.view.version.clone(), PullOutcome::Unchanged),
            Looked::Same(version) => (Some(version.clone()), PullOutcome::Unchanged),
            Looked::Pulled(version) => {
                let reference = &self.view.reference;
                let by = self.view.by.code();
                tracing::info!(%plugin, %reference, by, %version, "version pulled");
                (Some(version.clone()), PullOutcome::Pulled)
            }
        };
        metrics::pulls(plugin, outcome).increment(1);
        self.view.version = version;
        self.view.checked_at = Some(Instant::now());
        self.view.error = None;
    }

    fn note_failure(&mut self, error: &LookError) {
        let plugin = &self.source.plugin;
        metrics::pulls(plugin, PullOutcome::Failed).increment(1);
        let reference = &self.view.reference;
        if self.pull.has_just_failed() {
            tracing::warn!(
                %plugin,
                %reference,
                %error,
                code = "pull-failed",
                "no version was pulled, trying again; what runs goes on"
            );
        } else {
            tracing::debug!(%plugin, %reference, %error, "no version was pulled");
        }
        self.view.error = Some(error.to_string());
    }

    async fn try_look(&mut self, orders: Result<(), String>) -> Result<Looked, LookError> {
        let files = self.files.clone();
        let here = self.on_disk(move || files.look()).await?;
        self.view.version = here.pulled();
        self.view.artifact = here.artifact();
        let wanted = match self.decide(&here) {
            Decided::Wants(wanted) => wanted,
            Decided::Keeps(Keeps::Unknown) => {
                self.start_is(Start::Free);
                return Err(LookError::Orders(orders.err().unwrap_or_default()));
            }
            Decided::Keeps(why) => {
                self.keep(why);
                return Ok(Looked::Kept(BESIDE));
            }
        };
        self.turns.look(&wanted, &self.orders);
        if self.waits_for_turn(&wanted) {
            self.start_is(Start::Free);
            return Ok(Looked::Kept(IN_TURN));
        }
        self.show(&wanted);
        if let Some(version) = here.pulled()
            && is_settled(&wanted, &here)
        {
            return Ok(Looked::Same(version));
        }
        let looked = self.pull_wanted(&wanted, here).await;
        if matches!(looked, Ok(Looked::Same(_) | Looked::Pulled(_))) {
            let reference = wanted.reference.as_text();
            if self
                .tries_settings
                .as_ref()
                .is_some_and(|(tried, _)| *tried != reference)
            {
                self.end_trial_of_settings();
            }
            self.view.artifact = Some(wanted.reference.clone());
            self.view.start = Start::Free;
        }
        looked
    }

    /// What is to be here, by what is known.
    fn decide(&mut self, here: &InFolder) -> Decided {
        let (now, plugin) = (BootClock.now(), &self.source.plugin);
        let is_running = self.shared.board.in_effect(plugin).is_some();
        let is_unproven = self.orders.unproven().is_some();
        if is_running || !is_unproven {
            self.waits_since = None;
        } else {
            self.waits_since.get_or_insert(now);
        }
        let patience = self.orders.patience();
        let pulled = here.artifact().map(|reference| reference.as_text());
        let facts = Here {
            has_file: here.component.is_some(),
            pulled: pulled.as_deref(),
            is_running,
            has_waited: self
                .waits_since
                .is_some_and(|since| now.since(since) >= patience),
        };
        let orders = self.orders.orders();
        let decided = wanted(&self.source.reference, orders, facts);
        if !is_running && (facts.has_waited || matches!(orders, Orders::Unknown)) {
            self.untried = pulled;
        }
        decided
    }

    fn end_trial_of_settings(&mut self) {
        self.tries_settings = None;
        self.orders.keeps_tables = false;
    }

    /// Whether another host is to try the settings of this version first.
    fn waits_for_turn(&self, wanted: &Wanted) -> bool {
        let me = self.shared.config.borrow().worker_id.clone();
        self.turns.waits(wanted, &self.orders, &me)
    }

    /// What is here stays, and may start.
    fn keep(&mut self, why: Keeps) {
        if let Some(artifact) = &self.view.artifact {
            self.view.reference = artifact.clone();
        }
        let refused = match why {
            Keeps::Refused(why) => Some(why),
            Keeps::Unknown | Keeps::RunsFirst => None,
        };
        self.refuse(refused);
        self.start_is(Start::Free);
    }

    fn refuse(&mut self, refused: Option<String>) {
        if let Some(why) = &refused
            && self.view.refused.as_ref() != Some(why)
        {
            tracing::warn!(
                plugin = %self.source.plugin,
                why,
                code = "deploy-not-heeded",
                "a deploy is not heeded"
            );
        }
        self.view.refused = refused;
    }

    /// Before anything is put into the folder: the supervisor asks for it once the folder reports
    /// it.
    fn show(&mut self, wanted: &Wanted) {
        self.refuse(wanted.refused.clone());
        let is_held = wanted.holds_start;
        self.view.reference = wanted.reference.clone();
        self.view.by = wanted.by;
        self.start_is(if is_held { Start::Held } else { Start::Free });
    }

    async fn pull_wanted(&mut self, wanted: &Wanted, here: InFolder) -> Result<Looked, LookError> {
        let reference = &wanted.reference;
        let known = here.mark_of(reference);
        let files = self.files.clone();
        let fresh = blocking(move || files.fresh()).await?;
        let mut file = tokio::fs::File::from_std(fresh.reopen()?);
        let within = self.shared.config.borrow().pull.timeout;
        let within = within.saturating_mul(TIMEOUTS_MAX);
        let pulling = self.shared.sources.pull(reference, known, &mut file);
        let pulled = tokio::time::timeout(within, pulling).await;
        let pulled = pulled.map_err(|_| LookError::Slow(within))??;
        drop(file);
        match (pulled, here.pulled()) {
            (Some(pulled), _) => self.put(fresh, pulled, wanted).await,
            (None, Some(version)) => Ok(Looked::Same(version)),
            (None, None) => Err(LookError::NotHeeded(
                "the server says that nothing has changed, and there was nothing".to_owned(),
            )),
        }
    }

    async fn put(
        &mut self,
        fresh: NamedTempFile,
        pulled: Pulled,
        wanted: &Wanted,
    ) -> Result<Looked, LookError> {
        let (files, reference) = (self.files.clone(), wanted.reference.clone());
        let component = pulled.component.clone();
        let before = self.view.version.clone();
        if InTurns::apply(wanted, &self.orders) {
            let (files, look) = (self.files.clone(), pulled.clone());
            if self.on_disk(move || files.changes_settings(&look)).await? {
                self.turns.settings_change(wanted);
                if self.waits_for_turn(wanted) {
                    return Ok(Looked::Kept(IN_TURN));
                }
                self.tries_settings = Some((reference.as_text(), BootClock.now()));
                self.orders.keeps_tables = true;
            }
        }
        // Before the folder reports that the manifest is gone.
        self.view.is_without_settings = pulled.settings.is_none();
        self.shared
            .board
            .set(&self.source.plugin, self.view.clone());
        self.on_disk(move || files.put(fresh, &pulled, &reference))
            .await?;
        let version = component.version();
        // A tag may be put to the same version again.
        if before.as_ref() == Some(&version) && wanted.by == WantedBy::Config {
            return Ok(Looked::Same(version));
        }
        Ok(Looked::Pulled(version))
    }

    /// Reads or writes components: one source at a time.
    async fn on_disk<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
    ) -> std::io::Result<T> {
        let disk = Arc::clone(&self.shared.disk);
        let _turn = disk.acquire_owned().await;
        blocking(work).await
    }
}

/// Whether nothing has to be asked: a certain version is wanted, and it is there.
fn is_settled(wanted: &Wanted, here: &InFolder) -> bool {
    wanted.reference.digest().is_some() && here.is_of(&wanted.reference)
}

/// Runs what waits for the disk where it holds nobody up.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> std::io::Result<T> {
    let mut task = JoinSet::new();
    task.spawn_blocking(work);
    match task.join_next().await {
        Some(Ok(done)) => done,
        Some(Err(error)) => Err(std::io::Error::other(error)),
        None => Err(std::io::Error::other("it was not started")),
    }
}
