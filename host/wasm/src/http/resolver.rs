//! From a name to addresses that may be connected to. The checked addresses are those that are
//! connected to: no second look-up in between could give different ones.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use shardmill_core::plugin::AddressRefusal;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::{Endpoint, HttpOptions};

/// Concurrent look-ups, each on its own thread for as long as the system takes. Some tens: a name
/// that is not answered holds one for seconds.
const LOOKUPS_MAX: usize = 32;

tokio::task_local! {
    /// The look-ups of the plugin whose request is being sent, because a resolver gets nothing but
    /// a name. Clients resolve within the request that they connect for.
    pub(super) static LOOKUPS: Arc<Semaphore>;
}

/// Resolves and checks; shared by all clients.
#[derive(Debug)]
pub(super) struct Addresses {
    options: HttpOptions,
    lookups: Arc<Semaphore>,
}

/// Why a name or an address is not connected to.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unreachable {
    /// Its address is not allowed.
    #[error("{0}")]
    Refused(#[from] AddressRefusal),
    /// It is a service of the host.
    #[error("{0} is the host's own")]
    HostsOwn(SocketAddr),
    /// The name has no address, or no server could be asked.
    #[error("the name does not resolve: {0}")]
    Unknown(io::Error),
}

impl Addresses {
    pub(super) fn new(options: HttpOptions) -> Self {
        Self {
            options,
            lookups: Arc::new(Semaphore::new(LOOKUPS_MAX)),
        }
    }

    pub(super) fn options(&self) -> &HttpOptions {
        &self.options
    }

    /// All addresses of a name, if all of them may be connected to: one that may not says that
    /// somebody tries something.
    async fn resolve(&self, name: &str, port: u16) -> Result<Vec<IpAddr>, Unreachable> {
        let addresses = self.look_up(name).await.map_err(Unreachable::Unknown)?;
        if addresses.is_empty() {
            return Err(Unreachable::Unknown(io::Error::other("it has no address")));
        }
        for address in &addresses {
            self.check(*address, port).await?;
        }
        Ok(addresses)
    }

    /// Whether an address and port may be connected to.
    pub(super) async fn check(&self, address: IpAddr, port: u16) -> Result<(), Unreachable> {
        self.options.addresses.judge(address)?;
        for Endpoint { host, .. } in self
            .options
            .never
            .iter()
            .filter(|endpoint| endpoint.port == port)
        {
            let theirs = match host.trim_matches(['[', ']']).parse::<IpAddr>() {
                Ok(address) => vec![address],
                // A service whose name does not resolve is nowhere.
                Err(_) => self.look_up(host).await.unwrap_or_default(),
            };
            let address = address.to_canonical();
            if theirs
                .iter()
                .any(|theirs| theirs.to_canonical() == address || serves_all(*theirs, address))
            {
                return Err(Unreachable::HostsOwn(SocketAddr::new(address, port)));
            }
        }
        Ok(())
    }

    /// Asks the system. Not on the threads for blocking work: guests hold those while they wait for
    /// this very answer.
    async fn look_up(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        let turn = (
            turn_of_plugin().await?,
            Arc::clone(&self.lookups)
                .acquire_owned()
                .await
                .map_err(io::Error::other)?,
        );
        let (answer, answered) = oneshot::channel();
        let name = name.to_owned();
        std::thread::Builder::new()
            .name("name-lookup".to_owned())
            .spawn(move || {
                let found = (name.as_str(), 0)
                    .to_socket_addrs()
                    .map(|found| found.map(|one| one.ip()).collect());
                drop(turn);
                // An error means that the request is gone.
                let _ = answer.send(found);
            })?;
        answered.await.map_err(io::Error::other)?
    }
}

/// `None` where no plugin's request is being sent.
async fn turn_of_plugin() -> io::Result<Option<OwnedSemaphorePermit>> {
    let Ok(lookups) = LOOKUPS.try_with(Arc::clone) else {
        return Ok(None);
    };
    let turn = lookups.acquire_owned().await;
    turn.map(Some).map_err(io::Error::other)
}

