//! The optional export `ticker`, which the generated bindings know nothing of.

use shardmill_core::ports::{self, TickTime};
use wasmtime::Store;
use wasmtime::component::{
    Component, ComponentExportIndex, ComponentType, Instance, Lift, TypedFunc,
};

use super::state::InstanceState;
use crate::bindings::shardmill::processor::types as wit;
use crate::load::world::TICKER;

type Tick = TypedFunc<(u64, Option<u64>), (Result<HeldBack, wit::Error>,)>;

/// What becomes of the records that the guest holds back: the enum of the contract.
#[expect(dead_code, reason = "made by wasmtime, of what the component returns")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, ComponentType, Lift)]
#[component(enum)]
#[repr(u8)]
pub(crate) enum HeldBack {
    #[component(name = "keep")]
    Keep,
    #[component(name = "commit")]
    Commit,
}

/// Where a component exports it.
#[derive(Clone, Copy)]
pub(crate) struct TickerExport {
    tick: ComponentExportIndex,
}

impl TickerExport {
    /// `None` for a component that takes no ticks.
    pub(crate) fn of(component: &Component) -> Option<Self> {
        let interface = component.get_export_index(None, TICKER)?;
        let tick = component.get_export_index(Some(&interface), "tick")?;
        Some(Self { tick })
    }

    pub(crate) async fn tick(
        self,
        store: &mut Store<InstanceState>,
        instance: &Instance,
        time: TickTime,
    ) -> wasmtime::Result<Result<HeldBack, wit::Error>> {
        let tick: Tick = instance.get_typed_func(&mut *store, self.tick)?;
        let (answer,) = tick
            .call_async(store, (time.now_ms, time.delivered_until_ms))
            .await?;
        Ok(answer)
    }
}

impl From<HeldBack> for ports::HeldBack {
    fn from(held_back: HeldBack) -> Self {
        match held_back {
            HeldBack::Keep => Self::Keep,
            HeldBack::Commit => Self::Commit,
        }
    }
}
