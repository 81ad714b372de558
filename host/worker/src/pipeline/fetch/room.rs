//! Waiting for room in the plugin's share of the host's buffer: told from what Kinesis does, and
//! shown as what it is.

use std::time::Duration;

use super::ShardReader;
use crate::budget::Reservation;
use crate::status::Why;

/// From here on a wait is shown: shorter ones are ordinary back-pressure.
const SHOWN_FROM: Duration = Duration::from_secs(5);

/// As long as it lives, the reader is held up.
struct Wait<'a> {
    reader: &'a ShardReader,
    is_shown: bool,
}

impl ShardReader {
    /// Takes `bytes` of the plugin's share, and waits for them as long as it takes. Cancel-safe.
    pub(super) async fn room(&self, bytes: usize) -> Reservation {
        if let Some(reservation) = self.context.ports().budget.try_reserve(bytes) {
            return reservation;
        }
        let mut wait = Wait::new(self);
        let mut reserved = std::pin::pin!(self.context.ports().budget.reserve(bytes));
        tokio::select! {
            biased;
            reservation = &mut reserved => return reservation,
            () = tokio::time::sleep(SHOWN_FROM) => wait.show(),
        }
        reserved.await
    }

    fn show_wait(&self, why: Option<String>) {
        self.context
            .update_status(|status| status.waits_for.clone_from(&why));
        match &why {
            Some(why) => self.context.signs().report(Why::Buffer, 0, why),
            None => self.context.signs().clear(Why::Buffer),
        }
        self.word.set_wait(why);
    }
}

impl<'a> Wait<'a> {
    fn new(reader: &'a ShardReader) -> Self {
        reader.word.set_held_up(true);
        Self {
            reader,
            is_shown: false,
        }
    }

    fn show(&mut self) {
        let context = &self.reader.context;
        let budget = &context.ports().budget;
        let (held, guaranteed) = (budget.held_bytes() >> 20, budget.guaranteed_bytes() >> 20);
        let why = format!(
            "waits for room in host.buffer: the plugin's shards hold {held} MiB of records that \
                are not settled, and {guaranteed} MiB are guaranteed to it"
        );
        tracing::info!(shard = %context.shard(), why, "reading waits");
        self.reader.show_wait(Some(why));
        self.is_shown = true;
    }
}

impl Drop for Wait<'_> {
    /// From here on it is Kinesis that is waited for.
    fn drop(&mut self) {
        let word = &self.reader.word;
        word.heard(self.reader.context.now());
        word.set_held_up(false);
        if self.is_shown {
            self.reader.show_wait(None);
        }
    }
}
