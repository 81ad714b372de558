//! The optional exports `save` and `load`, which the generated bindings know nothing of.

use wasmtime::component::{Component, ComponentExportIndex, Instance, TypedFunc};
use wasmtime::{AsContextMut, Store};

use super::state::InstanceState;
use crate::bindings::shardmill::processor::types as wit;
use crate::load::world::STATE;

type Save = TypedFunc<(), (Result<Vec<u8>, wit::Error>,)>;
type Load<'a> = TypedFunc<(&'a [u8],), (Result<(), wit::Error>,)>;

/// Where a component exports them.
#[derive(Clone, Copy)]
pub(crate) struct StateExports {
    save: ComponentExportIndex,
    load: ComponentExportIndex,
}

/// One instance's `save`.
#[derive(Clone)]
pub(crate) struct StateFunctions {
    save: Save,
}

impl StateExports {
    /// `None` for a component that keeps no state.
    pub(crate) fn of(component: &Component) -> Option<Self> {
        let interface = component.get_export_index(None, STATE)?;
        let save = component.get_export_index(Some(&interface), "save")?;
        let load = component.get_export_index(Some(&interface), "load")?;
        Some(Self { save, load })
    }

    pub(crate) fn functions(
        self,
        mut store: impl AsContextMut,
        instance: &Instance,
    ) -> wasmtime::Result<StateFunctions> {
        Ok(StateFunctions {
            save: instance.get_typed_func(&mut store, self.save)?,
        })
    }

    pub(crate) async fn load(
        self,
        store: &mut Store<InstanceState>,
        instance: &Instance,
        state: &[u8],
    ) -> wasmtime::Result<Result<(), wit::Error>> {
        let load: Load<'_> = instance.get_typed_func(&mut *store, self.load)?;
        let (answer,) = load.call_async(store, (state,)).await?;
        Ok(answer)
    }
}

impl StateFunctions {
    pub(crate) async fn save(
        &self,
        store: &mut Store<InstanceState>,
    ) -> wasmtime::Result<Result<Vec<u8>, wit::Error>> {
        let (answer,) = self.save.call_async(store, ()).await?;
        Ok(answer)
    }
}
