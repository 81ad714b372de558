//! Checks the types of the exported functions at load. The generated bindings check them only when
//! an instance is made, which would be after a plugin was announced as fit to run.

use wasmtime::Engine;
use wasmtime::component::types::{self, ComponentItem};
use wasmtime::component::{Component, ComponentNamedList, Lift, Lower};

use crate::LoadError;
use crate::bindings::shardmill::processor::types as wit;
use crate::instance::state_exports::STATE;
use crate::load::world::is_processor;
use crate::text::{SAID_BYTES_MAX, shown};

/// Refuses a component whose `processor` has other functions than the contract's, or whose `state`
/// has, if it exports one.
pub(crate) fn check(engine: &Engine, component: &Component) -> Result<(), LoadError> {
    let outside = component.component_type();
    let find = |is_it: fn(&str) -> bool| {
        outside
            .exports(engine)
            .find_map(|(name, export)| match export.ty {
                ComponentItem::ComponentInstance(instance) if is_it(name) => Some(instance),
                _ => None,
            })
    };
    let Some(processor) = find(is_processor) else {
        return Err(LoadError::Mismatch {
            message: "the export processor is not an interface".to_owned(),
        });
    };
    let exports = Exports {
        engine,
        outside: &outside,
        interface: &processor,
    };
    exports.check::<(wit::ContextParam<'_>,), (Result<(), wit::Error>,)>("init")?;
    exports.check::<(wit::Batch<'_>,), (Result<wit::Outcome, wit::Error>,)>("process")?;
    exports.check::<(wit::CloseReason<'_>,), (Result<(), wit::Error>,)>("close")?;
    let Some(state) = find(|name| name == STATE) else {
        return Ok(());
    };
    let exports = Exports {
        interface: &state,
        ..exports
    };
    exports.check::<(), (Result<Vec<u8>, wit::Error>,)>("save")?;
    exports.check::<(&[u8],), (Result<(), wit::Error>,)>("load")
}

struct Exports<'a> {
    engine: &'a Engine,
    outside: &'a types::Component,
    interface: &'a types::ComponentInstance,
}

impl Exports<'_> {
    fn check<Params, Return>(&self, function: &str) -> Result<(), LoadError>
    where
        Params: ComponentNamedList + Lower,
        Return: ComponentNamedList + Lift,
    {
        let mismatch = |message: String| Err(LoadError::Mismatch { message });
        match self
            .interface
            .get_export(self.engine, function)
            .map(|export| export.ty)
        {
            Some(ComponentItem::ComponentFunc(found)) => found
                .typecheck::<Params, Return>(&self.outside.instance_type())
                .or_else(|error| {
                    mismatch(format!(
                        "function {function}: {}",
                        shown(error, SAID_BYTES_MAX)
                    ))
                }),
            Some(_) => mismatch(format!("the export {function} is not a function")),
            None => mismatch(format!("the function {function} is missing")),
        }
    }
}
