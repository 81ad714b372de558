//! One budget of linear memory for all instances of a host, so that many shards together cannot
//! exhaust the host's memory. Each plugin has a share of it that no other can take.
//!
//! ```text
//!   admit ──(waits in turn)──> share ──(grows, or is denied: the instance dies and gives all back)──> dropped
//! ```
//!
//! No instance waits while it holds memory, with one exception: a swap waits up to two seconds for
//! the old version. An instance that is denied memory is dropped, and the next one for its shard
//! reserves everything it needs before it starts. So instances with memory finish, and waiting ones
//! are served in turn. Meanwhile instances between batches are asked to make room.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use metrics::Gauge;
use shardmill_core::plugin::ProcessorError;
use shardmill_core::shares::Membership;
use shardmill_core::shares::pool::{Member, Pool, Taken};
use tokio::sync::watch;

use crate::metrics as names;

/// Memory is counted in pages, as WebAssembly grows it.
const PAGE_BYTES: usize = 64 << 10;
/// How long a new instance waits before its shard is shown as blocked and tries again after a
/// while.
const WAIT_MAX: Duration = Duration::from_secs(2);

/// The budget. Cheap to clone.
#[derive(Clone)]
pub(crate) struct MemoryBudget {
    shared: Arc<Shared>,
}

/// One plugin's share of it. Cheap to clone; it lasts until the last clone is dropped.
#[derive(Clone)]
pub(crate) struct MemoryMember {
    budget: MemoryBudget,
    member: Member,
}

struct Shared {
    pool: Pool,
    demand: watch::Sender<Demand>,
    in_use: Gauge,
}

/// What is waited for, in pages.
#[derive(Debug, Clone, Copy, Default)]
struct Demand {
    /// What waiting instances lack.
    missing: usize,
    /// What others have promised to give back.
    promised: usize,
}

/// What the next instance for a shard will need, in bytes: what the last one had, or what it was
/// denied.
pub(crate) type Need = Arc<AtomicUsize>;

/// One instance's part; given back when dropped.
pub(crate) struct MemoryShare {
    plugin: MemoryMember,
    /// Pages taken out of the budget; more than are in use until the first call has shown what is
    /// needed.
    taken: Taken,
    used_bytes: usize,
    need: Need,
    is_denied: bool,
}

/// A part of an instance's part that is kept when the instance is gone; given back when dropped.
pub(crate) struct KeptMemory {
    budget: MemoryBudget,
    taken: Taken,
}

