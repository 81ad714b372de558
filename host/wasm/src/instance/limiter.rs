//! Memory and tables of one instance, summed over all of its modules. What it denies it remembers,
//! because the guest sees only a failed allocation and traps for another reason.

use shardmill_core::plugin::{GuestLimits, ProcessorError};
use wasmtime::ResourceLimiter;

use crate::output::PIECE_BYTES;
use crate::shares::memory_budget::{KeptMemory, MemoryShare};

/// Core instances in one component. Rust has four, CPython with its libraries about thirty.
pub(crate) const INSTANCES_MAX: usize = 64;
/// Linear memories. One is normal; composed components have one each.
pub(crate) const MEMORIES_MAX: usize = 8;
/// Tables. Two are normal; libraries linked at run time share one. Their elements are limited too.
pub(crate) const TABLES_MAX: usize = 32;

/// Bytes that the host keeps behind an instance's handles, beside the requests that it may have on
/// their way: some hundreds of responses.
pub(crate) const HANDLES_BYTES_MAX: usize = 32 << 20;

/// Bytes of a table's element.
const ELEMENT_BYTES: usize = 8;

/// Counts what an instance holds.
pub(crate) struct GuestLimiter {
    memory: Allowance,
    /// Its part of what all instances of the host may have. Memories, tables and what the engine
    /// keeps beside them are taken of it.
    share: MemoryShare,
    /// All that it may take of it, in bytes.
    share_max: usize,
    /// Bytes of it for what the last call emitted.
    output: usize,
    is_output_denied: bool,
    /// Bytes of it for what is kept behind handles.
    handles: usize,
    table: Allowance,
    denied: Option<(&'static str, usize)>,
}

#[derive(Debug)]
struct Allowance {
    what: &'static str,
    used: usize,
    /// What the last growth added, to be given back if it fails after all.
    last: usize,
    max: usize,
}

impl GuestLimiter {
    /// `instance_bytes` are what the engine keeps of the instance beside its memories and tables.
    pub(crate) fn new(
        limits: &GuestLimits,
        mut share: MemoryShare,
        instance_bytes: usize,
    ) -> Result<Self, ProcessorError> {
        let tables_max = limits.table_elements.saturating_mul(ELEMENT_BYTES);
        let output_max = limits
            .emit_bytes
            .saturating_add(limits.emit_count.saturating_mul(PIECE_BYTES));
        let parts = [
            limits.memory_bytes,
            tables_max,
            output_max,
            HANDLES_BYTES_MAX,
            instance_bytes,
        ];
        let share_max = parts.into_iter().fold(0, usize::saturating_add);
        if !share.grow(instance_bytes, share_max) {
            return Err(share.denial());
        }
        Ok(Self {
            share,
            share_max,
            output: 0,
            is_output_denied: false,
            handles: 0,
            memory: Allowance {
                what: "memory bytes",
                used: 0,
                last: 0,
                max: limits.memory_bytes,
            },
            table: Allowance {
                what: "table elements",
                used: 0,
                last: 0,
                max: limits.table_elements,
            },
            denied: None,
        })
    }

    /// Forgets what was denied: a guest that lives with a failed allocation is doing well.
    pub(crate) fn forget_denial(&mut self) {
        self.denied = None;
        self.is_output_denied = false;
        self.share.forget_denial();
    }

    /// Takes what the host needs to keep a piece of output until it is stored.
    pub(crate) fn hold_output(&mut self, bytes: usize) -> bool {
        let is_granted = self.share.grow(bytes, self.share_max);
        if is_granted {
            self.output += bytes;
        } else {
            self.is_output_denied = true;
        }
        is_granted
    }

    /// Gives back what the last call's output took.
    pub(crate) fn release_output(&mut self) {
        self.share.undo(std::mem::take(&mut self.output));
    }

    /// Parts with what the last call's output takes, which is kept for longer than the instance.
    pub(crate) fn part_with_output(&mut self) -> KeptMemory {
        self.share.part_with(self.output)
    }

    /// Takes what the host keeps behind the instance's handles, which is `bytes` in all, of
    /// `bytes_max`.
    pub(crate) fn hold_handles(&mut self, bytes: usize, bytes_max: usize) -> bool {
        if bytes > bytes_max {
            self.denied = Some(("bytes kept behind handles", bytes_max));
            return false;
        }
        self.share.undo(self.handles.saturating_sub(bytes));
        let is_granted = self
            .share
            .grow(bytes.saturating_sub(self.handles), self.share_max);
        if is_granted {
            self.handles = bytes;
        }
        is_granted
    }

