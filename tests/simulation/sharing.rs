//! What the plugins of one process share: the budget for fetched bytes, and the reads of each
//! stream. As the product's assembly has it, also with one plugin.

use std::sync::Arc;

use shardmill_core::ports::{Clock, StreamReader};
use shardmill_worker::{ByteBudget, ByteShare, RingBudget, SharedStream, WorkerOptions};

use crate::bugs::{Mixed, PortBug, WrongSharing};
use crate::world::World;

/// What one process has once for all of its plugins.
pub(crate) struct Sharing {
    budget: ByteBudget,
    ring: RingBudget,
    /// The streams that are read, by their numbers.
    streams: Vec<(usize, SharedStream)>,
    /// What plugins have in common that have nothing to share, if a bug has it so.
    pub(crate) mixed: Mixed,
    bug: Option<PortBug>,
}

impl Sharing {
    pub(crate) fn new(budget_bytes: usize, bug: Option<PortBug>) -> Self {
        let budget = ByteBudget::new(budget_bytes).expect("large enough");
        Self {
            ring: RingBudget::of(&budget, budget_bytes),
            budget,
            streams: Vec::new(),
            mixed: Mixed::default(),
            bug,
        }
    }

    /// One more plugin's share of the budget.
    pub(crate) fn share(&mut self) -> ByteShare {
        let share = || self.budget.share().expect("room for it");
        if self.bug == Some(PortBug::OneShareForAll) {
            return self.mixed.share.get_or_insert_with(share).clone();
        }
        share()
    }

    /// One more plugin's reader of its stream, which `read` reads.
    pub(crate) fn reader(
        &mut self,
        world: &World,
        clock: Arc<dyn Clock>,
        options: &WorkerOptions,
        read: Arc<dyn StreamReader>,
    ) -> Arc<dyn StreamReader> {
        let stream = match self.bug {
            Some(PortBug::OneStreamForAll) => 0,
            _ => world.plan.stream,
        };
        let known = self.streams.iter().find(|(number, _)| *number == stream);
        let reader = if let Some((_, shared)) = known {
            shared.reader()
        } else {
            let name = (&options.stream).into();
            let shared = SharedStream::new(&name, read, clock, options.reads, self.ring.clone());
            let reader = shared.reader();
            self.streams.push((stream, shared));
            reader
        };
        match self.bug {
            Some(bug) => Arc::new(WrongSharing::new(
                Arc::new(reader),
                bug,
                &world.plan,
                Arc::clone(&self.mixed.reads),
            )),
            None => Arc::new(reader),
        }
    }
}
