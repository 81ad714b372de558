//! What a request is made of before it is sent, with the lengths that requests have. wasmtime's own
//! functions take a method of any length and keep it.

use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, Resource};
use wasmtime_wasi_http::WasiHttpView;
use wasmtime_wasi_http::p2::bindings::http::types::{HostOutgoingRequest as _, Method, Scheme};
use wasmtime_wasi_http::p2::types::HostOutgoingRequest;

use crate::http::{AUTHORITY_BYTES_MAX, METHOD_BYTES_MAX, PATH_BYTES_MAX};
use crate::instance::state::InstanceState;

/// The interface as wasmtime-wasi-http names it.
const TYPES: &str = "wasi:http/types@0.2.12";

type Request = Resource<HostOutgoingRequest>;
type State<'a> = StoreContextMut<'a, InstanceState>;
/// What a setter returns to the guest: whether it was done.
type Done = wasmtime::Result<(Result<(), ()>,)>;

const REFUSED: Done = Ok((Err(()),));

/// Replaces wasmtime's setters, which must be linked already. What is too long is refused as what
/// is malformed is.
pub(crate) fn add_to_linker(linker: &mut Linker<InstanceState>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    let mut types = linker.instance(TYPES)?;
    types.func_wrap("[method]outgoing-request.set-method", set_method)?;
    types.func_wrap("[method]outgoing-request.set-scheme", set_scheme)?;
    types.func_wrap("[method]outgoing-request.set-authority", set_authority)?;
    types.func_wrap("[method]outgoing-request.set-path-with-query", set_path)?;
    linker.allow_shadowing(false);
    Ok(())
}

fn set_method(mut state: State<'_>, (request, method): (Request, Method)) -> Done {
    match &method {
        Method::Other(text) if text.len() > METHOD_BYTES_MAX => REFUSED,
        _ => Ok((state.data_mut().http().set_method(request, method)?,)),
    }
}

fn set_scheme(mut state: State<'_>, (request, scheme): (Request, Option<Scheme>)) -> Done {
    match &scheme {
        Some(Scheme::Other(text)) if text.len() > METHOD_BYTES_MAX => REFUSED,
        _ => Ok((state.data_mut().http().set_scheme(request, scheme)?,)),
    }
}

fn set_authority(mut state: State<'_>, (request, authority): (Request, Option<String>)) -> Done {
    if is_longer(authority.as_ref(), AUTHORITY_BYTES_MAX) {
        return REFUSED;
    }
    Ok((state.data_mut().http().set_authority(request, authority)?,))
}

fn set_path(mut state: State<'_>, (request, path): (Request, Option<String>)) -> Done {
    if is_longer(path.as_ref(), PATH_BYTES_MAX) {
        return REFUSED;
    }
    Ok((state.data_mut().http().set_path_with_query(request, path)?,))
}

fn is_longer(text: Option<&String>, bytes_max: usize) -> bool {
    text.is_some_and(|text| text.len() > bytes_max)
}
