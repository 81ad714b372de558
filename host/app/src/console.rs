//! The console: pages and an HTTP API, served beside the admin pages, to see a fleet and to change
//! it. A request runs a command of the command line, so that both do the same.

mod api;
mod arguments;
mod call;
mod definition;
mod files;
mod fleet;
mod mask;
mod offers;
mod openapi;
mod routes;
mod tail;
mod visitor;

use std::sync::Arc;

use anyhow::Context;
use axum::Router;
use shardmill_aws::AwsClients;
use shardmill_config::{Config, ConsoleConfig};
use shardmill_serve::{HostStatus, Token};
use shardmill_worker::Tap;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use self::api::Api;
pub(crate) use self::arguments::Surroundings;
use self::definition::Definitions;
use self::fleet::Fleets;
use self::visitor::Gate;

/// What the console needs of the host that serves it.
pub(crate) struct ConsoleHost<'a> {
    pub(crate) config: &'a Config,
    pub(crate) surroundings: Surroundings,
    pub(crate) clients: AwsClients,
    pub(crate) status: HostStatus,
    pub(crate) tap: Tap,
    /// Ends commands that are still running.
    pub(crate) stop: CancellationToken,
}

/// The pages, if they are to be served.
///
/// # Errors
/// A token that the configuration names cannot be used.
pub(crate) fn pages(host: ConsoleHost<'_>) -> anyhow::Result<Option<Router>> {
    let console = &host.config.console;
    if !console.is_enabled {
        return Ok(None);
    }
    let api = Api {
        definitions: Definitions::all(),
        gate: gate(console, host.config)?,
        surroundings: host.surroundings,
        masked: console.masked.clone(),
        fleets: Fleets::new(&host.clients),
        clients: host.clients,
        status: host.status,
        tap: host.tap,
        worker: host.config.worker_id.to_string(),
        of_operators: Arc::new(Semaphore::new(api::COMMANDS_MAX)),
        of_others: Arc::new(Semaphore::new(api::COMMANDS_MAX)),
        children: Arc::new(Semaphore::new(api::CHILDREN_MAX)),
        runtime: tokio::runtime::Handle::current(),
        stop: host.stop,
        description: Arc::default(),
    };
    Ok(Some(files::router().merge(routes::router(api))))
}

fn gate(console: &ConsoleConfig, config: &Config) -> anyhow::Result<Gate> {
    let mut gate = Gate {
        tokens: Vec::new(),
        proxy: console.proxy.clone(),
        anonymous: console.anonymous.clone(),
    };
    for token in &console.tokens {
        let key = format!("console.tokens.{}", token.name);
        let read = Token::read(&token.source).with_context(|| format!("cannot read {key}"))?;
        gate.add(read, Some(&token.name), &token.may);
    }
    // Who may see `/status` may see the fleet.
    let view = [shardmill_config::ConsoleRight::View].into();
    match &config.host.admin_token {
        Some(source) => gate.add(Token::read(source)?, None, &view),
        None => gate.anonymous.extend(view),
    }
    Ok(gate)
}

#[cfg(test)]
mod tests;
