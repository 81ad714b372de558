//! What a command shows: what it does to each shard, and whether that is done.

use std::fmt::Write;

use serde::Serialize;

use super::wait::Waited;
use crate::cli::ChangeArgs;
use crate::output::{print, print_json, table};

/// What is shown.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Report {
    pub(super) application: String,
    /// What the command does, in a word.
    pub(super) command: &'static str,
    /// Whether it was done, and not only shown.
    pub(super) applied: bool,
    /// What it does to each shard, or host.
    pub(super) steps: Vec<StepRow>,
    /// How it went, if it was done and waited for.
    pub(super) waited: Option<Waited>,
    /// What else is to be known.
    pub(super) notes: Vec<String>,
}

/// What is done to one shard, or to one host.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct StepRow {
    /// The shard, the host, or `all shards`.
    pub(super) what: String,
    /// How it is now.
    pub(super) now: String,
    /// How it is to be.
    pub(super) then: String,
    /// Which worker does it; `None` if nobody holds the lease.
    pub(super) by: Option<String>,
    /// Why nothing is done, if nothing is.
    pub(super) refused: Option<String>,
}

impl Report {
    /// Prints the report, as JSON if `--json` asks for it.
    pub(super) fn show(&self, change: &ChangeArgs) -> anyhow::Result<()> {
        if change.output.json {
            return print_json(self);
        }
        print(self.as_text(change.apply).trim_end());
        Ok(())
    }

    fn as_text(&self, is_to_apply: bool) -> String {
        let mut text = self.steps_as_text();
        let refused = self.refused_as_text();
        if !refused.is_empty() {
            let _ = write!(text, "\n{refused}");
        }
        for note in &self.notes {
            let _ = writeln!(text, "\n{note}");
        }
        text + &match (&self.waited, self.applied) {
            (Some(waited), _) => format!("\n{waited}\n"),
            (None, true) => "\nwanted; the hosts do it within seconds\n".to_owned(),
            (None, false) if is_to_apply => "\nnothing was changed\n".to_owned(),
            (None, false) => "\nnothing was changed: --apply does it\n".to_owned(),
        }
    }

    fn steps_as_text(&self) -> String {
        if self.steps.is_empty() {
            return format!("{}: there is nothing to do\n", self.application);
        }
        let mut table = table(["", "now", "then", "by"]);
        for step in &self.steps {
            let then = match &step.refused {
                Some(_) => "(unchanged)",
                None => step.then.as_str(),
            };
            let by = step.by.as_deref().unwrap_or("-");
            table.add_row([step.what.as_str(), &step.now, then, by]);
        }
        format!("{table}\n")
    }

    fn refused_as_text(&self) -> String {
        let mut refused = String::new();
        for step in &self.steps {
            if let Some(why) = &step.refused {
                let _ = writeln!(refused, "{}: {why}", step.what);
            }
        }
        refused
    }
}
