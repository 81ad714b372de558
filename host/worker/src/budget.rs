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

    /// Takes over what `other` holds.
    pub fn absorb(&mut self, other: Self) {
        self.permit.merge(other.permit);
    }
}