impl MemoryBudget {
    /// A budget of `bytes`, rounded up to a page. Half of it is guaranteed, in equal parts, even if
    /// these are small: on a small host with many plugins, one that needs a large instance must be
    /// able to borrow from the other half.
    pub(crate) fn new(bytes: usize) -> Self {
        let pages_max = pages(bytes).max(1);
        metrics::gauge!(names::MEMORY_LIMIT).set((pages_max * PAGE_BYTES) as f64);
        let shared = Shared {
            pool: Pool::new(pages_max, 0),
            demand: watch::channel(Demand::default()).0,
            in_use: metrics::gauge!(names::MEMORY),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Adds a plugin.
    pub(crate) fn join(&self) -> MemoryMember {
        MemoryMember {
            budget: self.clone(),
            member: self.shared.pool.join(Membership::Guaranteed),
        }
    }

    fn show(&self) {
        self.shared
            .in_use
            .set((self.shared.pool.held() * PAGE_BYTES) as f64);
    }
}

impl MemoryMember {
    /// Takes what the instance will need, waiting in turn for a short while. Cancel-safe.
    pub(crate) async fn admit(&self, need: Need) -> Result<MemoryShare, ProcessorError> {
        let wanted = pages(need.load(Ordering::Relaxed)).min(self.member.most());
        let missing = wanted.saturating_sub(self.member.free());
        let mut taking = std::pin::pin!(self.member.take(wanted));
        let at_once = tokio::select! {
            biased;
            taken = &mut taking => Some(taken),
            () = std::future::ready(()) => None,
        };
        let taken = if let Some(taken) = at_once {
            taken
        } else {
            // Asks only now that it is in the queue, where the others look for it.
            let _asked = Asked::new(&self.budget.shared, missing.max(1));
            tokio::time::timeout(WAIT_MAX, taking)
                .await
                .map_err(|_elapsed| self.denial())?
        };
        self.budget.show();
        Ok(MemoryShare {
            plugin: self.clone(),
            taken,
            used_bytes: 0,
            need,
            is_denied: false,
        })
    }

    /// The failure of a guest that this budget denied memory.
    pub(crate) fn denial(&self) -> ProcessorError {
        ProcessorError::HostMemory {
            limit: (self.member.most() * PAGE_BYTES) as u64,
        }
    }

    /// Ready when an instance waits for memory that is not promised yet and that this plugin should
    /// give: an instance of the plugin itself, or any if the plugin has more than its share.
    pub(crate) async fn is_short(&self) {
        let mut demand = self.budget.shared.demand.subscribe();
        // Only a dropped sender fails, and this value holds it.
        let _ = demand
            .wait_for(|demand| demand.is_open() && self.member.is_asked_for())
            .await;
    }
}

impl Demand {
    fn is_open(&self) -> bool {
        self.promised < self.missing
    }
}

/// An instance that waits; withdrawn when dropped.
struct Asked<'a> {
    shared: &'a Shared,
    pages: usize,
}

impl<'a> Asked<'a> {
    fn new(shared: &'a Shared, pages: usize) -> Self {
        if pages > 0 {
            shared.demand.send_modify(|demand| demand.missing += pages);
        }
        Self { shared, pages }
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        if self.pages > 0 {
            // The promises were made to it.
            self.shared.demand.send_modify(|demand| {
                demand.missing = demand.missing.saturating_sub(self.pages);
                demand.promised = demand.promised.saturating_sub(self.pages);
            });
        }
    }
}

impl MemoryShare {
    /// Takes more. If there is none, the instance is lost, and the next one gets twice as much from
    /// the start: guests grow in small steps, and failing once at each step would take forever.
    /// `bytes_max` is the instance's own limit.
    pub(crate) fn grow(&mut self, more: usize, bytes_max: usize) -> bool {
        let used = self.used_bytes.saturating_add(more);
        let missing = pages(used).saturating_sub(self.taken.units());
        if missing > 0 {
            if !self.taken.grow(missing) {
                self.is_denied = true;
                self.need.store(
                    used.max(self.used_bytes.saturating_mul(2)).min(bytes_max),
                    Ordering::Relaxed,
                );
                return false;
            }
            self.plugin.budget.show();
        }
        self.used_bytes = used;
        true
    }

    /// A growth that was granted did not happen.
    pub(crate) fn undo(&mut self, bytes: usize) {
        self.used_bytes = self.used_bytes.saturating_sub(bytes);
    }

    /// A call has shown what is needed: gives back the rest.
    pub(crate) fn settle(&mut self) {
        let excess = self.taken.units().saturating_sub(pages(self.used_bytes));
        if excess > 0 {
            self.taken.give_back(excess);
            self.plugin.budget.show();
        }
    }

    /// Parts with what so many of its bytes take, before it is dropped.
    pub(crate) fn part_with(&mut self, bytes: usize) -> KeptMemory {
        KeptMemory {
            budget: self.plugin.budget.clone(),
            taken: self.taken.split(pages(bytes)),
        }
    }

    pub(crate) fn used_bytes(&self) -> usize {
        self.used_bytes
    }

    /// The failure of the guest, if the budget denied it anything.
    pub(crate) fn denial(&self) -> ProcessorError {
        self.plugin.denial()
    }

    /// A new call begins.
    pub(crate) fn forget_denial(&mut self) {
        self.is_denied = false;
    }

    /// Whether the budget denied it anything since.
    pub(crate) fn is_denied(&self) -> bool {
        self.is_denied
    }

    /// Promises to give back what it holds, if somebody needs it.
    pub(crate) fn promise(&self) -> bool {
        let pages = self.taken.units();
        let is_asked_for = self.plugin.member.is_asked_for();
        self.plugin.budget.shared.demand.send_if_modified(|demand| {
            let is_open = demand.is_open() && is_asked_for;
            if is_open {
                demand.promised += pages;
            }
            is_open
        })
    }
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        if !self.is_denied {
            self.need.store(self.used_bytes, Ordering::Relaxed);
        }
        self.taken.give_back(self.taken.units());
        self.plugin.budget.show();
    }
}

impl Drop for KeptMemory {
    fn drop(&mut self) {
        self.taken.give_back(self.taken.units());
        self.budget.show();
    }
}

