//! Where an application begins from now on, in its coordinator table.

use anyhow::bail;
use shardmill_core::fleet::ApplicationStart;
use shardmill_core::ports::Raced;

use super::application::Application;

/// What replaces where the application began.
pub(super) struct NewStart {
    pub(super) seen: ApplicationStart,
    pub(super) next: ApplicationStart,
}

impl NewStart {
    /// Writes it down, unless it changed since it was read. Hosts that run read it when they start
    /// again; until then they know the old one, which concerns no shard that was ever sent
    /// anywhere.
    pub(super) async fn write(&self, application: &Application) -> anyhow::Result<()> {
        let coordinator = application.coordinator();
        match coordinator.replace_start(&self.seen, &self.next).await? {
            Raced::Applied => Ok(()),
            Raced::Lost => bail!(
                "{}: somebody else changed where the application begins: run it again",
                application.name
            ),
        }
    }
}
