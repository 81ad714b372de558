//! Starts and stops both services together.

use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::data_dir::{DataDir, Endpoints};
use crate::error::StartError;
use crate::kinesis::Front;
use crate::{dynamodb, kinesis};

/// Requests in flight get this long at a stop. None takes more than milliseconds, so more means a
/// stuck client.
const DRAIN_MAX: Duration = Duration::from_secs(3);

/// Where an embedded stack keeps its data and listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalOptions {
    /// Where everything is kept; `None` keeps it in memory.
    pub data_dir: Option<PathBuf>,
    /// The loopback port for Kinesis; 0 takes any.
    pub kinesis_port: u16,
    /// The loopback port for DynamoDB; 0 takes any.
    pub dynamodb_port: u16,
}

impl LocalOptions {
    /// Keeps nothing, on any ports: for tests.
    pub fn in_memory() -> Self {
        Self {
            data_dir: None,
            kinesis_port: 0,
            dynamodb_port: 0,
        }
    }

    /// Keeps everything in `data_dir`, on any ports.
    pub fn kept_in(data_dir: impl Into<PathBuf>) -> Self {
        Self {
            data_dir: Some(data_dir.into()),
            ..Self::in_memory()
        }
    }
}

/// Both services, running. Dropping it ends them at once, as a killed process would; [`Self::stop`]
/// ends them properly.
#[derive(Debug)]
pub struct LocalStack {
    kinesis_endpoint: String,
    dynamodb_endpoint: String,
    front: Arc<Front>,
    data_dir: Option<DataDir>,
    servers: JoinSet<()>,
    stop: CancellationToken,
}

impl LocalStack {
    /// Holds the data directory, restores what is in it, and serves.
    pub async fn start(options: LocalOptions) -> Result<Self, StartError> {
        let data_dir = options.data_dir.as_deref().map(DataDir::hold).transpose()?;
        let kinesis_listener = bind("kinesis", options.kinesis_port).await?;
        let dynamodb_listener = bind("dynamodb", options.dynamodb_port).await?;
        let path = data_dir.as_ref().map(DataDir::path);
        let database = dynamodb::open(path)?;
        let stop = CancellationToken::new();
        let front = Front::restore(path, stop.clone()).await?;
        let mut stack = Self {
            kinesis_endpoint: endpoint(&kinesis_listener)?,
            dynamodb_endpoint: endpoint(&dynamodb_listener)?,
            front,
            data_dir,
            servers: JoinSet::new(),
            stop: stop.clone(),
        };
        stack.write_endpoints()?;
        let dynamodb = dynamodb::serve(dynamodb_listener, database, stop);
        stack.servers.spawn(dynamodb);
        stack.serve_kinesis(kinesis_listener);
        Ok(stack)
    }

    fn serve_kinesis(&mut self, listener: TcpListener) {
        let front = Arc::clone(&self.front);
        let server = kinesis::serve(listener, front, self.stop.clone());
        self.servers.spawn(server);
    }

    fn write_endpoints(&self) -> Result<(), StartError> {
        let Some(dir) = &self.data_dir else {
            return Ok(());
        };
        dir.write_endpoints(&Endpoints {
            kinesis: &self.kinesis_endpoint,
            dynamodb: &self.dynamodb_endpoint,
            pid: std::process::id(),
        })
    }

    /// The URL of the embedded Kinesis, such as `http://127.0.0.1:4567`.
    pub fn kinesis_endpoint(&self) -> &str {
        &self.kinesis_endpoint
    }

    /// The URL of the embedded DynamoDB, such as `http://127.0.0.1:8000`.
    pub fn dynamodb_endpoint(&self) -> &str {
        &self.dynamodb_endpoint
    }

    /// Lets requests in flight finish, and makes sure that everything is on disk.
    pub async fn stop(mut self) {
        self.stop.cancel();
        let drained = async { while self.servers.join_next().await.is_some() {} };
        if tokio::time::timeout(DRAIN_MAX, drained).await.is_err() {
            tracing::warn!(
                code = "local-requests-cut",
                "the embedded stack ends with requests in flight"
            );
            self.servers.shutdown().await;
        }
        self.front.close().await;
        if let Some(dir) = &self.data_dir {
            dir.remove_endpoints();
        }
    }
}

impl Drop for LocalStack {
    fn drop(&mut self) {
        // Each connection has a task, which this ends.
        self.stop.cancel();
    }
}

async fn bind(service: &'static str, port: u16) -> Result<TcpListener, StartError> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port))
        .await
        .map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => StartError::PortTaken { service, port },
            _ => StartError::Io {
                what: format!("listen on port {port} for {service}"),
                source: error,
            },
        })
}

fn endpoint(listener: &TcpListener) -> Result<String, StartError> {
    let address = listener
        .local_addr()
        .map_err(StartError::io("read a listener's address"))?;
    Ok(format!("http://{address}"))
}
