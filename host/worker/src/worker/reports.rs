//! What a worker reports: to people in its status, to other hosts in its row and by the bulletin.

use std::sync::Arc;
use std::time::Duration;

use shardmill_core::backoff::is_worth_a_line;
use shardmill_core::ports::StoreError;
use tokio::sync::watch;

use super::PassError;
use super::run::Run;
use crate::heart::Announcement;

/// Passes that failed in a row from which on this host's row says why: a single failure is a
/// hiccup.
const REPORTED_FROM: u32 = 3;

/// What there is to report, and what was reported.
pub(super) struct Reports {
    run: Arc<Run>,
    is_draining: watch::Sender<bool>,
    /// Why a lease's row cannot be written, if one cannot.
    cannot_write: watch::Sender<Option<String>>,
    /// Why passes fail, if they keep failing.
    cannot_look: watch::Sender<Option<String>>,
    /// Why the bulletin cannot be raised, if the table refuses it.
    cannot_announce: Option<String>,
    /// Whether something was changed that others should look at soon.
    has_news: bool,
    /// Passes that failed in a row.
    failed_passes: u32,
}

impl Reports {
    pub(super) fn new(run: Arc<Run>) -> Self {
        Self {
            run,
            is_draining: watch::channel(false).0,
            cannot_write: watch::channel(None).0,
            cannot_look: watch::channel(None).0,
            cannot_announce: None,
            has_news: false,
            failed_passes: 0,
        }
    }

    /// What each heartbeat reports.
    pub(super) fn announcement(&self) -> Announcement {
        Announcement {
            is_draining: self.is_draining.subscribe(),
            cannot_write: self.cannot_write.subscribe(),
            cannot_look: self.cannot_look.subscribe(),
        }
    }

    pub(super) fn has_news(&self) -> bool {
        self.has_news
    }

    pub(super) fn set_news(&mut self, has_news: bool) {
        self.has_news = has_news;
    }

    /// Raises the bulletin if there is something to see for others.
    pub(super) async fn announce_news(&mut self) {
        if !self.has_news {
            return;
        }
        match self.run.ports.coordinator.announce().await {
            Ok(()) => {
                self.has_news = false;
                self.cannot_announce = None;
            }
            Err(error) => self.announcement_failed(&error),
        }
    }

    fn announcement_failed(&mut self, error: &StoreError) {
        if matches!(error, StoreError::Refused { .. }) && self.cannot_announce.is_none() {
            tracing::warn!(
                %error,
                code = "not-announced",
                "cannot announce changes to other hosts, which will find them later"
            );
            self.cannot_announce = Some(format!("cannot announce changes to other hosts: {error}"));
        }
        tracing::debug!(%error, "could not raise the bulletin, other hosts will look later");
    }

    /// Counts a failed pass and reports it. Returns how long to wait before the next one.
    pub(super) fn pass_failed(&mut self, error: &PassError) -> Duration {
        self.failed_passes += 1;
        self.report_failure(error, self.failed_passes);
        self.run
            .options
            .backoff
            .delay(self.failed_passes, fastrand::f64())
    }

    /// Reports a failure outside of passes.
    pub(super) fn failed(&self, error: &PassError) {
        self.report_failure(error, 1);
    }

    fn report_failure(&self, error: &PassError, failures: u32) {
        if is_worth_a_line(failures) {
            let application = &self.run.options.application;
            tracing::warn!(
                application,
                %error,
                failures,
                code = "leases-unreadable",
                "cannot read leases"
            );
        }
        let reason = error.to_string();
        if failures >= REPORTED_FROM {
            send_if_new(&self.cannot_look, Some(&reason));
        }
        self.show_pass(Some(reason));
    }

    /// Reports that a pass went well. What it can do without may still be refused, because an
    /// operator forgot a right, and is shown.
    pub(super) fn pass_went_well(&mut self, cannot_list: Option<&String>) {
        self.failed_passes = 0;
        let refused = self.cannot_announce.as_ref().or(cannot_list).cloned();
        send_if_new(&self.cannot_look, refused.as_deref());
        self.show_pass(refused);
    }

    fn show_pass(&self, error: Option<String>) {
        self.run.status.update(|status| {
            status.pass_error = error;
            status.waits_on = None;
        });
    }

    /// Reports why lease rows cannot be written, if they cannot.
    pub(super) fn cannot_write(&self, reason: Option<String>) {
        send_if_new(&self.cannot_write, reason.as_deref());
        self.run
            .status
            .update(|status| status.cannot_write = reason);
    }

    /// Reports whether this host hands over what it holds: on its way out, or since an operator
    /// wants it. Others learn of it at once.
    pub(super) fn set_draining(&self, is_draining: bool) {
        self.is_draining.send_replace(is_draining);
    }
}

fn send_if_new(reported: &watch::Sender<Option<String>>, reason: Option<&str>) {
    reported.send_if_modified(|reported| {
        let is_new = reported.as_deref() != reason;
        if is_new {
            *reported = reason.map(str::to_owned);
        }
        is_new
    });
}
