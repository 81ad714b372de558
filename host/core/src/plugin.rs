//! A plugin as the core knows it: a name, a version, limits and permissions.

mod addresses;
mod contract;
mod http_host;
mod http_limits;
mod identity;
mod limits;
mod permissions;
mod processor_error;
mod state_fill;
mod tables;

pub use addresses::{AddressPolicy, AddressRefusal, InvalidNetwork, Network};
pub use contract::{CONTRACT, UnknownContract, WantedContract};
pub use http_host::{HttpHost, HttpScheme, InvalidHttpHost};
pub use http_limits::HttpLimits;
pub use identity::{
    InvalidPluginName, NameFault, PluginDigest, PluginName, is_label_of, plugin_of_label,
};
pub use limits::{GuestLimits, STATE_BYTES_MAX};
pub use permissions::{
    DESTINATIONS_KEY, HOST_PREFIX, Permissions, SECRET_PREFIX, SecretSource,
    check_state_permission, check_ticks,
};
pub use processor_error::{InstanceFate, Lack, ProcessorError};
pub use state_fill::StateFill;
pub use tables::{
    Part, TakenName, check_ending, coordinator_table, is_of_table_name, lease_table,
    of_standalone_host, of_stream, split_part, state_table, tables_of,
};
