//! The clients that send the requests: one for each port, because the resolver must know which port
//! is connected to, and gets only names.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use reqwest::Client;
use reqwest::redirect::Policy;
use shardmill_core::plugin::{HttpLimits, ProcessorError};
use tokio::sync::Semaphore;

use super::HttpOptions;
use super::resolver::{Addresses, CheckedResolver};

/// Concurrent look-ups of one plugin, on all its shards: a quarter of the host's, so that names
/// which no server answers only delay the plugin that asks for them.
const LOOKUPS_MAX: usize = 8;
/// What part of the requests that may be in flight one plugin may have.
const IN_FLIGHT_SHARE: usize = 2;

/// What one plugin may take, on all its shards, of what all plugins share.
#[derive(Debug)]
pub(super) struct PluginShare {
    pub(super) lookups: Arc<Semaphore>,
    pub(super) in_flight: Arc<Semaphore>,
}

/// Makes clients, and keeps them: making one reads all of the machine's certificates.
#[derive(Debug)]
pub(crate) struct HttpClients {
    addresses: Arc<Addresses>,
    /// Requests that may be in flight, of all instances.
    in_flight: Arc<Semaphore>,
    by_plugin: Mutex<BTreeMap<String, Weak<PluginShare>>>,
    // Locked while one is made, on a thread that makes an instance; never while a request is sent.
    by_port: Mutex<BTreeMap<u16, Client>>,
}

impl HttpClients {
    pub(crate) fn new(options: HttpOptions) -> Self {
        let in_flight = Arc::new(Semaphore::new(options.limits.in_flight_total));
        let addresses = Arc::new(Addresses::new(options));
        Self {
            addresses,
            in_flight,
            by_plugin: Mutex::default(),
            by_port: Mutex::default(),
        }
    }

    /// The plugin's share, as long as it has any instance.
    pub(super) fn share_of(&self, plugin: &str) -> Arc<PluginShare> {
        let mut shares = self
            .by_plugin
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = shares.get(plugin).and_then(Weak::upgrade) {
            return share;
        }
        shares.retain(|_, share| share.strong_count() > 0);
        let in_flight = (self.addresses.options().limits.in_flight_total / IN_FLIGHT_SHARE).max(1);
        let share = PluginShare {
            lookups: Arc::new(Semaphore::new(LOOKUPS_MAX)),
            in_flight: Arc::new(Semaphore::new(in_flight)),
        };
        let share = Arc::new(share);
        shares.insert(plugin.to_owned(), Arc::downgrade(&share));
        share
    }

    /// Where each request takes its turn.
    pub(super) fn in_flight(&self) -> &Arc<Semaphore> {
        &self.in_flight
    }

    pub(super) fn addresses(&self) -> &Arc<Addresses> {
        &self.addresses
    }

    /// What holds for the requests of all plugins.
    pub(crate) fn limits(&self) -> HttpLimits {
        self.addresses.options().limits
    }

    /// Clients for these ports. Blocks while certificates are read.
    pub(super) fn of_ports(
        &self,
        ports: BTreeSet<u16>,
    ) -> Result<BTreeMap<u16, Client>, ProcessorError> {
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
        let resolver = CheckedResolver {
            addresses: Arc::clone(&self.addresses),
            port,
        };
        Client::builder()
            .dns_resolver(Arc::new(resolver))
            .connect_timeout(self.addresses.options().limits.connect_timeout)
            // Each request has its own connection, which ends with it: nothing of one plugin
            // reaches another.
            .pool_max_idle_per_host(0)
            // The guest follows redirects itself, if it wants to; each is checked as any request.
            .redirect(Policy::none())
            .referer(false)
            // Another way around the checks, and the host's own settings besides.
            .no_proxy()
            .http1_only()
            .build()
            .map_err(|error| ProcessorError::Host {
                message: format!("cannot prepare HTTP: {error}"),
            })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use shardmill_core::plugin::{AddressPolicy, HttpLimits, Network};

    use super::super::resolver::LOOKUPS;
    use super::*;

    #[tokio::test]
    async fn a_client_takes_the_look_ups_of_the_plugin_whose_request_it_sends() {
        let addresses = AddressPolicy {
            allowed: ["127.0.0.0/8", "::1"]
                .map(|net| Network::parse(net).unwrap())
                .into(),
        };
        let limits = HttpLimits {
            connect_timeout: Duration::from_millis(300),
            ..HttpLimits::default()
        };
        let clients = HttpClients::new(HttpOptions {
            limits,
            addresses,
            never: Vec::new(),
        });
        // Nobody listens there.
        let client = clients
            .of_ports(BTreeSet::from([1]))
            .unwrap()
            .remove(&1)
            .unwrap();
        let send = || client.get("http://localhost:1/").send();
        assert!(!send().await.unwrap_err().is_timeout());
        let none = Arc::new(Semaphore::new(0));
        assert!(
            LOOKUPS.scope(none, send()).await.unwrap_err().is_timeout(),
            "it waits for its turn"
        );
        let share = clients.share_of("alerts");
        assert!(
            !LOOKUPS
                .scope(Arc::clone(&share.lookups), send())
                .await
                .unwrap_err()
                .is_timeout()
        );
        assert!(
            Arc::ptr_eq(&share, &clients.share_of("alerts"))
                && !Arc::ptr_eq(&share, &clients.share_of("orders"))
        );
    }
}
