//! Versions that operators deploy to the whole fleet: passed on to the tasks that pull, which
//! answer.

use shardmill_core::artifact::NOT_HEEDED;
use shardmill_core::control::DeployAsked;
use shardmill_core::plugin::PluginName;
use shardmill_worker::Ring;

use super::{Running, Supervisor};
use crate::pulls::DeployRing;

impl Supervisor {
    /// The plugin that serves an application here.
    pub(super) fn plugin_of(&self, application: &str) -> Option<PluginName> {
        let serves = |running: &Running| {
            let mut streams = running.settings.plugin.streams.iter();
            streams.any(|stream| stream.application == application)
        };
        let mut running = self.running.iter();
        let found = running.find(|(_, running)| serves(running));
        found.map(|(name, _)| name.clone())
    }

    /// Has a version pulled that an operator wants. It is answered once it is in the folder;
    /// whether it does well is for its trial to find out.
    pub(super) fn deploy(&self, application: &str, deploy: DeployAsked, control: u64, ring: Ring) {
        let Some(plugin) = self.plugin_of(application) else {
            return ring.answer(&Err(format!("no plugin of {application} runs here")));
        };
        tracing::info!(%plugin, reference = %deploy.reference, asked = %deploy.asked, "a version is \
            deployed to the fleet");
        let ring = DeployRing {
            deploy,
            control,
            ring,
        };
        if let Some(ring) = self.pulls.deploy(&plugin, ring) {
            let why = format!(
                "{} {NOT_HEEDED}: this host pulls no versions of {plugin}, or is busy with other deploys: name its \
                    source in `plugins`",
                ring.deploy.reference
            );
            tracing::warn!(%plugin, why, code = "deploy-not-heeded", "a deploy is not heeded");
            ring.ring.answer(&Err(why));
        }
    }
}
