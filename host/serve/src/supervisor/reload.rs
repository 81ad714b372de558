//! What is wanted of this process; and settings that change while it runs: a manifest, or the
//! configuration that is read again.

use std::path::PathBuf;

use shardmill_config::{ConfigError, Reload};
use shardmill_core::control::DeployAsked;
use shardmill_core::plugin::PluginName;
use shardmill_core::rollout::Restart;
use shardmill_worker::{Outcome, Ring, Wish};
use tokio::sync::mpsc;

use super::{Supervisor, Waiting};
use crate::parts::Settings;

/// Keys that an answer names; the log names all of them.
const KEYS_SHOWN: usize = 8;

/// What became of a plugin whose settings were read again.
pub(super) enum Followed {
    /// They are what they were.
    Same,
    /// It restarts with other ones, or starts.
    Restarts,
    /// The new ones cannot be used, for this reason.
    Keeps(String),
}

/// Where the configuration is read from, and the wishes to read it again.
pub(crate) struct Reloads {
    /// The file that the host was started with, if there is one.
    pub(crate) file: Option<PathBuf>,
    /// From SIGHUP, and from the tables of each application.
    pub(crate) rings: mpsc::Receiver<Ring>,
}

impl Reloads {
    pub(super) async fn next(&mut self) -> Option<Ring> {
        self.rings.recv().await
    }
}

impl Supervisor {
    pub(crate) fn reload_from(&mut self, file: PathBuf) {
        self.reloads.file = Some(file);
    }

    /// Does what is wanted, and says what came of it.
    pub(super) fn heed(&mut self, ring: Ring) {
        let asked = ring.asked.to_string();
        let outcome = match &ring.wish {
            Wish::Deploy {
                application,
                deploy,
                control,
            } => {
                let (application, deploy, control) =
                    (application.clone(), DeployAsked::clone(deploy), *control);
                return self.deploy(&application, deploy, control, ring);
            }
            Wish::Reload => {
                let outcome = self.take_over();
                let (Ok(outcome_shown) | Err(outcome_shown)) = &outcome;
                tracing::info!(asked, outcome = outcome_shown, "a reload was asked for");
                outcome
            }
            Wish::EndShadow {
                application,
                digest,
                verb,
            } => self.end_shadow_of(application, digest, *verb),
        };
        ring.answer(&outcome);
    }

    /// Reads the file, takes over what concerns plugins, and restarts those whose settings are
    /// others now.
    fn take_over(&mut self) -> Outcome {
        let Some(file) = &self.reloads.file else {
            return Err("this host was started without a configuration file".to_owned());
        };
        match self.parts.config.reload(file) {
            Ok(Reload::Unchanged) => Ok("nothing has changed".to_owned()),
            Ok(Reload::Changed { config, keys }) => {
                tracing::info!(?keys, "settings that have changed");
                self.parts.config = *config;
                self.pulls.follow(&self.parts.config);
                let configured = self.parts.config.plugins_with_sections();
                self.status.configured_are(configured);
                let with_keys = |followed: String| format!("{}; {followed}", shown(&keys));
                self.follow_settings().map(with_keys).map_err(with_keys)
            }
            Ok(Reload::NeedsRestart { keys }) => Err(format!(
                "nothing was taken over: {} can change only with a restart of the host",
                shown(&keys)
            )),
            Err(error) => {
                tracing::warn!(%error, code = "reload-failed", "the configuration cannot be read");
                Err(format!(
                    "nothing was taken over: {}",
                    without_values(&error)
                ))
            }
        }
    }

    /// Which plugins restart; an error if some keep the settings they have, with why.
    fn follow_settings(&mut self) -> Outcome {
        let names = self.running.keys().chain(self.waiting.keys());
        let mut names: Vec<PluginName> = names.cloned().collect();
        names.sort();
        let (mut restarted, mut kept) = (Vec::new(), String::new());
        for name in names {
            match self.follow_settings_of(&name) {
                Followed::Same => {}
                Followed::Restarts => restarted.push(name.to_string()),
                Followed::Keeps(why) => {
                    kept = format!("{kept}; {name} keeps the settings it had: {why}");
                }
            }
        }
        if restarted.is_empty() {
            restarted.push("none".to_owned());
        }
        let text = format!("restarted: {}{kept}", restarted.join(", "));
        if kept.is_empty() { Ok(text) } else { Err(text) }
    }

