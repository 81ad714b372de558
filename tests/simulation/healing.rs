//! The end of the faults: all of them, or all but one.

use std::sync::Arc;
use std::time::Duration;

use shardmill_core::pipeline::GiveUp;
use shardmill_invariants::history::What;

use crate::driver::{Driver, Slot};
use crate::refusal::{How, Refusal};
use crate::verdict;
use crate::weather::{Service, Weather};
use crate::world::World;

/// The number of the refusal that goes on.
const LASTING: u64 = u64::MAX;

impl Driver {
    /// Ends the faults, and starts what is down.
    pub(crate) async fn heal(&mut self) {
        *self.run.weather() = Weather::default();
        if self.schedule.is_calm() {
            self.note(&What::Calm(false));
        }
        let halts = |world: &Arc<World>| world.plan.options.failure.then == Some(GiveUp::Halt);
        if self.schedule.producer.failing_keys > 0 || self.worlds.iter().any(halts) {
            self.run.cure();
        }
        for world in &self.worlds {
            world.recover();
        }
        self.agenda.clear();
        self.take_commands_back();
        self.bury_replaced();
        while let Some(stopped) = self.stopping.join_next().await {
            stopped.expect("a host stops without a panic");
        }
        for slot in 0..self.slots.len() {
            self.restart(slot);
            self.resume(slot);
        }
        if self.schedule.loses_right {
            self.lose_right();
        } else {
            self.note(&What::Calm(true));
        }
        self.schedule.had_limits = self.schedule.max_leases.is_some();
        if self.schedule.had_limits {
            // What nobody may hold stays free, and what a host owns by name and may not hold does
            // not stay its own.
            tokio::time::sleep(verdict::retaken_within(&self.schedule) + Duration::from_secs(5))
                .await;
            self.schedule.max_leases = None;
        }
        // Somebody must be able to hold what the others may not.
        if self.schedule.had_limits || self.slots.iter().all(|slot| slot.host.is_none()) {
            self.add_host();
        }
        // As an operator would: a shard taken while a version was on offer that does not start is
        // blocked until then.
        for plugin in 0..self.worlds.len() {
            self.offer_good(plugin);
        }
        for _ in 0..3 {
            self.put().await;
        }
    }

    /// One of several hosts may not write lease rows until all is settled without it.
    fn lose_right(&mut self) {
        let up: Vec<_> = self
            .slots
            .iter()
            .filter(|slot| slot.host.is_some())
            .map(Slot::path)
            .collect();
        if up.len() < 2 {
            return;
        }
        self.run.count("fault: right lost for long");
        let host = Some(up[self.settings.usize(..up.len())].clone());
        let all: &[&str] = &["UpdateItem", "PutItem", "DeleteItem", "TransactWriteItems"];
        let actions = if self.settings.bool() {
            all
        } else {
            &["UpdateItem", "TransactWriteItems"]
        };
        let how = if self.settings.bool() {
            How::Denied
        } else {
            How::Throttled
        };
        let refusal = Refusal {
            host,
            service: Service::Dynamodb,
            actions,
            how,
        };
        self.run.weather().refusals.insert(LASTING, refusal);
    }

    /// What is settled is about to be disturbed, by a drill or by the end of the run.
    pub(crate) async fn calm_ends(&self) {
        self.note(&What::Calm(false));
        if self.run.weather().refusals.remove(&LASTING).is_some() {
            // The host has its right again, and hears of it with its next try.
            tokio::time::sleep(verdict::balanced_within(&self.schedule)).await;
        }
    }
}
