//! One byte budget for everything a host has fetched and not yet settled.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes a `GetRecords` reply may hold (AWS limit: 10 MB); reserved before the call, since nobody knows before.
pub(crate) const REPLY_BYTES_MAX: usize = 10 << 20;

/// Permits are counted in KiB, so that a budget of terabytes fits a semaphore.
const UNIT_BYTES: usize = 1 << 10;

/// A bound on fetched bytes, shared by all shards of all plugins of a host. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ByteBudget {
    units: Arc<Semaphore>,
}

/// Bytes taken from the budget; given back when dropped.
#[derive(Debug)]
pub struct Reservation {
    permit: OwnedSemaphorePermit,
}

impl ByteBudget {
    /// A budget of `bytes`; `None` below twice the largest reply (20 MiB), which could stall a shard for good.
    pub fn new(bytes: usize) -> Option<Self> {
        let is_enough = bytes >= 2 * REPLY_BYTES_MAX;
        is_enough.then(|| Self { units: Arc::new(Semaphore::new((bytes / UNIT_BYTES).min(Semaphore::MAX_PERMITS))) })
    }

    /// Waits until `bytes` are free, in order of asking. Cancel-safe.
    pub async fn reserve(&self, bytes: usize) -> Reservation {
        let units = u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX);
        match Arc::clone(&self.units).acquire_many_owned(units).await {
            Ok(permit) => Reservation { permit },
            // Only a closed semaphore refuses, and this one never closes.
            Err(_) => std::future::pending().await,
        }
    }

    /// Takes `bytes` if they are free and nobody waits for them.
    pub fn try_reserve(&self, bytes: usize) -> Option<Reservation> {
        let units = u32::try_from(bytes.div_ceil(UNIT_BYTES)).ok()?;
        Arc::clone(&self.units).try_acquire_many_owned(units).ok().map(|permit| Reservation { permit })
    }
}

impl Reservation {
    /// Gives back all but `bytes`.
    pub fn shrink_to(&mut self, bytes: usize) {
        let keep = bytes.div_ceil(UNIT_BYTES);
        let excess = self.permit.num_permits().saturating_sub(keep);
        drop(self.permit.split(excess));
    }

    /// Gives back what is not needed for `bytes`, or takes what is missing as far as it is free. Never waits: of those
    /// who hold some and wait for more, none might ever get it.
    pub fn fit_to(&mut self, bytes: usize) {
        let missing = bytes.div_ceil(UNIT_BYTES).saturating_sub(self.permit.num_permits());
        if missing == 0 {
            return self.shrink_to(bytes);
        }
        let semaphore = Arc::clone(self.permit.semaphore());
        let free = u32::try_from(missing.min(semaphore.available_permits())).unwrap_or(u32::MAX);
        if let Ok(permit) = semaphore.try_acquire_many_owned(free) {
            self.permit.merge(permit);
        }
    }

    /// Parts with what `bytes` need, as far as that is there.
    pub fn split(&mut self, bytes: usize) -> Option<Self> {
        let units = bytes.div_ceil(UNIT_BYTES).min(self.permit.num_permits());
        self.permit.split(units).map(|permit| Self { permit })
    }

    /// Takes over what `other` holds.
    pub fn absorb(&mut self, other: Self) {
        self.permit.merge(other.permit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn units(reservation: &Reservation) -> usize {
        reservation.permit.num_permits() * UNIT_BYTES
    }

    #[tokio::test]
    async fn a_reservation_grows_by_what_is_free_and_never_waits() {
        let budget = ByteBudget::new(20 * MIB).expect("large enough");
        let mut first = budget.reserve(4 * MIB).await;
        let _second = budget.reserve(10 * MIB).await;
        first.fit_to(6 * MIB);
        assert_eq!(units(&first), 6 * MIB);
        first.fit_to(30 * MIB);
        assert_eq!(units(&first), 10 * MIB, "all that was free");
        first.fit_to(MIB);
        assert_eq!(units(&first), MIB);
    }

    #[tokio::test]
    async fn a_reservation_is_split_and_nothing_of_it_is_lost() {
        let budget = ByteBudget::new(20 * MIB).expect("large enough");
        let mut whole = budget.reserve(10 * MIB).await;
        let part = whole.split(4 * MIB).expect("a part");
        assert_eq!((units(&whole), units(&part)), (6 * MIB, 4 * MIB));
        let rest = whole.split(100 * MIB).expect("a part");
        assert_eq!((units(&whole), units(&rest)), (0, 6 * MIB));
        drop((whole, part, rest));
        assert_eq!(budget.units.available_permits() * UNIT_BYTES, 20 * MIB);
    }
}
