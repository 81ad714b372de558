//! The section `[host]`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytesize::ByteSize;
use serde::Deserialize;
use shardmill_core::plugin::{GuestLimits, SecretSource};
use shardmill_wasm::CompileLimits;

use super::cache::CacheSetting;
use super::duration;
use super::floor;
use super::problem::{At, Problem};
use super::section;
use super::settings::{HistoryKept, HostConfig, OnRemove};
use super::size;
use super::units::to_usize;
use crate::machine::memory_bytes;

/// Plugins on one host. Each has its own leases, heartbeat and readers; this is ten times what a
/// host handles well.
const PLUGINS_MAX: usize = 100;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct HostFile {
    #[serde(default, deserialize_with = "size::optional")]
    buffer: Option<ByteSize>,
    #[serde(default, deserialize_with = "size::optional")]
    instances_memory: Option<ByteSize>,
    #[serde(default, deserialize_with = "size::optional")]
    code_memory: Option<ByteSize>,
    #[serde(default, deserialize_with = "duration::optional")]
    drain_limit: Option<Duration>,
    admin: Option<SocketAddr>,
    #[serde(default, deserialize_with = "section::optional")]
    admin_token: Option<TokenFile>,
    #[serde(default)]
    admin_names: Vec<String>,
    #[serde(default)]
    pub(super) fan_out_allowed: bool,
    #[serde(default)]
    only_listed: bool,
    cache: Option<PathBuf>,
    #[serde(default)]
    history: HistoryKept,
    #[serde(default)]
    on_remove: OnRemove,
    #[serde(default, deserialize_with = "size::optional")]
    plugin_bytes_max: Option<ByteSize>,
    plugins_max: Option<usize>,
    #[serde(default, deserialize_with = "duration::optional")]
    rescan_every: Option<Duration>,
}

/// Where the token of the admin pages is kept.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct TokenFile {
    file: Option<PathBuf>,
    env: Option<String>,
}

// === impl HostFile ===

impl HostFile {
    /// Whether there is an address that pages are served on.
    pub(super) fn has_admin(&self) -> bool {
        self.admin.is_some()
    }

    pub(super) fn check(
        self,
        folder: &Path,
        limits: &GuestLimits,
        compile: &CompileLimits,
    ) -> Result<HostConfig, Problem> {
        if self.cache.as_deref() == Some(Path::new("")) {
            let message = "names no folder: name one, or say \"off\"";
            return Err(Problem::new("host.cache", message));
        }
        Ok(HostConfig {
            buffer_bytes: self.buffer_bytes()?,
            instances_memory_bytes: self.instances_memory_bytes(limits)?,
            code_memory_bytes: self.code_memory_bytes(compile.code_bytes)?,
            drain_limit: self.drain_limit.unwrap_or(Duration::from_secs(20)),
            admin: self.admin,
            admin_token: admin_token(self.admin, self.admin_token, folder)?,
            admin_names: self.admin_names,
            cache: CacheSetting::of_key(self.cache, folder),
            history: self.history,
            on_remove: self.on_remove,
            only_listed: self.only_listed,
            plugin_bytes_max: self.plugin_bytes_max.map_or(32 << 20, |size| size.as_u64()),
            plugins_max: self.plugins_max.unwrap_or(PLUGINS_MAX),
            rescan_every: floor::RESCAN_EVERY.check(self.rescan_every, Duration::from_secs(5))?,
        })
    }

    fn buffer_bytes(&self) -> Result<usize, Problem> {
        let bytes = self.buffer.map_or(256 << 20, to_usize);
        if bytes < 20 << 20 {
            let message = "must be at least 20MiB: one GetRecords reply may hold 10";
            return Err(Problem::new("host.buffer", message));
        }
        Ok(bytes)
    }

    fn instances_memory_bytes(&self, limits: &GuestLimits) -> Result<usize, Problem> {
        let of_process = memory_or(2 << 30);
        let bytes = self
            .instances_memory
            .map_or((of_process / 8 * 3).max(limits.memory_bytes), to_usize);
        if bytes < limits.memory_bytes {
            let message = "must be at least limits.memory, or no instance could have that much";
            return Err(Problem::new("host.instances-memory", message));
        }
        Ok(bytes)
    }

    fn code_memory_bytes(&self, compile_code_bytes: usize) -> Result<usize, Problem> {
        let least = compile_code_bytes.saturating_mul(2);
        let of_process = memory_or(2 << 30);
        let bytes = self
            .code_memory
            .map_or((of_process / 4).max(least), to_usize);
        if bytes < least {
            let message = "must be at least twice compile.code: half of it is divided among the \
                plugins, and one version may take that much";
            return Err(Problem::new("host.code-memory", message));
        }
        Ok(bytes)
    }
}

/// The token of the admin pages. Required if their address is reachable from outside.
fn admin_token(
    address: Option<SocketAddr>,
    token: Option<TokenFile>,
    folder: &Path,
) -> Result<Option<SecretSource>, Problem> {
    if let Some(address) = address {
        refuse_open(address, token.is_some()).at("host.admin")?;
    }
    match token {
        None => Ok(None),
        Some(TokenFile {
            file: Some(file),
            env: None,
        }) => Ok(Some(SecretSource::File(folder.join(file)))),
        Some(TokenFile {
            file: None,
            env: Some(name),
        }) => Ok(Some(SecretSource::Variable(name))),
        Some(_) => Err(Problem::new(
            "host.admin-token",
            "say either file or env, where the token is kept",
        )),
    }
}

/// The memory that the process may use, in bytes, or `unknown` if that cannot be found out. By
/// default three eighths of it are for instances, and a quarter for code: what is left is for what
/// is fetched, for calls, for the process and its compiler.
fn memory_or(unknown: usize) -> usize {
    memory_bytes().map_or(unknown, |bytes| {
        usize::try_from(bytes).unwrap_or(usize::MAX)
    })
}

/// Refuses an address that is reachable from outside, unless there is a token.
pub fn refuse_open(address: SocketAddr, has_token: bool) -> Result<(), String> {
    if address.ip().to_canonical().is_loopback() || has_token {
        return Ok(());
    }
    Err(format!(
        "others can reach {address} and read about streams, shards and tables: set \
            host.admin-token = {{ env = \"NAME\" }} or {{ file = \"PATH\" }}, or use 127.0.0.1"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_others_reach_needs_a_token() {
        for open in [
            "0.0.0.0:9090",
            "10.1.2.3:9090",
            "[::]:9090",
            "[::ffff:10.1.2.3]:1",
            "192.168.1.2:80",
        ] {
            let told = refuse_open(open.parse().unwrap(), false).unwrap_err();
            assert!(
                told.contains("host.admin-token") && told.contains("127.0.0.1"),
                "{told}"
            );
            assert!(refuse_open(open.parse().unwrap(), true).is_ok());
        }
        for own in [
            "127.0.0.1:9090",
            "127.5.5.5:1",
            "[::1]:9090",
            "[::ffff:127.0.0.1]:1",
        ] {
            assert!(refuse_open(own.parse().unwrap(), false).is_ok(), "{own}");
        }
    }
}
