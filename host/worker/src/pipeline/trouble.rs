//! What is in a shard's way, as the status, the row and the log show it.

use std::sync::Arc;
use std::time::Duration;

use shardmill_core::backoff::is_worth_a_line;
use shardmill_core::plugin::PluginDigest;
use shardmill_core::time::Moment;
use tokio::sync::watch;

use super::context::ShardContext;
use crate::metrics;
use crate::status::{Parking, Why};

/// From here on the row says it, for people; a single failure is not worth a write.
const NOTED_FROM: u32 = 3;
/// From here on a shard whose records fail drops what it read ahead: longer than ordinary hiccups.
const FAILS_FROM: Duration = Duration::from_secs(10);

/// See the module's description.
pub(super) struct Trouble {
    context: Arc<ShardContext>,
    /// Why it makes no progress, as the row says.
    stuck: Option<String>,
    /// The pause that the shard stands for, as the row says: whoever asked for it waits for that.
    paused: Option<String>,
    /// What the row says of the last record given up.
    last_given_up: Option<String>,
    /// Why the shard cannot be read, once that lasts.
    reading: watch::Receiver<Option<String>>,
    /// Since when it has made no progress.
    failing_since: Option<Moment>,
    /// Whether the shard is shown as blocked.
    is_blocked: bool,
    /// The last failure of records that wait still, or the halt at them: shown again once what else
    /// was in the way is gone.
    of_records: Option<Failing>,
}

/// Something that fails again and again, or the halt that it led to.
#[derive(Clone)]
pub(super) struct Failing {
    pub(super) why: Why,
    pub(super) attempts: u32,
    pub(super) reason: String,
}

impl Trouble {
    /// `reading`: why the shard cannot be read, once that lasts.
    pub(super) fn new(
        context: Arc<ShardContext>,
        reading: watch::Receiver<Option<String>>,
    ) -> Self {
        Self {
            context,
            stuck: None,
            paused: None,
            last_given_up: None,
            reading,
            failing_since: None,
            is_blocked: false,
            of_records: None,
        }
    }

    /// What the row says is in the shard's way: a pause first, and beside it what else there is.
    pub(super) fn note(&self) -> Option<String> {
        let failing = self.failing();
        let Some(paused) = &self.paused else {
            return failing;
        };
        Some(match failing {
            Some(failing) if failing != *paused => format!("{paused}; before that: {failing}"),
            Some(_) | None => paused.clone(),
        })
    }

    fn failing(&self) -> Option<String> {
        let stuck = self.stuck.clone().or_else(|| self.context.signs().note());
        stuck.or_else(|| self.reading.borrow().clone())
    }

    /// Has the row say that the shard stands for a pause; `None` once it does not.
    pub(super) fn set_paused(&mut self, paused: Option<String>) {
        let signs = self.context.signs();
        match &paused {
            Some(why) => signs.report(Why::Paused, 0, why),
            None => signs.clear(Why::Paused),
        }
        self.paused = paused;
    }

    /// What the row says of the last record given up.
    pub(super) fn last_given_up(&self) -> Option<String> {
        self.last_given_up.clone()
    }

    pub(super) fn set_last_given_up(&mut self, note: String) {
        self.last_given_up = Some(note);
    }

    /// Has the row say so. What it said before is given back.
    pub(super) fn set_stuck(&mut self, why: Option<String>) -> Option<String> {
        std::mem::replace(&mut self.stuck, why)
    }

    /// Returns when it has changed why the shard cannot be read. Cancel-safe.
    pub(super) async fn reading_changed(&mut self) {
        if self.reading.changed().await.is_err() {
            // Only with the pipeline.
            std::future::pending::<()>().await;
        }
    }

    /// Whose a failed delivery is, by the kind that metrics have of it.
    pub(super) fn why(&self, kind: &str) -> Why {
        let policy = &self.context.options().failure;
        if kind == "misconfigured" && policy.misconfigured_attempts.is_none() {
            Why::Misconfigured
        } else {
            Why::of_failure(kind)
        }
    }

