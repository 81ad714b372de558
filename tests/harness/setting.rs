//! The setting of a scenario: a folder with plugins and configuration, the embedded stack, a stream
//! with flights in it.

use std::path::{Path, PathBuf};
use std::process::Command;

use shardmill_aws::{AwsClients, LeaseTable, StreamAdmin};
use shardmill_core::lease::{Checkpoint, Lease};
use shardmill_core::ports::LeaseStore;
use shardmill_core::stream::StreamName;
use shardmill_local::{LocalOptions, LocalStack};
use tempfile::TempDir;

use crate::embedded::clients;
use crate::process::{Host, binary, shardmill};

/// The stream's name.
pub const STREAM: &str = "flights";

/// A scenario's setting.
pub struct Setting {
    folder: TempDir,
    stack: LocalStack,
    /// Clients for the stack.
    pub clients: AwsClients,
}

impl Setting {
    /// A stack in this process with an empty stream of `shards`, and an empty plugins folder.
    ///
    /// # Panics
    ///
    /// If it cannot be set up.
    pub async fn new(shards: u32) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join("plugins")).expect("a plugins folder");
        let stack = LocalStack::start(LocalOptions::kept_in(folder.path().join("data")))
            .await
            .expect("the stack");
        let clients = clients(&stack).await;
        let stream = StreamName::new(STREAM).expect("valid");
        StreamAdmin::new(clients.kinesis.clone())
            .ensure_stream(&stream, shards)
            .await
            .expect("the stream");
        Self {
            folder,
            stack,
            clients,
        }
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The stack, for programs that need to be told where it is.
    pub fn stack(&self) -> &LocalStack {
        &self.stack
    }

    /// Puts a component into the plugins folder under `name`, in one step.
    ///
    /// # Panics
    ///
    /// If it cannot be written.
    pub fn drop_plugin(&self, name: &str, bytes: &[u8]) {
        let fresh = self.path().join("plugins").join(format!(".{name}.new"));
        std::fs::write(&fresh, bytes).expect("written");
        std::fs::rename(
            fresh,
            self.path().join("plugins").join(format!("{name}.wasm")),
        )
        .expect("renamed");
    }

    /// Puts a manifest beside a component, in one step.
    ///
    /// # Panics
    ///
    /// If it cannot be written.
    pub fn drop_manifest(&self, name: &str, text: &str) {
        let fresh = self
            .path()
            .join("plugins")
            .join(format!(".{name}.toml.new"));
        std::fs::write(&fresh, text).expect("written");
        std::fs::rename(
            fresh,
            self.path().join("plugins").join(format!("{name}.toml")),
        )
        .expect("renamed");
    }

    /// Starts a host whose output goes to `ID.ndjson`.
    ///
    /// # Panics
    ///
    /// If it cannot be started.
    pub fn host(&self, id: &str) -> Host {
        self.host_with(
            id,
            "[reads]\ncalls-per-second = 50.0\nbytes-per-second = \"1GiB\"\nidle-every = \"50ms\"",
        )
    }

    /// The same with its own settings for reads and batches.
    ///
    /// # Panics
    ///
    /// If it cannot be started.
    pub fn host_with(&self, id: &str, reads_and_batches: &str) -> Host {
        self.host_sharing(
            id,
            "duration = \"3s\"\nscan-every = \"200ms\"",
            reads_and_batches,
        )
    }

    /// The same with its own settings for leases too.
    ///
    /// # Panics
    ///
    /// If it cannot be started.
    pub fn host_sharing(&self, id: &str, leases: &str, reads_and_batches: &str) -> Host {
        let file = self.configure(id, leases, reads_and_batches);
        Host::start(id, &["run", "--config", &file, "--local"], self.path())
    }

    /// The same, with variables in its environment.
    ///
    /// # Panics
    ///
    /// If it cannot be started.
    pub fn host_knowing(
        &self,
        id: &str,
        reads_and_batches: &str,
        variables: &[(&str, &Path)],
    ) -> Host {
        let file = self.configure(
            id,
            "duration = \"3s\"\nscan-every = \"200ms\"",
            reads_and_batches,
        );
        let mut command = Command::new(binary());
        command
            .args(["run", "--config", &file, "--local"])
            .envs(variables.iter().copied());
        Host::run(id, command, self.path())
    }

    /// The same, killed by the system once it has used so many seconds of processor time.
    ///
    /// # Panics
    ///
    /// If it cannot be started.
    pub fn host_within(&self, id: &str, reads_and_batches: &str, cpu_seconds: u32) -> Host {
        // The soft limit alone: the compiler, which is started by the host, sets one of its own.
        self.host_under(id, reads_and_batches, &format!("-S -t {cpu_seconds}"))
    }

    /// The same under a limit, as the shell's `ulimit` takes it.
    ///
    /// # Panics
    ///
    /// If it cannot be started.
    pub fn host_under(&self, id: &str, reads_and_batches: &str, limit: &str) -> Host {
        let file = self.configure(
            id,
            "duration = \"3s\"\nscan-every = \"200ms\"",
            reads_and_batches,
        );
        let mut command = Command::new("sh");
        let limited = format!("ulimit {limit}; exec \"$0\" \"$@\"");
        command
            .args(["-c", &limited])
            .arg(binary())
            .args(["run", "--config", &file, "--local"]);
        Host::run(id, command, self.path())
    }

    /// The same, with another folder of plugins.
    ///
    /// # Panics
    ///
    /// If it cannot be started.
    pub fn host_in(&self, id: &str, plugins: &str, reads_and_batches: &str) -> Host {
        let file = self.configure(
            id,
            "duration = \"3s\"\nscan-every = \"200ms\"",
            reads_and_batches,
        );
        let config = std::fs::read_to_string(self.path().join(&file)).expect("just written");
        std::fs::write(
            self.path().join(&file),
            format!("plugins = {plugins:?}\n{config}"),
        )
        .expect("written");
        Host::start(id, &["run", "--config", &file, "--local"], self.path())
    }

    /// The same, with the lease table behind another endpoint that `leases` names after its own
    /// settings.
    ///
    /// # Panics
    ///
    /// If it cannot be started.
    pub fn host_behind(&self, id: &str, leases: &str, reads_and_batches: &str) -> Host {
        let file = self.configure(id, leases, reads_and_batches);
        let kinesis = self.stack.kinesis_endpoint();
        let mut command = Command::new(binary());
        command.args([
            "run",
            "--config",
            &file,
            "--kinesis-endpoint",
            kinesis,
            "--region",
            "us-east-1",
        ]);
        command
            .env("AWS_ACCESS_KEY_ID", "test")
            .env("AWS_SECRET_ACCESS_KEY", "test");
        Host::run(id, command, self.path())
    }

    /// Writes the configuration of a host that has yet to be started; gives its file's name.
    ///
    /// # Panics
    ///
    /// If it cannot be written.
    pub fn configure(&self, id: &str, leases: &str, reads_and_batches: &str) -> String {
        let config = format!(
            r#"
stream = "{STREAM}"
worker-id = "{id}"
[leases]
{leases}
{reads_and_batches}
[checkpoint]
age = "300ms"
[sinks.out]
type = "file"
path = "{id}.ndjson"
[plugin.flights.config]
destination = "out"
[plugin.versioned.config]
destination = "out"
[plugin.poison.config]
destination = "out"
"#
        );
        let file = format!("{id}.toml");
        std::fs::write(self.path().join(&file), config).expect("written");
        file
    }

    /// The output of a host.
    pub fn output_of(&self, id: &str) -> PathBuf {
        self.path().join(format!("{id}.ndjson"))
    }

    /// Puts the lines of `file` into the stream with the real command; gives the last sequence
    /// number of each shard.
    ///
    /// # Panics
    ///
    /// If the command fails.
    pub async fn put(&self, file: &Path) -> Vec<(String, String)> {
        self.put_into(STREAM, file).await
    }

    /// The same into another stream.
    ///
    /// # Panics
    ///
    /// If the command fails.
    pub async fn put_into(&self, stream: &str, file: &Path) -> Vec<(String, String)> {
        let file = file.to_str().expect("utf-8");
        let args = [
            "put",
            "--local",
            "--stream",
            stream,
            "--key-field",
            "flight",
            "--json",
            file,
        ];
        let output = shardmill(&args, self.path()).await;
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let summary: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a summary");
        let last = summary["last-sequence-numbers"]
            .as_object()
            .expect("positions");
        last.iter()
            .map(|(shard, last)| (shard.clone(), last.as_str().expect("text").to_owned()))
            .collect()
    }

    /// The rows of an application.
    pub async fn leases(&self, application: &str) -> Vec<Lease> {
        let table = LeaseTable::new(self.clients.dynamodb.clone(), application);
        table
            .list()
            .await
            .map(|listing| listing.leases)
            .unwrap_or_default()
    }

    /// Waits until every shard's checkpoint has reached its last record.
    ///
    /// # Panics
    ///
    /// If that takes too long.
    pub async fn until_checkpointed(&self, application: &str, last: &[(String, String)]) {
        let deadline = tokio::time::Instant::now() + std::time::Duration::from_mins(5);
        loop {
            let leases = self.leases(application).await;
            let is_done = last.iter().all(|(shard, sequence)| {
                leases.iter().any(|lease| {
                    lease.key.as_str() == shard
                        && match &lease.checkpoint {
                            Checkpoint::ShardEnd => true,
                            Checkpoint::At(position) => {
                                position.sequence.as_str() >= sequence.as_str()
                            }
                            Checkpoint::TrimHorizon
                            | Checkpoint::Latest
                            | Checkpoint::AtTimestamp
                            | Checkpoint::Sought(_) => false,
                        }
                })
            });
            if is_done {
                return;
            }
            assert!(
                tokio::time::Instant::now() < deadline,
                "not all checkpointed: {leases:#?}"
            );
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }

    /// Ends the stack properly.
    pub async fn stop(self) {
        self.stack.stop().await;
    }
}