    /// New settings need new workers: these drain, checkpoint and release, and the next ones resume
    /// where they ended.
    pub(super) fn follow_settings_of(&mut self, name: &PluginName) -> Followed {
        if let Some(Waiting {
            version, rollout, ..
        }) = self.waiting.remove(name)
        {
            self.start(name, version, rollout);
            return match self.waiting.get(name) {
                Some(waiting) => Followed::Keeps(waiting.why().to_owned()),
                None => Followed::Restarts,
            };
        }
        let settings = self.settings(name);
        // A version that came without a manifest took that of the one before away.
        let view = self.pulls.view(name);
        let is_meant = view.is_some_and(|view| view.is_without_settings);
        let Some(running) = self.running.get_mut(name) else {
            return Followed::Same;
        };
        if running.stop.is_cancelled() {
            // It stops for good, or is about to start with what its settings are by then.
            return Followed::Restarts;
        }
        match settings.and_then(|settings| running.accept(settings)) {
            Ok(settings) => self.follow_accepted(name, settings, is_meant),
            Err(why) => self.keep_settings(name, &why),
        }
    }

    /// Goes on with settings that a running plugin may have; `is_meant` if they have no manifest on
    /// purpose.
    fn follow_accepted(
        &mut self,
        name: &PluginName,
        settings: Settings,
        is_meant: bool,
    ) -> Followed {
        let Some(running) = self.running.get_mut(name) else {
            return Followed::Same;
        };
        if settings == running.settings {
            self.status.settings_accepted(name.as_str());
            return Followed::Same;
        }
        if settings.differs_only_in_shadow(&running.settings) {
            running.settings = settings;
            self.follow_shadow(name);
            self.status.settings_accepted(name.as_str());
            return Followed::Same;
        }
        // As with a component: a deploy that deletes and copies must not move the plugin to other
        // streams in between.
        if running.settings.has_manifest && !settings.has_manifest && !is_meant {
            let why = "the manifest was removed; its settings stay in use until the host stops";
            return self.keep_settings(name, why);
        }
        if running.has_just_started() {
            self.follow_later(name);
        } else {
            tracing::info!(
                plugin = %name,
                "settings changed, draining to restart with the new ones"
            );
            // What is deployed with a manifest is tried by the host whose turn it is, as a whole.
            let how = if self.pulls.is_in_turns(name) {
                Restart::AllShards
            } else {
                Restart::OneShard
            };
            running.restart(how);
        }
        Followed::Restarts
    }

    fn keep_settings(&self, name: &PluginName, why: &str) -> Followed {
        tracing::warn!(
            plugin = %name,
            why,
            code = "settings-refused",
            "settings refused, the previous ones stay in use"
        );
        self.status.settings_refused(name.as_str(), why);
        Followed::Keeps(why.to_owned())
    }
}

/// What everybody may know who sees the history: where the mistakes are. The lines themselves may
/// hold secrets, and are in the host's log.
fn without_values(error: &ConfigError) -> String {
    let ConfigError::Invalid { path, problems, .. } = error else {
        return error.to_string();
    };
    let lines = problems
        .iter()
        .filter_map(|problem| problem.split(':').next());
    let lines: Vec<&str> = lines.filter(|place| place.starts_with("line ")).collect();
    let places = if lines.is_empty() {
        String::new()
    } else {
        format!(
            " ({})",
            shown(&lines.iter().map(ToString::to_string).collect::<Vec<_>>())
        )
    };
    format!(
        "{} has {} mistake(s){places}: `shardmill run --check` and the host's log show them",
        path.display(),
        problems.len()
    )
}

fn shown(keys: &[String]) -> String {
    let more = keys.len().saturating_sub(KEYS_SHOWN);
    let first = keys[..keys.len() - more].join(", ");
    if more == 0 {
        return first;
    }
    format!("{first} and {more} more")
}
