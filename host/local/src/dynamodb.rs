//! The embedded DynamoDB: dynoxide over SQLite, in one file.
//!
//! SQLite's write-ahead log makes every answered write survive a killed process.

use std::path::Path;

use dynoxide::Database;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::error::StartError;

const FILE: &str = "dynamodb.sqlite";

/// Opens the database in `data_dir`, or one in memory.
pub(crate) fn open(data_dir: Option<&Path>) -> Result<Database, StartError> {
    let emulator = |problem: dynoxide::errors::DynoxideError| StartError::Emulator {
        service: "dynamodb",
        problem: problem.to_string(),
    };
    let Some(dir) = data_dir else { return Database::memory().map_err(emulator) };
    let path = dir.join(FILE);
    let database = Database::new(&path.to_string_lossy()).map_err(emulator)?;
    // Sets `synchronous = NORMAL`: a commit is one write to the log and no fsync. Only a power cut can take the last
    // commits back, which a development store may suffer; lease writes become ten times faster.
    database.disable_bulk_loading().map_err(emulator)?;
    Ok(database)
}

/// Serves until `stop`.
pub(crate) async fn serve(listener: TcpListener, database: Database, stop: CancellationToken) {
    if let Err(problem) = dynoxide::server::serve_with_shutdown(listener, database, stop.cancelled_owned()).await {
        tracing::error!(problem, "the embedded dynamodb ended");
    }
}
