//! The clients that requests are sent with: one a port, because its resolver has to know what is connected to, and a
//! resolver is told only names.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use reqwest::Client;
use reqwest::redirect::Policy;
use shardmill_core::plugin::ProcessorError;

use super::HttpOptions;
use super::resolver::{Addresses, CheckedResolver};

/// Makes clients, and keeps them: making one reads all of the machine's certificates.
#[derive(Debug)]
pub(crate) struct HttpClients {
    addresses: Arc<Addresses>,
    // Locked while one is made, on a thread that makes an instance; never while a request is sent.
    by_port: Mutex<BTreeMap<u16, Client>>,
}

impl HttpClients {
    pub(crate) fn new(options: HttpOptions) -> Self {
        Self { addresses: Arc::new(Addresses::new(options)), by_port: Mutex::default() }
    }

    pub(super) fn addresses(&self) -> &Arc<Addresses> {
        &self.addresses
    }

    /// Clients for these ports. Blocks while certificates are read.
    pub(super) fn of_ports(&self, ports: BTreeSet<u16>) -> Result<BTreeMap<u16, Client>, ProcessorError> {
        let mut known = self.by_port.lock().unwrap_or_else(PoisonError::into_inner);
        let mut clients = BTreeMap::new();
        for port in ports {
            let client = match known.get(&port) {
                Some(client) => client.clone(),
                None => self.make(port)?,
            };
            known.insert(port, client.clone());
            clients.insert(port, client);
        }
        Ok(clients)
    }

    fn make(&self, port: u16) -> Result<Client, ProcessorError> {
        let resolver = CheckedResolver { addresses: Arc::clone(&self.addresses), port };
        Client::builder()
            .dns_resolver(Arc::new(resolver))
            .connect_timeout(self.addresses.options().limits.connect_timeout)
            // Each request has a connection of its own, which ends with it: nothing of one plugin reaches another.
            .pool_max_idle_per_host(0)
            // The guest follows redirects itself, if it wants to; each is checked as any request.
            .redirect(Policy::none())
            .referer(false)
            // Another way around the checks, and the host's own settings besides.
            .no_proxy()
            .http1_only()
            .build()
            .map_err(|error| ProcessorError::Host { message: format!("cannot prepare HTTP: {error}") })
    }
}