    /// Whether output was denied since the call began.
    pub(crate) fn is_output_denied(&self) -> bool {
        self.is_output_denied
    }

    /// What all instances of the host share.
    pub(crate) fn share(&self) -> &MemoryShare {
        &self.share
    }

    /// The same, to be changed.
    pub(crate) fn share_mut(&mut self) -> &mut MemoryShare {
        &mut self.share
    }

    /// Linear memory held, in bytes. It never shrinks.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.memory.used
    }

    /// The last denial by the instance's own limit, as an error.
    pub(crate) fn denial(&self) -> Option<ProcessorError> {
        self.denied
            .map(|(what, limit)| ProcessorError::LimitExceeded {
                what,
                limit: limit as u64,
            })
    }
}

impl Allowance {
    fn grow(&mut self, current: usize, desired: usize) -> bool {
        let more = desired.saturating_sub(current);
        let fits = self.used.saturating_add(more) <= self.max;
        if fits {
            self.used += more;
            self.last = more;
        }
        fits
    }

    /// Gives back what the last growth took, and says how much that was.
    fn undo(&mut self) -> usize {
        let last = std::mem::take(&mut self.last);
        self.used -= last;
        last
    }
}

impl ResourceLimiter for GuestLimiter {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        if !self.memory.grow(current, desired) {
            self.denied = Some((self.memory.what, self.memory.max));
            return Ok(false);
        }
        let is_granted = self.share.grow(self.memory.last, self.share_max);
        if !is_granted {
            self.memory.undo();
        }
        Ok(is_granted)
    }

    fn memory_grow_failed(&mut self, _error: wasmtime::Error) -> wasmtime::Result<()> {
        let bytes = self.memory.undo();
        self.share.undo(bytes);
        Ok(())
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        if !self.table.grow(current, desired) {
            self.denied = Some((self.table.what, self.table.max));
            return Ok(false);
        }
        let is_granted = self.share.grow(
            self.table.last.saturating_mul(ELEMENT_BYTES),
            self.share_max,
        );
        if !is_granted {
            self.table.undo();
        }
        Ok(is_granted)
    }

    fn table_grow_failed(&mut self, _error: wasmtime::Error) -> wasmtime::Result<()> {
        let elements = self.table.undo();
        self.share.undo(elements.saturating_mul(ELEMENT_BYTES));
        Ok(())
    }

    fn instances(&self) -> usize {
        INSTANCES_MAX
    }

    fn tables(&self) -> usize {
        TABLES_MAX
    }

    fn memories(&self) -> usize {
        MEMORIES_MAX
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::shares::memory_budget::MemoryBudget;

    #[tokio::test]
    async fn memories_share_one_limit_and_a_failed_growth_is_given_back() {
        let limits = GuestLimits {
            memory_bytes: 100,
            ..GuestLimits::default()
        };
        let share = MemoryBudget::new(1 << 20)
            .join()
            .admit(Arc::default())
            .await
            .unwrap();
        let mut limiter = GuestLimiter::new(&limits, share, 7).unwrap();
        assert!(limiter.memory_growing(0, 60, None).unwrap());
        assert!(!limiter.memory_growing(0, 41, None).unwrap());
        assert_eq!(
            limiter.denial(),
            Some(ProcessorError::LimitExceeded {
                what: "memory bytes",
                limit: 100
            })
        );
        assert!(limiter.memory_growing(60, 100, None).unwrap());
        // A refusal of ours is reported back as a failed growth; only a granted one is undone, and
        // once.
        limiter
            .memory_grow_failed(wasmtime::Error::msg("out of memory"))
            .unwrap();
        assert_eq!(
            (limiter.memory_bytes(), limiter.share.used_bytes()),
            (60, 67)
        );
        // Tables have a limit of their own, and are of the same budget.
        assert!(limiter.table_growing(0, 10, None).unwrap());
        assert_eq!(limiter.share.used_bytes(), 67 + 10 * ELEMENT_BYTES);
        limiter
            .table_grow_failed(wasmtime::Error::msg("out of memory"))
            .unwrap();
        assert_eq!(limiter.share.used_bytes(), 67);
        // So is output, until the next call.
        assert!(limiter.hold_output(20) && limiter.hold_output(3));
        assert_eq!(limiter.share.used_bytes(), 90);
        limiter.release_output();
        assert_eq!(
            (limiter.share.used_bytes(), limiter.is_output_denied()),
            (67, false)
        );
        assert!(!limiter.hold_output(2 << 20) && limiter.is_output_denied());
    }
}
