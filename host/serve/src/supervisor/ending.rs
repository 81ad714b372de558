//! What comes after files that are removed, and after workers that end.

use shardmill_config::OnRemove;
use shardmill_core::plugin::PluginName;
use shardmill_worker::SharedRollout;

use super::keep_serving::End;
use super::{Ended, NothingLeft, Running, Supervisor, Version};

impl Supervisor {
    pub(super) fn removed(&mut self, name: &PluginName) {
        self.pulled.held.remove(name);
        let on_remove = if self.is_pinned(name) {
            OnRemove::Keep
        } else {
            self.parts.on_remove()
        };
        let Some(running) = self.running.get_mut(name) else {
            return self.removed_while_waiting(name, on_remove);
        };
        match on_remove {
            OnRemove::Keep => {
                // What restarts goes on with what it was to start with.
                if !running.stop.is_cancelled() {
                    running.next = None;
                }
                tracing::warn!(
                    plugin = %name,
                    code = "file-removed",
                    "plugin file removed; the loaded version keeps running until the host stops"
                );
                self.status.file_removed(name.as_str());
            }
            OnRemove::Stop => {
                running.next = None;
                tracing::info!(plugin = %name, "plugin file removed, draining");
                self.status.file_removed(name.as_str());
                running.stop.cancel();
            }
        }
    }

    /// One that ran is as good as running: only its settings keep it from that.
    fn removed_while_waiting(&mut self, name: &PluginName, on_remove: OnRemove) {
        let waiting = self.waiting.get(name);
        let has_run = waiting.is_some_and(|waiting| waiting.rollout.is_some());
        if has_run && on_remove == OnRemove::Keep {
            tracing::info!(plugin = %name, "plugin file removed; the version that ran starts again \
                once it can");
            return self.status.file_removed(name.as_str());
        }
        self.waiting.remove(name);
        // It was loaded and never started, or is to stop.
        self.status.refused_file_gone(name.as_str());
    }

    pub(super) fn worker_ended(
        &mut self,
        ended: Result<Ended, tokio::task::JoinError>,
    ) -> Result<(), NothingLeft> {
        let Ok(Ended { name, label, end }) = ended else {
            // A worker that panics ends only its own task, below this one.
            tracing::error!(
                code = "plugin-panicked",
                "a task that serves a plugin panicked; restart the host"
            );
            return Ok(());
        };
        let next = self.one_less(&name);
        match (end, &next) {
            (End::Stopped, None) => self.status.stopped(label.as_str()),
            (End::Stopped, Some(_)) => self.status.restarts(&name, label.as_str()),
            // Its entry says why.
            (End::Fallen, _) => {}
        }
        if let Some((version, rollout)) = next {
            self.start(&name, version, Some(rollout));
        }
        // The last stream fell for good. A process that lives on would only look as if it served
        // something.
        let is_over = end == End::Fallen && self.workers.is_empty();
        if is_over {
            Err(NothingLeft {
                last: label.to_string(),
            })
        } else {
            Ok(())
        }
    }

    /// Counts a worker that has ended. If it was the plugin's last one: what is to start in their
    /// place.
    fn one_less(&mut self, name: &PluginName) -> Option<(Version, SharedRollout)> {
        let running = self.running.get_mut(name)?;
        running.workers = running.workers.saturating_sub(1);
        if running.workers > 0 {
            return None;
        }
        let Running { next, rollout, .. } = self.running.remove(name)?;
        Some((next?, rollout))
    }
}
