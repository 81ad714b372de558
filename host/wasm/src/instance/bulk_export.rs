//! The optional export `bulk`: a batch in one frame of bytes.

use wasmtime::Store;
use wasmtime::component::{Component, ComponentExportIndex, Instance, TypedFunc};

use super::state::InstanceState;
use crate::bindings::shardmill::processor::types as wit;
use crate::load::world::BULK;

type Process<'a> = TypedFunc<(&'a [u8],), (Result<Vec<u8>, wit::Error>,)>;

/// Where a component exports it.
#[derive(Clone, Copy)]
pub(crate) struct BulkExport {
    process: ComponentExportIndex,
}

impl BulkExport {
    /// `None` for a component that takes its records in lists.
    pub(crate) fn of(component: &Component) -> Option<Self> {
        let interface = component.get_export_index(None, BULK)?;
        let process = component.get_export_index(Some(&interface), "process")?;
        Some(Self { process })
    }

    /// Calls it with the frame of a batch; the answer is the frame of its outcome.
    pub(crate) async fn process(
        self,
        store: &mut Store<InstanceState>,
        instance: &Instance,
        batch: &[u8],
    ) -> wasmtime::Result<Result<Vec<u8>, wit::Error>> {
        let process: Process<'_> = instance.get_typed_func(&mut *store, self.process)?;
        let (answer,) = process.call_async(store, (batch,)).await?;
        Ok(answer)
    }
}
