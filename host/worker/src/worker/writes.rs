//! Whether this host can write lease rows, and what comes of it if it cannot.

use std::collections::BTreeMap;
use std::time::Duration;

use shardmill_core::lease::{Lease, LeaseCounter, LeaseToken, WriteTrouble, can_others_write};
use shardmill_core::ports::{CheckpointWrite, Progress, StoreError};
use shardmill_core::seeded_bug::SeededBug;
use shardmill_core::stream::{LeaseKey, Position, SequenceNumber};
use shardmill_core::time::Moment;

use super::{Worker, WorkerError};

/// The key of a row that nobody makes, since it is no shard's.
const NO_ROW: &str = "shardmill-write-check";

/// What a worker remembers of writes that failed.
#[derive(Default)]
pub(super) struct Writes {
    /// Takes that fail, as long as none is answered.
    takes: Option<WriteTrouble>,
    /// When the last take was sent.
    take_sent_at: Option<Moment>,
    /// Until when none is tried, since the last ones were refused.
    takes_rest_until: Option<Moment>,
    /// Leases that were given up and could not be released, and why.
    unreleased: BTreeMap<LeaseKey, String>,
}

impl Writes {
    /// What nobody tried to take since `moment`, others have by now: that it failed is over.
    fn forget_takes_before(&mut self, moment: Moment) {
        if self.take_sent_at.is_some_and(|at| at < moment) {
            self.takes = None;
        }
    }

    /// Takes that failed in a row.
    pub(super) fn failed_takes(&self) -> u32 {
        self.takes.as_ref().map_or(0, |trouble| trouble.attempts)
    }

    /// Whether no take is to be tried yet.
    pub(super) fn takes_rest(&self, now: Moment) -> bool {
        self.takes_rest_until.is_some_and(|until| now < until)
    }

    pub(super) fn let_takes_rest(&mut self, until: Moment) {
        self.takes_rest_until = Some(until);
    }

    /// A take that was sent at `sent_at` was answered, or failed.
    pub(super) fn note_take(&mut self, sent_at: Moment, error: Option<&StoreError>) {
        self.take_sent_at = Some(sent_at);
        self.takes = error.map(|error| {
            let (since, attempts) = match &self.takes {
                Some(trouble) => (trouble.since, trouble.attempts + 1),
                None => (sent_at, 1),
            };
            WriteTrouble {
                since,
                attempts,
                reason: format!("cannot take leases: {error}"),
            }
        });
    }

    /// Leases that were given up and could not be released.
    pub(super) fn unreleased(&self) -> impl Iterator<Item = &LeaseKey> {
        self.unreleased.keys()
    }

    /// What a row says of a trouble once it is given back by name: why it was given up here, or what
    /// it says already.
    pub(super) fn stuck_of(&self, row: &Lease) -> Option<String> {
        let given_up = self.unreleased.get(&row.key);
        given_up.or(row.stuck.as_ref()).cloned()
    }

    /// A lease was given up and could not be released.
    pub(super) fn note_unreleased(&mut self, key: LeaseKey, reason: String) {
        self.unreleased.insert(key, reason);
    }
}

impl Worker {
    /// How often this is looked at: often enough to show it with the next heartbeat.
    pub(super) fn check_writes_every(&self) -> Duration {
        self.options.leases.renew_every
    }