    /// Has the row say that something failed, once it did so often enough. Whether the row is to be
    /// written for that.
    pub(super) fn note_failure(&mut self, attempts: u32, reason: &str) -> bool {
        if attempts < NOTED_FROM {
            return false;
        }
        self.stuck = Some(format!("attempt {attempts} failed: {reason}"));
        // Powers of two, as in the log: the row must not be written at every attempt.
        attempts == NOTED_FROM || is_worth_a_line(attempts)
    }

    /// Shows that records failed in the version `digest`, which are delivered again.
    pub(super) fn show_records_failed(&mut self, failing: Failing, digest: &PluginDigest) {
        self.of_records = Some(failing.clone());
        self.show_failure(failing, digest);
    }

    /// Shows that a call of the plugin, or something around it, failed in the version `digest`.
    pub(super) fn show_failure(&mut self, failing: Failing, digest: &PluginDigest) {
        let Failing {
            why,
            attempts,
            reason,
        } = failing;
        self.is_blocked = true;
        // Powers of two: a batch that fails for days must not fill the log.
        if is_worth_a_line(attempts) {
            let shard = self.context.shard();
            tracing::warn!(
                %shard,
                attempts,
                %digest,
                reason,
                code = "delivery-failed",
                "delivery failed, trying again"
            );
        }
        // Of a delivery it is one at a time: the last.
        self.clear_all_but(Some(why));
        self.context.signs().failed(why, attempts, reason);
    }

    /// Shows that the shard is halted.
    pub(super) fn show_halt(&mut self, deliveries: u32, why: &str) {
        self.is_blocked = true;
        self.of_records = Some(Failing {
            why: Why::Halted,
            attempts: deliveries,
            reason: why.to_owned(),
        });
        let signs = self.context.signs();
        signs.report(Why::Halted, deliveries, why);
    }

    /// What was in the way besides the records that wait is gone: they alone are shown.
    pub(super) fn show_records_alone(&mut self) {
        let of_records = self.of_records.clone();
        self.clear_all_but(of_records.as_ref().map(|failing| failing.why));
        self.stuck = None;
        let Some(failing) = of_records else { return };
        let Failing {
            why,
            attempts,
            reason,
        } = failing;
        if why == Why::Halted {
            self.context.signs().report(why, attempts, &reason);
            self.stuck = Some(reason);
        } else {
            self.note_failure(attempts, &reason);
            self.context.signs().failed(why, attempts, reason);
        }
    }

    /// Whether the shard has made no progress for some seconds, now that something has failed.
    pub(super) fn is_failing_long(&mut self) -> bool {
        let now = self.context.now();
        now.since(*self.failing_since.get_or_insert(now)) >= FAILS_FROM
    }

    /// What failed in the plugin's calls, or around them, works again, but for `still`.
    pub(super) fn clear_all_but(&self, still: Option<Why>) {
        const OWN: [Why; 6] = [
            Why::Halted,
            Why::Plugin,
            Why::Misconfigured,
            Why::Memory,
            Why::State,
            Why::Children,
        ];
        for why in OWN {
            if Some(why) != still {
                self.context.signs().clear(why);
            }
        }
    }

    /// No record waits to be tried again, and nothing else is in the way.
    pub(super) fn none_waits(&mut self) {
        if std::mem::take(&mut self.is_blocked) {
            let shard = self.context.shard();
            tracing::info!(%shard, "what failed works again");
            self.clear_all_but(None);
        }
        self.of_records = None;
        self.failing_since = None;
        self.stuck = None;
    }

    /// Shows what is parked.
    pub(super) fn show_parked(&self, parked: Parking) {
        let mut has_changed = false;
        self.context.update_status(|status| {
            has_changed = status.parked != parked;
            status.parked = parked;
        });
        if has_changed {
            let signs = self.context.signs();
            signs.gauge(metrics::PARKED, parked.records as f64);
        }
    }
}
