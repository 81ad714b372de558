//! One byte budget for everything a host has fetched and not yet settled, of which each plugin has
//! its own share.

use shardmill_core::ports::REPLY_BYTES_MAX;
use shardmill_core::shares::Membership;
use shardmill_core::shares::pool::{Member, Pool, Taken};

/// Counted in KiB, so that no sum of them overflows.
const UNIT_BYTES: usize = 1 << 10;

/// A bound on fetched bytes, shared by all plugins of a host. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ByteBudget {
    pool: Pool,
    bytes: usize,
}

/// One plugin's share of it, for all of its shards on all of its streams. Cheap to clone; it lasts
/// until the last clone is dropped.
#[derive(Debug, Clone)]
pub struct ByteShare {
    member: Member,
}

/// Bytes taken from a share; given back when dropped.
#[derive(Debug)]
pub struct Reservation {
    taken: Taken,
}

/// The budget is too small for one more plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "host.buffer of {} MiB is too small for plugin {plugins} of this host: each needs room for \
        one reply of GetRecords, which may hold {} MiB; make it at least {} MiB, or run fewer \
        plugins on a host{}",
    bytes >> 20, REPLY_BYTES_MAX >> 20, (plugins * REPLY_BYTES_MAX) >> 20, kept_for(*others)
)]
pub struct TooManyPlugins {
    bytes: usize,
    /// The number of plugins, including the one that is refused.
    plugins: usize,
    /// Those for which room is kept.
    others: usize,
}

fn kept_for(others: usize) -> String {
    if others == 0 {
        return String::new();
    }
    format!(
        "; room is kept for {others} that have a section in the configuration, files in the \
            folder, and do not run yet"
    )
}

impl ByteBudget {
    /// A budget of `bytes`; `None` below twice the largest reply (20 MiB), which could stall a
    /// shard for good.
    ///
    /// A plugin is guaranteed two of the largest replies (one in hand, one on its way), or its part
    /// of half the budget if that is more; if there are too many plugins for that, its part of all.
    /// What is beyond the guarantees is lent.
    pub fn new(bytes: usize) -> Option<Self> {
        let is_enough = bytes >= 2 * REPLY_BYTES_MAX;
        is_enough.then(|| Self {
            pool: Pool::new(bytes / UNIT_BYTES, 2 * REPLY_BYTES_MAX / UNIT_BYTES),
            bytes,
        })
    }

    /// A share for one more plugin; refused if that could not take in a reply then.
    pub fn share(&self) -> Result<ByteShare, TooManyPlugins> {
        self.share_leaving(0)
    }

    /// The same, if so many others could have one after it.
    pub fn share_leaving(&self, others: usize) -> Result<ByteShare, TooManyPlugins> {
        match self.pool.join_leaving(REPLY_BYTES_MAX / UNIT_BYTES, others) {
            Ok(member) => Ok(ByteShare { member }),
            Err(_) => Err(TooManyPlugins {
                bytes: self.bytes,
                plugins: self.bytes / REPLY_BYTES_MAX + 1,
                others,
            }),
        }
    }

    /// Bytes that all plugins hold.
    pub fn held_bytes(&self) -> usize {
        self.pool.held() * UNIT_BYTES
    }

    /// A share that only borrows: for what plugins can do without.
    pub(crate) fn borrowing(&self) -> ByteShare {
        ByteShare {
            member: self.pool.join(Membership::BorrowsOnly),
        }
    }
}

impl ByteShare {
    /// Waits until `bytes` are free for this plugin, in order of asking. Cancel-safe.
    pub async fn reserve(&self, bytes: usize) -> Reservation {
        Reservation {
            taken: self.member.take(bytes.div_ceil(UNIT_BYTES)).await,
        }
    }

    /// Takes `bytes` if they are free and no other request waits for them.
    pub(crate) fn try_reserve(&self, bytes: usize) -> Option<Reservation> {
        self.member
            .try_take(bytes.div_ceil(UNIT_BYTES))
            .map(|taken| Reservation { taken })
    }

