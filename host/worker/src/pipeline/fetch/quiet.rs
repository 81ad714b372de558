//! A subscription that brings no records is not believed for ever: once a minute the shard is read
//! beside it.
//!
//! Its events may come without the records that are there, or never tell that a closed shard has
//! ended; then its children would wait for ever, and nothing would say so.

use std::time::Duration;

use shardmill_core::time::Moment;

use super::poller::Poller;
use super::{Over, Place, ShardReader};

/// How long no record may come before the shard is read beside its subscription, and how long until
/// it is read so again. A quiet shard then costs a call or two a minute, of the five a second that
/// it allows (AWS limit).
const QUIET_FOR: Duration = Duration::from_mins(1);
/// Replies read at once: far from the tip of a shard several may be empty.
const REPLIES_MAX: u32 = 5;
/// How long one may take: the subscription waits meanwhile.
const REPLY_TIMEOUT: Duration = Duration::from_secs(5);

/// Since when a subscription has brought no records.
pub(super) struct Quiet {
    since: Moment,
}

/// What a shard had beside its subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Beside {
    /// Nothing that the subscription should have brought, as far as this host can see.
    Nothing,
    /// Records, which are taken in.
    Records,
}

impl Quiet {
    pub(super) fn begins(now: Moment) -> Self {
        Self { since: now }
    }

    pub(super) fn ends(&mut self, now: Moment) {
        self.since = now;
    }

    /// Whether to read beside the subscription now. If so, not again for another minute.
    pub(super) fn is_over(&mut self, now: Moment) -> bool {
        let is_over = now.since(self.since) >= QUIET_FOR;
        if is_over {
            self.ends(now);
        }
        is_over
    }
}

impl ShardReader {
    /// Reads some replies, up to the first with records or the tip of the shard. An error is not
    /// worth a word: it is the subscription that the shard is read by, and the next look is a
    /// minute away.
    pub(super) async fn read_beside(
        &self,
        place: &mut Place,
        poller: &mut Poller,
    ) -> Result<Beside, Over> {
        for _ in 0..REPLIES_MAX {
            let answer = tokio::time::timeout(REPLY_TIMEOUT, self.ask(place, poller.pace())).await;
            let Ok(Ok((fetched, reservation))) = answer else {
                place.cursor.set_iterator(None);
                return Ok(Beside::Nothing);
            };
            let taken = self.take_in(place, fetched, reservation).await?;
            place.cursor.set_iterator(Some(taken.next));
            if taken.bytes > 0 {
                // The subscription's own place is before them.
                place.cursor.set_continuation(None);
                return Ok(Beside::Records);
            }
            if taken.is_idle {
                return Ok(Beside::Nothing);
            }
        }
        // The tip is still far away: the next look goes on from here.
        Ok(Beside::Nothing)
    }
}
