//! Standalone hosts in real tables, with rows of each kind that hosts write.

use std::collections::HashMap;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::AttributeValue;
use bytes::Bytes;
use shardmill_aws::{CoordinatorTable, LeaseTable, StandaloneTables};
use shardmill_core::control::{Deed, HistoryEntry};
use shardmill_core::fleet::{Incarnation, StreamIdentity, WorkerRow};
use shardmill_core::lease::{Checkpoint, WorkerId};
use shardmill_core::plugin::{of_standalone_host, tables_of};
use shardmill_core::ports::{
    CachedShards, CheckpointWrite, Coordinator, LeaseStore, PortFuture, Progress, StandaloneHosts,
    Took,
};

use crate::contract::lease_store::fresh;
use crate::contract::standalone_hosts::StandaloneControl;

/// See the module's description.
pub struct StandaloneScene {
    client: Client,
    application: String,
    hosts: StandaloneTables,
}

impl StandaloneScene {
    /// An application whose tables exist.
    pub async fn of(client: Client, application: &str) -> Self {
        let any = of_standalone_host(application, "any");
        let leases = LeaseTable::new(client.clone(), &any);
        leases.ensure_table().await.expect("a lease table");
        leases.ensure_state_table().await.expect("a state table");
        let coordinator = CoordinatorTable::new(client.clone(), &any);
        coordinator
            .ensure_table()
            .await
            .expect("a coordinator table");
        Self {
            hosts: StandaloneTables::new(client.clone(), application).with_state(true),
            client,
            application: application.to_owned(),
        }
    }

    async fn write_lease_with_state(&self, id: &WorkerId) {
        let leases = LeaseTable::new(self.client.clone(), self.own_name(id));
        let lease = fresh(0);
        leases.create(&lease).await.expect("created");
        let took = leases.take(&lease, id, 1).await.expect("taken");
        let Took::Applied { token, .. } = took else {
            panic!("nobody else is there: {took:?}");
        };
        let write = CheckpointWrite {
            checkpoint: Checkpoint::TrimHorizon,
            progress: Progress::default(),
            state: Some(Bytes::from_static(b"state")),
        };
        leases.checkpoint(&token, &write).await.expect("written");
    }

    async fn write_fleet_rows(&self, id: &WorkerId) {
        let table = CoordinatorTable::new(self.client.clone(), &self.own_name(id));
        let incarnation = Incarnation::new("run").expect("not empty");
        let row = WorkerRow {
            worker: id.clone(),
            incarnation: incarnation.clone(),
            beat: 0,
            lease_duration: Duration::from_secs(10),
            is_draining: false,
            max_leases: usize::MAX,
            versions: Vec::new(),
            cannot_write: None,
            cannot_look: None,
            artifact: None,
            load: None,
        };
        table.register(None, &row).await.expect("registered");
        table.nudge(id, 7).await.expect("nudged");
        let shards = CachedShards {
            identity: StreamIdentity { created_at_ms: 5 },
            shards: Vec::new(),
            listed_by: incarnation,
        };
        table.write_shards(&shards).await.expect("written");
        let entry = HistoryEntry {
            at_ms: 1,
            by: "a test".to_owned(),
            deed: Deed::Delete,
            shard: None,
            details: "any".to_owned(),
            why: String::new(),
        };
        table.record(&entry).await.expect("recorded");
        // With the history, these are what operators want of a host.
        let seen = table.board().await.expect("read").control;
        let paused = seen.changed(|_| {});
        table.write_control(&seen, &paused).await.expect("written");
    }

    fn own_name(&self, id: &WorkerId) -> String {
        of_standalone_host(&self.application, id.as_str())
    }
}

impl StandaloneControl for StandaloneScene {
    fn hosts(&self) -> &dyn StandaloneHosts {
        &self.hosts
    }

    fn serve<'a>(&'a self, id: &'a WorkerId) -> PortFuture<'a, ()> {
        Box::pin(async move {
            self.write_lease_with_state(id).await;
            self.write_fleet_rows(id).await;
        })
    }

    fn rows<'a>(&'a self, id: &'a WorkerId) -> PortFuture<'a, usize> {
        Box::pin(async move {
            let mut rows = 0;
            for table in tables_of(&self.application) {
                let reply = self.client.scan().table_name(table).send().await;
                let items = reply.expect("scanned").items.unwrap_or_default();
                rows += items.iter().filter(|item| is_of(id, item)).count();
            }
            rows
        })
    }
}

/// By the raw attributes, so that nothing is overlooked that the adapter does not know.
fn is_of(id: &WorkerId, item: &HashMap<String, AttributeValue>) -> bool {
    let text = |name: &str| item.get(name).and_then(|value| value.as_s().ok());
    let in_partition = text("kind").and_then(|kind| kind.split_once('@'));
    text("host").is_some_and(|host| host == id.as_str())
        || in_partition.is_some_and(|(_, host)| host == id.as_str())
}