    /// Gives up what could not be written for long, if another host may fare better: the lease
    /// concerned, if only its row cannot be written; else all of them, and this host leaves the
    /// fleet until it can write again. So it does if a row cannot even be released, which its
    /// heartbeat holds for as long as it beats.
    pub(super) async fn judge_writes(&mut self) -> Result<(), WorkerError> {
        let (now, duration) = (self.ports.clock.now(), self.options.leases.duration);
        let others = can_others_write(
            &self.options.worker,
            &self.observed.fleet.workers,
            &self.observed.alive,
        );
        self.forget_released();
        self.writes.forget_takes_before(now - duration * 3);
        let troubles = self.write_troubles();
        if SeededBug::WriteTroubleIsLeftAlone.is_on() {
            return Ok(());
        }
        self.show_write_trouble(&troubles);
        // A host that heeds has not looked at the others for long, or never.
        let mut lasting = troubles;
        lasting.retain(|(_, trouble)| trouble.is_to_be_given_up(now, duration, true));
        if lasting.is_empty() {
            return self.leave_unreleased(others);
        }
        // In an outage for all, the others need a while to say so.
        let told_by = lasting
            .iter()
            .map(|(_, trouble)| trouble.since)
            .min()
            .unwrap_or(now)
            + duration;
        if !self.observed.has_looked_since(told_by) {
            self.look_for_itself();
            return Ok(());
        }
        if !others {
            return Ok(());
        }
        let problem_of_all = self.check_writes().await.err();
        // Meanwhile a write may have come through, and what was wrong is over.
        lasting.retain(|(key, _)| key.as_ref().is_none_or(|key| self.is_row_in_trouble(key)));
        if lasting.is_empty() {
            return Ok(());
        }
        for (key, trouble) in lasting {
            if let Some(held) = key.and_then(|key| self.held.get(&key))
                && held.give_up.borrow().is_none()
            {
                held.give_up.send_replace(Some(trouble.reason));
            }
        }
        match problem_of_all {
            Some(error) => Err(self.cannot_write(error.to_string())),
            None => self.leave_unreleased(others),
        }
    }

    /// Writes that do not get through, each with its lease; takes have none yet.
    fn write_troubles(&self) -> Vec<(Option<LeaseKey>, WriteTrouble)> {
        let of_takes = self.writes.takes.clone().map(|trouble| (None, trouble));
        let of_leases = self
            .held
            .iter()
            .filter_map(|(key, held)| Some((Some(key.clone()), held.keeper.trouble()?)));
        of_takes
            .into_iter()
            .chain(of_leases)
            .filter(|(_, trouble)| trouble.is_shown())
            .collect()
    }

    fn is_row_in_trouble(&self, key: &LeaseKey) -> bool {
        self.held
            .get(key)
            .is_some_and(|held| held.keeper.trouble().is_some())
    }

    fn show_write_trouble(&self, troubles: &[(Option<LeaseKey>, WriteTrouble)]) {
        let longest = troubles.iter().min_by_key(|(_, trouble)| trouble.since);
        let reason = longest
            .map(|(_, trouble)| &trouble.reason)
            .or_else(|| self.writes.unreleased.values().next());
        let reason = reason.cloned();
        self.cannot_write.send_if_modified(|told| {
            let is_news = *told != reason;
            told.clone_from(&reason);
            is_news
        });
        self.status.update(|status| status.cannot_write = reason);
    }

    fn leave_unreleased(&self, can_others_write: bool) -> Result<(), WorkerError> {
        match self.writes.unreleased.values().next() {
            Some(reason) if can_others_write => Err(self.cannot_write(reason.clone())),
            Some(_) | None => Ok(()),
        }
    }

    fn cannot_write(&self, reason: String) -> WorkerError {
        WorkerError::CannotWrite {
            application: self.options.application.clone(),
            reason,
        }
    }

    /// Leases that others have, or this host again, are no trouble any more.
    fn forget_released(&mut self) {
        let Self {
            writes,
            observed,
            held,
            options,
            ..
        } = self;
        let Some((listing, _)) = &observed.listing else {
            return;
        };
        writes.unreleased.retain(|key, _| {
            let row = listing.leases.iter().find(|lease| lease.key == *key);
            !held.contains_key(key)
                && row.is_some_and(|row| row.owner.as_ref() == Some(&options.worker))
        });
    }

    /// Whether lease rows can be written, by writes whose condition no row meets: a host that
    /// cannot would only be counted in shares that it cannot take.
    pub(super) async fn check_writes(&self) -> Result<(), StoreError> {
        let key = LeaseKey::new(NO_ROW).map_err(|error| StoreError::Refused {
            message: error.to_string(),
        })?;
        let token = LeaseToken {
            key,
            owner: self.options.worker.clone(),
            counter: LeaseCounter(0),
        };
        self.ports.store.renew(&token, &Progress::default()).await?;
        if self.options.keeps_state {
            let zero = SequenceNumber::parse("0").map_err(|error| StoreError::Refused {
                message: error.to_string(),
            })?;
            let position = Position::plain(zero);
            let write = CheckpointWrite {
                position,
                progress: Progress::default(),
                state: Some(bytes::Bytes::new()),
            };
            self.ports.store.checkpoint(&token, &write).await?;
        }
        Ok(())
    }
}
