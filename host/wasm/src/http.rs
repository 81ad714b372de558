//! `wasi:http` outgoing: requests of plugins that were granted hosts to send them to.
//!
//! ```text
//!   guest ──> Outgoing: granted? ──> exchange: limits ──> one client a port ──> CheckedResolver: every address allowed?
//! ```
//!
//! The interfaces are linked for every plugin, since some toolchains import them unasked; without a
//! grant each request is denied. The host sends the request itself, over a connection that ends
//! with it. It follows no redirects: if the guest follows one, that is another request, which is
//! checked.

mod clients;
mod exchange;
mod meaning;
pub(crate) mod metrics;
mod outgoing;
mod queue;
mod resolver;
mod response_body;
mod sizes;
mod tally;

pub(crate) use clients::HttpClients;
pub(crate) use outgoing::{BODY_CHUNK_BYTES, Outgoing, field_bytes_max};
pub(crate) use response_body::PIECE_BYTES_MAX as RESPONSE_PIECE_BYTES;
pub(crate) use sizes::{AUTHORITY_BYTES_MAX, METHOD_BYTES_MAX, PATH_BYTES_MAX, URL_BYTES_MAX};

use shardmill_core::plugin::{AddressPolicy, HttpLimits};

/// What holds for the requests of all plugins.
#[derive(Debug, Clone, Default)]
pub struct HttpOptions {
    /// What a request may cost.
    pub limits: HttpLimits,
    /// Which addresses may be connected to.
    pub addresses: AddressPolicy,
    /// What is never connected to, wherever it is: the host's own services.
    pub never: Vec<Endpoint>,
}

/// A place on the network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// A name or an address, an IPv6 one in brackets.
    pub host: String,
    /// The TCP port, 80 or 443 where a URL names none.
    pub port: u16,
}