/// Whether what listens on `theirs`, an unspecified address, is reached by `address`, one of this
/// machine's: only such can be bound.
fn serves_all(theirs: IpAddr, address: IpAddr) -> bool {
    theirs.is_unspecified() && UdpSocket::bind((address, 0)).is_ok()
}

/// The same for the clients of one port.
#[derive(Debug)]
pub(super) struct CheckedResolver {
    pub(super) addresses: Arc<Addresses>,
    pub(super) port: u16,
}

impl Resolve for CheckedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (addresses, port) = (Arc::clone(&self.addresses), self.port);
        Box::pin(async move {
            let found = addresses.resolve(name.as_str(), port).await?;
            Ok(Box::new(found.into_iter().map(|address| SocketAddr::new(address, 0))) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use shardmill_core::plugin::{AddressPolicy, Network};

    use super::*;

    fn addresses(allowed: &[&str], never: &[(&str, u16)]) -> Addresses {
        let allowed = allowed
            .iter()
            .map(|network| Network::parse(network).unwrap())
            .collect();
        let never = never
            .iter()
            .map(|(host, port)| Endpoint {
                host: (*host).to_owned(),
                port: *port,
            })
            .collect();
        Addresses::new(HttpOptions {
            addresses: AddressPolicy { allowed },
            never,
            ..HttpOptions::default()
        })
    }

    #[tokio::test]
    async fn a_name_is_as_good_as_the_worst_of_its_addresses() {
        let refused = addresses(&[], &[])
            .resolve("localhost", 443)
            .await
            .unwrap_err();
        assert!(matches!(refused, Unreachable::Refused(_)), "{refused}");
        let allowed = addresses(&["127.0.0.0/8", "::1"], &[])
            .resolve("localhost", 443)
            .await
            .unwrap();
        assert!(allowed.iter().all(IpAddr::is_loopback) && !allowed.is_empty());
    }

    #[tokio::test]
    async fn the_hosts_own_services_are_not_connected_to_even_where_their_network_is_allowed() {
        let own = addresses(
            &["127.0.0.0/8", "::1"],
            &[("localhost", 4566), ("127.0.0.9", 9090)],
        );
        let loopback = "127.0.0.1".parse().unwrap();
        assert!(matches!(
            own.check(loopback, 4566).await,
            Err(Unreachable::HostsOwn(_))
        ));
        assert!(matches!(
            own.check("::ffff:127.0.0.1".parse().unwrap(), 4566).await,
            Err(Unreachable::HostsOwn(_))
        ));
        assert!(matches!(
            own.check("127.0.0.9".parse().unwrap(), 9090).await,
            Err(Unreachable::HostsOwn(_))
        ));
        assert!(own.check(loopback, 4567).await.is_ok());
        assert!(matches!(
            own.resolve("localhost", 4566).await,
            Err(Unreachable::HostsOwn(_))
        ));
    }

    #[tokio::test]
    async fn what_the_host_serves_on_all_addresses_is_its_own_under_each_of_this_machines() {
        for everywhere in ["0.0.0.0", "::"] {
            let own = addresses(&["127.0.0.0/8", "203.0.113.0/24"], &[(everywhere, 9090)]);
            for address in ["127.0.0.1", "127.0.0.2", "::ffff:127.0.0.2"] {
                let checked = own.check(address.parse().unwrap(), 9090).await;
                assert!(
                    matches!(checked, Err(Unreachable::HostsOwn(_))),
                    "{address}: {checked:?}"
                );
            }
            let other_port = own.check("127.0.0.2".parse().unwrap(), 9091).await;
            assert!(other_port.is_ok(), "{other_port:?}");
            // An address for documentation, which no machine has.
            let elsewhere = own.check("203.0.113.1".parse().unwrap(), 9090).await;
            assert!(elsewhere.is_ok(), "{elsewhere:?}");
        }
    }

    #[tokio::test]
    async fn a_name_that_nobody_knows_is_reported() {
        let error = addresses(&[], &[])
            .resolve("no-such-name.invalid", 443)
            .await
            .unwrap_err();
        assert!(matches!(error, Unreachable::Unknown(_)), "{error}");
    }
}
