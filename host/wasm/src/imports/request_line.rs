//! What a request is made of before it is sent, with the lengths that requests have. wasmtime's own
//! functions take a method of any length and keep it.

use wasmtime::component::{Linker, Resource};
use wasmtime_wasi_http::WasiHttpView;
use wasmtime_wasi_http::p2::bindings::http::types::{HostOutgoingRequest as _, Method, Scheme};
use wasmtime_wasi_http::p2::types::HostOutgoingRequest;

use crate::http::{AUTHORITY_BYTES_MAX, METHOD_BYTES_MAX, PATH_BYTES_MAX};
use crate::instance::state::InstanceState;

/// The interface as wasmtime-wasi-http names it.
const TYPES: &str = "wasi:http/types@0.2.12";

type Request = Resource<HostOutgoingRequest>;

/// Takes the place of wasmtime's setters, which must be linked already. What is too long is refused
/// as what is malformed is.
pub(crate) fn add_to_linker(linker: &mut Linker<InstanceState>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    let mut types = linker.instance(TYPES)?;
    types.func_wrap(
        "[method]outgoing-request.set-method",
        |mut store, (request, method): (Request, Method)| match &method {
            Method::Other(text) if text.len() > METHOD_BYTES_MAX => Ok((Err(()),)),
            _ => Ok((store.data_mut().http().set_method(request, method)?,)),
        },
    )?;
    types.func_wrap(
        "[method]outgoing-request.set-scheme",
        |mut store, (request, scheme): (Request, Option<Scheme>)| match &scheme {
            Some(Scheme::Other(text)) if text.len() > METHOD_BYTES_MAX => Ok((Err(()),)),
            _ => Ok((store.data_mut().http().set_scheme(request, scheme)?,)),
        },
    )?;
    types.func_wrap(
        "[method]outgoing-request.set-authority",
        |mut store, (request, authority): (Request, Option<String>)| {
            if is_longer(authority.as_ref(), AUTHORITY_BYTES_MAX) {
                return Ok((Err(()),));
            }
            Ok((store.data_mut().http().set_authority(request, authority)?,))
        },
    )?;
    types.func_wrap(
        "[method]outgoing-request.set-path-with-query",
        |mut store, (request, path): (Request, Option<String>)| {
            if is_longer(path.as_ref(), PATH_BYTES_MAX) {
                return Ok((Err(()),));
            }
            Ok((store.data_mut().http().set_path_with_query(request, path)?,))
        },
    )?;
    linker.allow_shadowing(false);
    Ok(())
}

fn is_longer(text: Option<&String>, bytes_max: usize) -> bool {
    text.is_some_and(|text| text.len() > bytes_max)
}
