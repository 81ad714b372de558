//! Checks the types of the exported functions at load. The generated bindings check them only when
//! an instance is made, which would be after a plugin was announced as fit to run.

use wasmtime::Engine;
use wasmtime::component::types::{self, ComponentItem};
use wasmtime::component::{Component, ComponentNamedList, Lift, Lower};

use super::world::{BULK, STATE, TICKER, is_processor};
use crate::LoadError;
use crate::bindings::shardmill::processor::types as wit;
use crate::instance::ticker_export::HeldBack;
use crate::text::{SAID_BYTES_MAX, shown};

type Done = (Result<(), wit::Error>,);

/// Refuses a component whose `processor` has other functions than the contract's, or whose `state`,
/// `bulk` or `ticker` has, if it exports one.
pub(crate) fn check(engine: &Engine, component: &Component) -> Result<(), LoadError> {
    let (whole, component) = (component, &component.component_type());
    let Some(processor) = Interface::of(engine, component, is_processor) else {
        return Err(mismatch("the export processor is not an interface"));
    };
    processor.check::<(wit::ContextParam<'_>,), Done>("init")?;
    processor.check::<(wit::Batch<'_>,), (Result<wit::Outcome, wit::Error>,)>("process")?;
    processor.check::<(wit::CloseReason<'_>,), Done>("close")?;
    if let Some(state) = Interface::found(engine, component, whole, STATE) {
        state.check::<(), (Result<Vec<u8>, wit::Error>,)>("save")?;
        state.check::<(&[u8],), Done>("load")?;
    }
    if let Some(bulk) = Interface::found(engine, component, whole, BULK) {
        bulk.check::<(&[u8],), (Result<Vec<u8>, wit::Error>,)>("process")?;
    }
    if let Some(ticker) = Interface::found(engine, component, whole, TICKER) {
        ticker.check::<(u64, Option<u64>), (Result<HeldBack, wit::Error>,)>("tick")?;
    }
    Ok(())
}

/// An exported interface.
struct Interface<'a> {
    engine: &'a Engine,
    component: &'a types::Component,
    functions: types::ComponentInstance,
}

impl<'a> Interface<'a> {
    /// The first export whose name `is_it`, if it is an interface.
    fn of(
        engine: &'a Engine,
        component: &'a types::Component,
        is_it: fn(&str) -> bool,
    ) -> Option<Self> {
        let functions = component
            .exports(engine)
            .find_map(|(name, export)| match export.ty {
                ComponentItem::ComponentInstance(functions) if is_it(name) => Some(functions),
                _ => None,
            })?;
        Some(Self {
            engine,
            component,
            functions,
        })
    }

    /// The export that is called by this name, if it is an interface: of another version, as long
    /// as wasmtime takes that for compatible.
    fn found(
        engine: &'a Engine,
        component: &'a types::Component,
        whole: &Component,
        name: &str,
    ) -> Option<Self> {
        match whole.get_export(None, name)? {
            (ComponentItem::ComponentInstance(functions), _) => Some(Self {
                engine,
                component,
                functions,
            }),
            _ => None,
        }
    }

    fn check<Params, Return>(&self, function: &str) -> Result<(), LoadError>
    where
        Params: ComponentNamedList + Lower,
        Return: ComponentNamedList + Lift,
    {
        match self.functions.get_export(self.engine, function) {
            Some(export) => {
                let ComponentItem::ComponentFunc(found) = export.ty else {
                    return Err(mismatch(&format!(
                        "the export {function} is not a function"
                    )));
                };
                let checked = found.typecheck::<Params, Return>(&self.component.instance_type());
                checked.map_err(|error| {
                    let why = shown(error, SAID_BYTES_MAX);
                    mismatch(&format!("function {function}: {why}"))
                })
            }
            None => Err(mismatch(&format!("the function {function} is missing"))),
        }
    }
}

fn mismatch(message: &str) -> LoadError {
    LoadError::Mismatch {
        message: message.to_owned(),
    }
}