    /// Bytes that the plugin holds.
    pub fn held_bytes(&self) -> usize {
        self.member.held() * UNIT_BYTES
    }

    /// Whether the plugin may always hold one reply and read the next. If not, a record that waits
    /// to be tried again can keep its shard from reading on, other keys included.
    pub fn can_always_read_ahead(&self) -> bool {
        self.guaranteed_bytes() >= 2 * REPLY_BYTES_MAX
    }

    /// Bytes that it may always have.
    pub fn guaranteed_bytes(&self) -> usize {
        self.member.guarantee() * UNIT_BYTES
    }
}

impl Reservation {
    /// Gives back all but `bytes`.
    pub(crate) fn shrink_to(&mut self, bytes: usize) {
        let excess = self
            .taken
            .units()
            .saturating_sub(bytes.div_ceil(UNIT_BYTES));
        self.taken.give_back(excess);
    }

    /// Gives back what is not needed for `bytes`, or takes what is missing as far as it is free.
    /// Never waits: if several hold some and wait for more, none of them might ever get it.
    pub(crate) fn fit_to(&mut self, bytes: usize) {
        let missing = bytes
            .div_ceil(UNIT_BYTES)
            .saturating_sub(self.taken.units());
        if missing == 0 {
            return self.shrink_to(bytes);
        }
        self.taken.grow_up_to(missing);
    }

    /// Parts with what `bytes` need, as far as that is there.
    #[must_use]
    pub fn split(&mut self, bytes: usize) -> Self {
        Self {
            taken: self.taken.split(bytes.div_ceil(UNIT_BYTES)),
        }
    }

    /// Takes over what `other` holds, of the same plugin.
    pub(crate) fn absorb(&mut self, other: Self) {
        self.taken.merge(other.taken);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn bytes(reservation: &Reservation) -> usize {
        reservation.taken.units() * UNIT_BYTES
    }

    #[tokio::test]
    async fn a_reservation_grows_by_what_is_free_and_never_waits() {
        let share = ByteBudget::new(20 * MIB)
            .expect("large enough")
            .share()
            .expect("the first");
        let mut first = share.reserve(4 * MIB).await;
        let _second = share.reserve(10 * MIB).await;
        first.fit_to(6 * MIB);
        assert_eq!(bytes(&first), 6 * MIB);
        first.fit_to(30 * MIB);
        assert_eq!(bytes(&first), 10 * MIB, "all that was free");
        first.fit_to(MIB);
        assert_eq!(bytes(&first), MIB);
    }

    #[tokio::test]
    async fn a_plugin_that_takes_all_it_can_leaves_another_two_replies() {
        let budget = ByteBudget::new(256 * MIB).expect("large enough");
        let shares: Vec<_> = (0..12)
            .map(|_| budget.share().expect("room for it"))
            .collect();
        let mut greedy = Vec::new();
        while let Some(reservation) = shares[0].try_reserve(MIB) {
            greedy.push(reservation);
        }
        for share in &shares[1..] {
            assert!(share.can_always_read_ahead());
            let _ = (
                share.reserve(REPLY_BYTES_MAX).await,
                share.reserve(REPLY_BYTES_MAX).await,
            );
        }
    }

    #[tokio::test]
    async fn a_plugin_that_could_not_take_in_a_reply_is_refused_and_told_what_to_raise() {
        let budget = ByteBudget::new(256 * MIB).expect("large enough");
        let mut shares: Vec<_> = (0..25)
            .map(|_| budget.share().expect("room for it"))
            .collect();
        assert!(
            !shares[0].can_always_read_ahead(),
            "room for one reply each"
        );
        let error = budget.share().expect_err("one too many").to_string();
        assert!(
            error.contains("host.buffer of 256 MiB") && error.contains("at least 260 MiB"),
            "{error}"
        );
        shares.pop();
        let error = budget
            .share_leaving(1)
            .expect_err("the last is another's")
            .to_string();
        assert!(error.contains("room is kept for 1"), "{error}");
        let _last = budget.share().expect("one has gone");
        assert!(budget.share().is_err(), "it is taken now");
    }
}
