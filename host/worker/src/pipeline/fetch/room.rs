//! Waiting for room in the plugin's share of the host's buffer: told from what Kinesis does, and
//! shown as what it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::ShardReader;
use crate::budget::Reservation;
use crate::status::Why;

/// From here on a wait is shown: shorter ones are ordinary back-pressure.
const SHOWN_FROM: Duration = Duration::from_secs(5);

/// Whether a reader waits for its own host, and so cannot be blamed for hearing nothing. Cheap to
/// clone.
#[derive(Debug, Clone, Default)]
pub(in crate::pipeline) struct HeldUp {
    is_set: Arc<AtomicBool>,
}

/// As long as it lives, the reader is held up.
struct Wait<'a> {
    reader: &'a ShardReader,
    is_shown: bool,
}

impl HeldUp {
    pub(in crate::pipeline) fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }
}

impl ShardReader {
    /// Takes `bytes` of the plugin's share, and waits for them as long as it takes. Cancel-safe.
    pub(super) async fn room(&self, bytes: usize) -> Reservation {
        if let Some(reservation) = self.budget.try_reserve(bytes) {
            return reservation;
        }
        let mut wait = Wait::new(self);
        let mut reserved = std::pin::pin!(self.budget.reserve(bytes));
        tokio::select! {
            biased;
            reservation = &mut reserved => return reservation,
            () = tokio::time::sleep(SHOWN_FROM) => wait.show(),
        }
        reserved.await
    }

    fn show_wait(&self, why: Option<&str>) {
        let why = why.map(str::to_owned);
        self.status
            .update_shard(&self.shard, |status| status.waits_for.clone_from(&why));
        match &why {
            Some(why) => self.signs.report(Why::Buffer, 0, why),
            None => self.signs.clear(Why::Buffer),
        }
        // Kinesis' own words about the shard, if there are any, say more.
        self.trouble.send_if_modified(|told| {
            let is_news = *told != why && (told.is_none() || why.is_none());
            if is_news {
                told.clone_from(&why);
            }
            is_news
        });
    }
}

impl<'a> Wait<'a> {
    fn new(reader: &'a ShardReader) -> Self {
        reader.held_up.is_set.store(true, Ordering::Release);
        Self {
            reader,
            is_shown: false,
        }
    }

    fn show(&mut self) {
        let (held, guaranteed) = (
            self.reader.budget.held_bytes() >> 20,
            self.reader.budget.guaranteed_bytes() >> 20,
        );
        let why = format!(
            "waits for room in host.buffer: the plugin's shards hold {held} MiB of records that \
                are not settled, and {guaranteed} MiB are guaranteed to it"
        );
        tracing::info!(shard = %self.reader.shard, why, "reading waits");
        self.reader.show_wait(Some(&why));
        self.is_shown = true;
    }
}

impl Drop for Wait<'_> {
    /// From here on it is Kinesis that is waited for.
    fn drop(&mut self) {
        self.reader.heard_at.send_replace(self.reader.clock.now());
        self.reader.held_up.is_set.store(false, Ordering::Release);
        if self.is_shown {
            self.reader.show_wait(None);
        }
    }
}
