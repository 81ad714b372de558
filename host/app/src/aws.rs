//! From settings and flags to AWS clients.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use serde::Deserialize;
use shardmill_aws::{AwsClients, TableOptions};
use shardmill_config::files::read_text;
use shardmill_config::{AwsConfig, Config, check_url};

use crate::cli::{AwsArgs, ConnectionArgs};

/// The region of the embedded stack.
const LOCAL_REGION: &str = "us-east-1";

/// Two addresses; what is larger is another file.
const ENDPOINTS_BYTES_MAX: u64 = 64 << 10;

/// What a running embedded stack writes into its data directory.
#[derive(Debug, Deserialize)]
struct Endpoints {
    kinesis: String,
    dynamodb: String,
}

/// Flags win over the file.
pub(crate) fn merge(file: &AwsConfig, args: &AwsArgs) -> anyhow::Result<AwsConfig> {
    if let Some(data) = &args.local {
        return Ok(AwsConfig {
            wire: file.wire,
            ..local_stack(data)?
        });
    }
    let flag_or = |flag: &Option<String>, file: &Option<String>| {
        flag.clone()
            .or_else(|| args.endpoint.clone())
            .or_else(|| file.clone())
    };
    Ok(AwsConfig {
        region: args.region.clone().or_else(|| file.region.clone()),
        role: file.role.clone(),
        kinesis: file.kinesis.clone(),
        dynamodb: file.dynamodb.clone(),
        kinesis_endpoint: flag_or(&args.kinesis_endpoint, &file.kinesis_endpoint),
        dynamodb_endpoint: flag_or(&args.dynamodb_endpoint, &file.dynamodb_endpoint),
        wire: file.wire,
        is_local: file.is_local,
    })
}

/// The embedded stack that runs with this data directory.
fn local_stack(data: &Path) -> anyhow::Result<AwsConfig> {
    let path = data.join("endpoints.json");
    let text = match read_text(&path, ENDPOINTS_BYTES_MAX) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => bail!(
            "no embedded stack runs with data directory {}: start `shardmill dev` first{}, or name \
                its data directory, --local=DATA",
            data.display(),
            if cfg!(feature = "local") {
                ""
            } else {
                " (of a full build; this one is lean)"
            }
        ),
        Err(error) => bail!("cannot read {}: {error}", path.display()),
    };
    let endpoints: Endpoints =
        serde_json::from_str(&text).with_context(|| format!("cannot read {}", path.display()))?;
    for endpoint in [&endpoints.kinesis, &endpoints.dynamodb] {
        if let Err(problem) = check_url(endpoint) {
            bail!("cannot read {}: {endpoint:?} is {problem}", path.display());
        }
    }
    Ok(at_endpoints(endpoints.kinesis, endpoints.dynamodb))
}

/// An embedded stack at these addresses.
pub(crate) fn at_endpoints(kinesis: String, dynamodb: String) -> AwsConfig {
    AwsConfig {
        region: Some(LOCAL_REGION.to_owned()),
        kinesis_endpoint: Some(kinesis),
        dynamodb_endpoint: Some(dynamodb),
        is_local: true,
        ..AwsConfig::default()
    }
}

tokio::task_local! {
    /// Of the host that runs a command in its own process.
    static HOST: AwsClients;
}

/// Runs a command that a host's console was asked for, with the clients of that host: its
/// connections and credentials are there already.
pub(crate) async fn with_clients_of_host<T>(
    clients: AwsClients,
    command: impl Future<Output = T>,
) -> T {
    HOST.scope(clients, command).await
}

/// Creates the clients for the endpoints that a command's arguments name.
pub(crate) async fn connect_to(connection: &ConnectionArgs) -> anyhow::Result<AwsClients> {
    if let Ok(clients) = HOST.try_with(AwsClients::clone) {
        return Ok(clients);
    }
    let config = connection.config.as_deref().map(Config::load).transpose()?;
    connect_as(config.as_ref(), &connection.aws).await
}

/// How the configuration, if one is named, wants tables to be made.
pub(crate) fn table_options(connection: &ConnectionArgs) -> anyhow::Result<Arc<TableOptions>> {
    let config = connection.config.as_deref().map(Config::load).transpose()?;
    Ok(Arc::new(
        config.map(|config| config.tables).unwrap_or_default(),
    ))
}

/// Creates the clients for the endpoints that a configuration and flags name. Flags win.
pub(crate) async fn connect_as(
    config: Option<&Config>,
    args: &AwsArgs,
) -> anyhow::Result<AwsClients> {
    let file = config.map_or_else(AwsConfig::default, |config| config.aws.clone());
    connect(&merge(&file, args)?).await
}

/// Makes the clients.
pub(crate) async fn connect(config: &AwsConfig) -> anyhow::Result<AwsClients> {
    let options = config.options();
    Ok(Box::pin(shardmill_aws::connect(&options)).await?)
}
