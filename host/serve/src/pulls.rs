//! Brings versions of plugins from where the configuration says into the plugins folder, which
//! takes them as it takes any other file. One task for each source; all of them end with the host.

mod drop_in;
mod in_turns;
mod noted;
mod orders;
mod record;
mod ring;
mod task;
mod view;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use shardmill_aws::AwsClients;
use shardmill_config::Config;
use shardmill_core::artifact::InEffect;
use shardmill_core::plugin::PluginName;
use shardmill_sources::{AwsAccess, PullError, Sources};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use self::noted::note_files;
pub(crate) use self::ring::DeployRing;
use self::task::{PullTask, Shared};
pub(crate) use self::view::PullBoard;
pub use self::view::SourceSnapshot;
pub(crate) use self::view::{SourceView, Start};
use crate::clock::wall_now;

/// Deploys of one plugin that wait: people deploy one at a time, and each is answered.
const DEPLOYS_MAX: usize = 4;

/// Reaches the tasks that pull.
pub(crate) struct Pulls {
    rings: HashMap<PluginName, mpsc::Sender<DeployRing>>,
    config: watch::Sender<Arc<Config>>,
    board: PullBoard,
}

/// The tasks, to be run by the host.
pub(crate) struct PullTasks {
    tasks: Vec<PullTask>,
}

/// What a host with this configuration pulls versions with.
///
/// # Errors
/// No HTTP client can be made.
pub fn sources_of(config: &Config, clients: &AwsClients) -> Result<Sources, PullError> {
    let aws = AwsAccess {
        clients: clients.clone(),
        s3_endpoint: config.pull.s3_endpoint.clone(),
        ecr_endpoint: None,
        now: wall_now,
    };
    Sources::new(config.source_options(), Some(aws))
}

impl Pulls {
    /// One task for each source of the configuration. Nothing is pulled before they run.
    pub(crate) fn new(
        config: &Config,
        clients: &AwsClients,
        board: PullBoard,
    ) -> Result<(Self, PullTasks), PullError> {
        let (sender, receiver) = watch::channel(Arc::new(config.clone()));
        let shared = Shared {
            sources: sources_of(config, clients)?,
            clients: clients.clone(),
            config: receiver,
            board: board.clone(),
            // One at a time: each may write a whole component to the disk, and hash it.
            disk: Arc::new(Semaphore::new(1)),
        };
        let (mut rings, mut tasks) = (HashMap::new(), Vec::new());
        for source in &config.sources {
            let (ring, received) = mpsc::channel(DEPLOYS_MAX);
            rings.insert(source.plugin.clone(), ring);
            tasks.push(PullTask::new(shared.clone(), source.clone(), received));
        }
        let pulls = Self {
            rings,
            config: sender,
            board,
        };
        Ok((pulls, PullTasks { tasks }))
    }

    /// Pulls nothing, ever: for a dry run.
    pub(crate) fn none(config: &Config) -> Self {
        Self {
            rings: HashMap::new(),
            config: watch::channel(Arc::new(config.clone())).0,
            board: PullBoard::default(),
        }
    }

    /// Has a version pulled at once; gives the ring back if nothing is pulled for that plugin here,
    /// or if too many wait.
    pub(crate) fn deploy(&self, plugin: &PluginName, ring: DeployRing) -> Option<DeployRing> {
        let Some(sender) = self.rings.get(plugin) else {
            return Some(ring);
        };
        sender.try_send(ring).err().map(|error| match error {
            mpsc::error::TrySendError::Full(ring) | mpsc::error::TrySendError::Closed(ring) => ring,
        })
    }

    /// The plugins' settings have changed, and so maybe the tables of operators' orders.
    pub(crate) fn follow(&self, config: &Config) {
        self.config.send_replace(Arc::new(config.clone()));
    }

    /// What is known of the source of a plugin, if it has one.
    pub(crate) fn view(&self, plugin: &PluginName) -> Option<SourceView> {
        self.board.view(plugin)
    }

    /// Takes note of what is in effect of each plugin that runs.
    pub(crate) fn set_in_effect(&self, in_effect: BTreeMap<PluginName, InEffect>) {
        self.board.set_in_effect(in_effect);
    }

    /// Whether one host tries the version that was pulled last before all others.
    pub(crate) fn is_in_turns(&self, plugin: &PluginName) -> bool {
        self.board.is_in_turns(plugin)
    }
}

impl PullTasks {
    /// Pulls until `stop`.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let mut running = JoinSet::new();
        for task in self.tasks {
            let stop = stop.clone();
            running.spawn(async move {
                Box::pin(stop.run_until_cancelled(task.run())).await;
            });
        }
        running.join_all().await;
    }
}