fn pages(bytes: usize) -> usize {
    bytes.div_ceil(PAGE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn need(bytes: usize) -> Need {
        Arc::new(AtomicUsize::new(bytes))
    }

    /// Of a budget of 10 MiB.
    fn free(budget: &MemoryBudget) -> usize {
        10 * MIB - budget.shared.pool.held() * PAGE_BYTES
    }

    #[tokio::test(start_paused = true)]
    async fn what_instances_hold_together_stays_within_the_budget_and_comes_back() {
        let budget = MemoryBudget::new(10 * MIB);
        let plugin = budget.join();
        let (one, two) = (need(0), need(0));
        let mut first = plugin.admit(Arc::clone(&one)).await.unwrap();
        let mut second = plugin.admit(Arc::clone(&two)).await.unwrap();
        assert!(first.grow(6 * MIB, 64 * MIB));
        assert!(second.grow(3 * MIB, 64 * MIB));
        assert!(!second.grow(2 * MIB, 64 * MIB), "one is left");
        assert!(second.is_denied() && !first.is_denied());
        drop(second);
        assert_eq!(free(&budget), 4 * MIB);
        assert_eq!(
            two.load(Ordering::Relaxed),
            6 * MIB,
            "the next one gets twice as much"
        );
        drop(first);
        assert_eq!(
            (free(&budget), one.load(Ordering::Relaxed)),
            (10 * MIB, 6 * MIB)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn who_needs_more_waits_in_turn_and_others_are_asked_for_just_so_much() {
        let budget = MemoryBudget::new(10 * MIB);
        let plugin = budget.join();
        let mut idle = Vec::new();
        for _ in 0..5 {
            let mut share = plugin.admit(need(0)).await.unwrap();
            assert!(share.grow(2 * MIB, 64 * MIB));
            idle.push(share);
        }
        assert!(!idle[0].promise(), "nobody waits");
        let waiting = {
            let plugin = plugin.clone();
            async move { plugin.admit(need(3 * MIB)).await }
        };
        let give = async {
            plugin.is_short().await;
            let promised = idle.iter().map(MemoryShare::promise).collect::<Vec<_>>();
            assert_eq!(
                promised,
                [true, true, false, false, false],
                "two of them are enough"
            );
            idle.drain(..2).for_each(drop);
        };
        let (admitted, ()) = tokio::join!(waiting, give);
        let mut share = admitted.unwrap();
        assert!(!idle[0].promise(), "what was waited for is there");
        assert_eq!(free(&budget), MIB);
        assert!(share.grow(MIB, 64 * MIB));
        share.settle();
        assert_eq!(free(&budget), 3 * MIB, "what it did not need");
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_too_long_is_told_of_the_budget_and_holds_up_nobody() {
        let plugin = MemoryBudget::new(4 * MIB).join();
        let mut holder = plugin.admit(need(0)).await.unwrap();
        assert!(holder.grow(3 * MIB, 64 * MIB));
        let error = plugin.admit(need(100 * MIB)).await.err().unwrap();
        assert_eq!(error, ProcessorError::HostMemory { limit: 4 << 20 });
        assert!(
            error.to_string().contains("host.instances-memory"),
            "{error}"
        );
        assert!(
            holder.grow(MIB, 64 * MIB),
            "what it waited for is free for others"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn what_one_plugin_hoards_denies_another_none_of_its_share() {
        let budget = MemoryBudget::new(16 * MIB);
        let (hoarder, other) = (budget.join(), budget.join());
        let mut hoards = Vec::new();
        while let Ok(share) = hoarder.admit(need(MIB)).await {
            hoards.push(share);
        }
        assert!(!hoards[0].grow(2 * MIB, 64 * MIB));
        let mut first = other.admit(need(MIB)).await.unwrap();
        assert!(
            first.grow(4 * MIB, 64 * MIB),
            "a quarter is guaranteed to each of two"
        );
        let waiting = hoarder.admit(need(MIB));
        let asked = async {
            hoarder.is_short().await;
            let is_other_asked = tokio::time::timeout(WAIT_MAX / 2, other.is_short())
                .await
                .is_ok();
            (first.promise(), is_other_asked)
        };
        let (denied, asked) = tokio::join!(waiting, asked);
        assert!(denied.is_err());
        assert_eq!(
            asked,
            (false, false),
            "it gives no room for what another hoards"
        );
    }
}
