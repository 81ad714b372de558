//! Compares what a manifest asks for with what the operator allows manifests.

use shardmill_core::plugin::PluginName;

use super::config::Config;
use super::failure::FailureFile;
use super::names::Named;
use super::parallelism;
use super::plugin::PluginFile;
use super::problem::{Problem, Under};
use super::retrieval::RetrievalMode;
use super::streams::StreamFile;

/// A manifest, and the operator's section of the same plugin. If both set a key, the section's
/// value counts, and the manifest's is not a request.
pub(super) struct Asked<'a> {
    pub(super) plugin: &'a PluginName,
    pub(super) manifest: &'a PluginFile,
    pub(super) section: &'a PluginFile,
}

// === impl Asked ===

impl Asked<'_> {
    /// Refuses what the plugin's author may not decide alone.
    pub(super) fn refuse_beyond(&self, general: &Config) -> Result<(), Problem> {
        let (manifest, section) = (self.manifest, self.section);
        self.refuse_what_hosts_set()?;
        if section.retrieval.is_none() {
            self.refuse_to_spend(general)?;
        }
        self.refuse_frequent_checkpoints(general)?;
        general
            .ceilings
            .names
            .refuse_beyond(&self.named(), general.stream.as_ref())?;
        manifest
            .limits
            .refuse_beyond(&section.limits, &general.ceilings.limits, &general.limits)
            .under("limits")?;
        if section.parallelism.is_none() {
            parallelism::refuse_beyond(manifest.parallelism, general.ceilings.parallelism)?;
        }
        manifest
            .grants
            .refuse_beyond(
                &section.grants,
                self.plugin,
                &general.ceilings.permissions,
                &general.secrets,
            )
            .under("grants")
    }

    /// What no manifest may set, whatever the ceilings are.
    fn refuse_what_hosts_set(&self) -> Result<(), Problem> {
        if self.manifest.integrity.is_some() {
            let message = "is for the host to set: a manifest comes with the very component it \
                would vouch for; set it in the host's [integrity] or its section of the plugin";
            return Err(Problem::new("integrity", message));
        }
        if self.manifest.standalone.is_some() && self.section.standalone.is_none() {
            let message = format!(
                "is for the host to set, since each host more reads all records once more: set it \
                    under [plugin.{}.standalone] in the host's configuration",
                self.plugin
            );
            return Err(Problem::new("standalone", message));
        }
        Ok(())
    }

    /// A manifest comes with the plugin, but the host's operator pays, and so must have allowed it.
    fn refuse_to_spend(&self, general: &Config) -> Result<(), Problem> {
        let general = general.retrieval;
        let is_allowed = general.is_fan_out_allowed || general.mode == RetrievalMode::FanOut;
        if self.manifest.retrieval != Some(RetrievalMode::FanOut) || is_allowed {
            return Ok(());
        }
        let message = "a manifest alone may not spend money on fan-out: set host.fan-out-allowed \
            = true, or retrieval in the host's section of the plugin; with \"auto\" the plugin is \
            polled until then";
        Err(Problem::new("retrieval", message))
    }

    /// Each checkpoint is a write to DynamoDB, and several where state is saved with it.
    fn refuse_frequent_checkpoints(&self, general: &Config) -> Result<(), Problem> {
        let (manifest, section) = (&self.manifest.checkpoint, &self.section.checkpoint);
        match manifest.asks_too_often(section, &general.checkpoints) {
            Some(key) if !general.ceilings.are_frequent_checkpoints_allowed => {
                let message = format!(
                    "asks for checkpoints more often than after 100 records, 100KiB or 1s, and each \
                        is a write to DynamoDB: a manifest alone may not spend that. Set it under \
                        [plugin.{}], or frequent-checkpoints = true under [ceilings], in the host's \
                        configuration",
                    self.plugin
                );
                Err(Problem::new(key, message))
            }
            _ => Ok(()),
        }
    }

    /// What the manifest names. Where the section names a stream, the manifest's are not read.
    fn named(&self) -> Named<'_> {
        let (manifest, section) = (self.manifest, self.section);
        let mut named = Named::nothing(self.plugin);
        if section.application.is_none() {
            named.application = manifest.application.as_deref();
        }
        if section.consumer.is_none() {
            named.consumer = manifest.consumer.as_deref();
        }
        if !section.names_streams() {
            named.stream = manifest.stream.as_deref();
            let streams = manifest.streams.iter().flatten();
            named.streams = streams.map(StreamFile::named).collect();
        }
        if section.sinks.is_none() {
            named.sinks = manifest.sinks.as_deref().unwrap_or_default();
        }
        if let Some(failure) = &manifest.failure {
            self.name_failure(failure, &mut named);
        }
        named.has_rollout = section.rollout.laid_over(manifest.rollout) != section.rollout;
        named
    }

    /// What the section does not say of it counts.
    fn name_failure<'a>(&self, failure: &'a FailureFile, named: &mut Named<'a>) {
        let own = self.section.failure.clone().unwrap_or_default();
        if own.dead_letter().is_none() {
            named.dead_letter = failure.dead_letter();
        }
        named.has_failure = own.clone().laid_over(failure.clone()) != own;
    }
}
