//! What hosts say about something that was asked of their processes: it is in the history.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::bail;
use shardmill_core::control::{Asked, Deed};
use shardmill_core::lease::WorkerId;

use super::application::{Answer, Application};
use super::wait::Waited;
use crate::cli::ChangeArgs;

/// The last answer of each host, by its name.
pub(super) type Answers = BTreeMap<String, Answer>;

/// Answers that are still to come.
pub(super) struct Awaited<'a> {
    application: &'a Application,
    asked: &'a Asked,
    /// What hosts say they did, or did not.
    deeds: [Deed; 2],
    /// Answers to an earlier command for the same reason are none to this one.
    before: Answers,
}

impl<'a> Awaited<'a> {
    /// To be called before something is asked for.
    pub(super) async fn from(
        application: &'a Application,
        asked: &'a Asked,
        deeds: [Deed; 2],
    ) -> anyhow::Result<Self> {
        Ok(Self {
            before: application.answers(asked, deeds).await?,
            application,
            asked,
            deeds,
        })
    }

    /// Waits, for as long as the arguments say, for the answers of all these hosts.
    pub(super) async fn wait(
        &self,
        change: &ChangeArgs,
        hosts: &BTreeSet<WorkerId>,
    ) -> anyhow::Result<Option<Waited>> {
        Waited::until_none_left(change, || async {
            let answers = self.answers().await?;
            let left = hosts.iter().map(ToString::to_string);
            Ok(left.filter(|name| !answers.contains_key(name)).collect())
        })
        .await
    }

    /// The answers until now.
    pub(super) async fn answers(&self) -> anyhow::Result<Answers> {
        let mut answers = self.application.answers(self.asked, self.deeds).await?;
        answers.retain(|host, answer| self.before.get(host) != Some(answer));
        Ok(answers)
    }
}

/// An error if some hosts have not answered yet, or have not done it.
/// `silence` says what becomes of the wish at hosts that have not answered.
pub(super) fn conclude(
    waited: Option<&Waited>,
    answers: &Answers,
    silence: &str,
) -> anyhow::Result<()> {
    let refused = answers.values().filter(|answer| !answer.is_done).count();
    if refused > 0 {
        bail!("{refused} host(s) have not done it, or not all of it: the answers above say why");
    }
    match waited {
        Some(waited) if !waited.is_done() => {
            bail!("some hosts have not answered yet: {silence}")
        }
        Some(_) | None => Ok(()),
    }
}
