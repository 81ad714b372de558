//! The coordinator table of one application, through `Query`, `GetItem`, `PutItem`, `UpdateItem`
//! and `DeleteItem`.

use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::operation::put_item::builders::PutItemFluentBuilder;
use aws_sdk_dynamodb::types::TimeToLiveSpecification;
use shardmill_core::control::{Control, HistoryEntry};
use shardmill_core::fleet::{
    ApplicationStart, FleetRows, LeaderRow, Mail, Mailbox, StreamRow, WorkerRow,
};
use shardmill_core::lease::WorkerId;
use shardmill_core::plugin::{PluginDigest, coordinator_table};
use shardmill_core::ports::{CachedShards, Coordinator, PortFuture, Raced, StoreError};
use shardmill_core::rollout::Quarantined;

use super::attributes::{Item, number, text};
use super::coordinator_condition::{AS_SEEN, BEAT_AS_SEEN, Condition, as_seen};
use super::coordinator_item::{self, BULLETIN, NAME, WORKER_PREFIX, collect};
use super::errors::{is_condition_failed, store_error};
use super::history_item::{self, EXPIRES};
use super::mail_item;
use super::row::{self, FLEET, ID, KIND, key};
use super::scope::Scope;
use super::shard_cache::{self, SHARDS};
use super::stream_asked::StreamAsked;
use super::table;
use super::table_options::TableOptions;
use super::unreadable::Unreadable;
use super::version_item;

/// A page is up to 1 MiB: this bounds a query at thousands of workers, or a hundred thousand
/// shards.
const PAGES_MAX: usize = 100;

/// Wait between two chunks of a shard list: a chunk costs up to 330 write units, and a partition
/// takes 1,000 a second (AWS limit), of which heartbeats need some.
const CHUNK_EVERY: Duration = Duration::from_millis(500);
const WHOLE_KIND: &str = "#kind = :kind";
const PART_OF_KIND: &str = "#kind = :kind AND id < :before";

/// The coordinator table of one application.
#[derive(Debug, Clone)]
pub struct CoordinatorTable {
    client: Client,
    table: String,
    scope: Scope,
    unreadable: Unreadable,
    pub(super) options: Arc<TableOptions>,
}

impl CoordinatorTable {
    /// Accesses the coordinator table of `application`, which is `<application>-coordinator`; only
    /// what one standalone host has there with `APPLICATION@HOST`.
    pub fn new(client: Client, application: &str) -> Self {
        Self {
            client,
            table: coordinator_table(application),
            scope: Scope::of(application),
            unreadable: Unreadable::default(),
            options: Arc::default(),
        }
    }

    /// Makes the table in this way if it is missing.
    #[must_use]
    pub fn made_as(self, options: Arc<TableOptions>) -> Self {
        Self { options, ..self }
    }

    /// The name of the DynamoDB table.
    pub fn name(&self) -> &str {
        &self.table
    }

    /// Whether the table exists; creates nothing.
    pub async fn exists(&self) -> Result<bool, StoreError> {
        table::exists(&self.client, &self.table).await
    }

    /// The rows of a partition; only those before a sort key if one is given.
    pub(super) async fn query(
        &self,
        kind: &str,
        before: Option<&str>,
    ) -> Result<Vec<Item>, StoreError> {
        self.learn_stream().await?;
        let mut request = self
            .client
            .query()
            .table_name(&self.table)
            .expression_attribute_names("#kind", KIND)
            .expression_attribute_values(":kind", text(&self.scope.partition(kind)));
        request = match before {
            None => request.key_condition_expression(WHOLE_KIND),
            Some(before) => request
                .key_condition_expression(PART_OF_KIND)
                .expression_attribute_values(":before", text(before)),
        };
        let mut items = Vec::new();
        let mut start = None;
        for _ in 0..PAGES_MAX {
            let page = request.clone().set_exclusive_start_key(start).send().await;
            let page = page.map_err(|error| self.error(&error))?;
            items.extend(page.items.unwrap_or_default());
            start = page.last_evaluated_key.filter(|key| !key.is_empty());
            if start.is_none() {
                return Ok(items);
            }
        }
        let table = &self.table;
        Err(StoreError::Refused {
            message: format!("table {table}: {kind} has more than {PAGES_MAX} pages"),
        })
    }

    async fn read_fleet(&self, before: Option<&str>) -> Result<FleetRows, StoreError> {
        let mut rows = FleetRows::default();
        for item in self.query(FLEET, before).await? {
            super::rows_version::check(&self.table, &item)?;
            let read = collect(&item, &mut rows);
            let id = row::string(&item, ID).unwrap_or("?");
            if let Some(problem) = self.unreadable.news(id, read.err()) {
                tracing::warn!(
                    table = self.table,
                    id,
                    problem,
                    code = "coordinator-row-unreadable",
                    "a coordinator row cannot be read, leaving it alone; delete it if no newer \
                        version wrote it"
                );
            }
        }
        Ok(rows)
    }

    /// One row, strongly consistent.
    pub(super) async fn row(&self, row_key: Item) -> Result<Option<Item>, StoreError> {
        self.learn_stream().await?;
        let request = self
            .client
            .get_item()
            .table_name(&self.table)
            .set_key(Some(self.scope.own_of_coordinator(row_key)))
            .consistent_read(true);
        let reply = request.send().await.map_err(|error| self.error(&error))?;
        Ok(reply.item)
    }

    async fn read_worker(&self, id: &WorkerId) -> Result<Option<WorkerRow>, StoreError> {
        let row_key = key(FLEET, &coordinator_item::worker_id(id));
        let Some(item) = self.row(row_key).await? else {
            return Ok(None);
        };
        match coordinator_item::decode_worker(&item) {
            Ok(row) => Ok(Some(row)),
            Err(problem) => Err(StoreError::Refused {
                message: format!(
                    "table {}: the row of worker {id} cannot be read, delete it: {problem}",
                    self.table
                ),
            }),
        }
    }

    async fn read_mailbox(&self, id: &WorkerId) -> Result<Mailbox, StoreError> {
        let items = self.query(&mail_item::partition_of(id), None).await?;
        Ok(mail_item::collect(&items))
    }

    /// Makes DynamoDB remove old entries of the history. Of use only where it is allowed, and
    /// needed once; nothing depends on it.
    pub async fn let_history_expire(&self) -> Result<(), StoreError> {
        let spec = TimeToLiveSpecification::builder()
            .attribute_name(EXPIRES)
            .enabled(true)
            .build()
            .map_err(|error| StoreError::Refused {
                message: error.to_string(),
            })?;
        let request = self
            .client
            .update_time_to_live()
            .table_name(&self.table)
            .time_to_live_specification(spec);
        let reply = request.send().await;
        reply.map(drop).map_err(|error| self.error(&error))
    }

    /// Replaces where the application began, if that still is what was read. No host does this.
    pub async fn replace_start(
        &self,
        seen: &ApplicationStart,
        next: &ApplicationStart,
    ) -> Result<Raced, StoreError> {
        let condition = Condition::is_as_seen("lookedAtMillis = :seen", seen.looked_at_ms);
        let item = coordinator_item::encode_start(next);
        self.put_if(condition, item).await
    }

    async fn remove(&self, row_key: Item) -> Result<(), StoreError> {
        self.learn_stream().await?;
        let request = self
            .client
            .delete_item()
            .table_name(&self.table)
            .set_key(Some(self.scope.own_of_coordinator(row_key)));
        let reply = request.send().await;
        reply.map(drop).map_err(|error| self.error(&error))
    }

    async fn put(&self, item: Item) -> Result<(), StoreError> {
        self.learn_stream().await?;
        let request = self.put_request(item).send().await;
        request.map(drop).map_err(|error| self.error(&error))
    }

    pub(super) async fn put_if(
        &self,
        condition: Condition,
        item: Item,
    ) -> Result<Raced, StoreError> {
        self.learn_stream().await?;
        let values = (!condition.values.is_empty()).then_some(condition.values);
        let mut request = self
            .put_request(item)
            .condition_expression(condition.expression)
            .set_expression_attribute_values(values);
        // `name` is a reserved word of DynamoDB.
        if condition.expression.contains("#name") {
            request = request.expression_attribute_names("#name", NAME);
        }
        match request.send().await {
            Ok(_) => Ok(Raced::Applied),
            Err(error) if is_condition_failed(&error) => Ok(Raced::Lost),
            Err(error) => Err(self.error(&error)),
        }
    }

    fn put_request(&self, item: Item) -> PutItemFluentBuilder {
        self.client
            .put_item()
            .table_name(&self.table)
            .set_item(Some(self.scope.own_of_coordinator(item)))
    }

    async fn delete(&self, row: &WorkerRow) -> Result<Raced, StoreError> {
        let row_key = key(FLEET, &coordinator_item::worker_id(&row.worker));
        let condition = Condition {
            expression: AS_SEEN,
            values: as_seen(row),
        };
        self.remove_if(condition, row_key).await
    }

    async fn remove_if(&self, condition: Condition, row_key: Item) -> Result<Raced, StoreError> {
        self.learn_stream().await?;
        let request = self
            .client
            .delete_item()
            .table_name(&self.table)
            .set_key(Some(self.scope.own_of_coordinator(row_key)))
            .condition_expression(condition.expression)
            .set_expression_attribute_values(Some(condition.values));
        match request.send().await {
            Ok(_) => Ok(Raced::Applied),
            Err(error) if is_condition_failed(&error) => Ok(Raced::Lost),
            Err(error) => Err(self.error(&error)),
        }
    }

    /// Writes an item if the table shows that beat of it, or no such item without one.
    pub(super) async fn put_if_beat(
        &self,
        seen: Option<u64>,
        item: Item,
    ) -> Result<Raced, StoreError> {
        let condition = seen.map_or_else(Condition::is_new, |beat| {
            Condition::is_as_seen(BEAT_AS_SEEN, beat)
        });
        self.put_if(condition, item).await
    }

    /// Removes a row if the table shows that beat of it.
    pub(super) async fn remove_if_beat(
        &self,
        seen: u64,
        row_key: Item,
    ) -> Result<Raced, StoreError> {
        let condition = Condition::is_as_seen(BEAT_AS_SEEN, seen);
        self.remove_if(condition, row_key).await
    }

    async fn raise_bulletin(&self) -> Result<(), StoreError> {
        self.learn_stream().await?;
        let request = self
            .client
            .update_item()
            .table_name(&self.table)
            .set_key(Some(self.scope.own_of_coordinator(key(FLEET, BULLETIN))))
            .update_expression("ADD version :one")
            .expression_attribute_values(":one", number(1));
        let reply = request.send().await;
        reply.map(drop).map_err(|error| self.error(&error))
    }

    /// Writes the chunks first and the index last: a reader that sees the index sees its chunks, or
    /// knows that it does not.
    async fn write_list(&self, shards: &CachedShards) -> Result<(), StoreError> {
        let version = format!("{:016x}", fastrand::u64(..));
        let (index, chunks) = shard_cache::encode(shards, &version)
            .map_err(|message| StoreError::Refused { message })?;
        for (number, chunk) in chunks.into_iter().enumerate() {
            if number > 0 {
                tokio::time::sleep(CHUNK_EVERY).await;
            }
            self.put(chunk).await?;
        }
        self.put(index).await
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    pub(super) fn scope(&self) -> &Scope {
        &self.scope
    }

    pub(super) fn asking(self, asked: StreamAsked) -> Self {
        let scope = self.scope.asking(asked);
        Self { scope, ..self }
    }

    pub(super) fn error<E, R>(&self, error: &aws_sdk_dynamodb::error::SdkError<E, R>) -> StoreError
    where
        E: aws_sdk_dynamodb::error::ProvideErrorMetadata + std::error::Error + 'static,
        R: std::fmt::Debug + 'static,
    {
        store_error(&self.table, error)
    }
}

impl Coordinator for CoordinatorTable {
    fn ensure_table(&self) -> PortFuture<'_, Result<(), StoreError>> {
        Box::pin(self.ensure())
    }

    fn fleet(&self) -> PortFuture<'_, Result<FleetRows, StoreError>> {
        Box::pin(self.read_fleet(None))
    }

    fn board(&self) -> PortFuture<'_, Result<FleetRows, StoreError>> {
        // Workers' rows come last in the order of sort keys.
        Box::pin(self.read_fleet(Some(WORKER_PREFIX)))
    }

    fn mailbox<'a>(&'a self, id: &'a WorkerId) -> PortFuture<'a, Result<Mailbox, StoreError>> {
        Box::pin(self.read_mailbox(id))
    }

    fn leave_mail<'a>(
        &'a self,
        id: &'a WorkerId,
        mail: Option<&'a Mail>,
    ) -> PortFuture<'a, Result<(), StoreError>> {
        match mail {
            Some(mail) => Box::pin(self.put(mail_item::encode(id, mail))),
            None => Box::pin(async move {
                self.remove(mail_item::nudge_key(id)).await?;
                self.remove(mail_item::key_of(id)).await
            }),
        }
    }

    fn nudge<'a>(
        &'a self,
        id: &'a WorkerId,
        number: u64,
    ) -> PortFuture<'a, Result<(), StoreError>> {
        Box::pin(self.put(mail_item::encode_nudge(id, number)))
    }

    fn write_control<'a>(
        &'a self,
        seen: &'a Control,
        next: &'a Control,
    ) -> PortFuture<'a, Result<Raced, StoreError>> {
        Box::pin(self.change_control(seen, next))
    }

    fn record<'a>(&'a self, entry: &'a HistoryEntry) -> PortFuture<'a, Result<(), StoreError>> {
        Box::pin(self.put(history_item::encode(entry, fastrand::u32(..))))
    }

    fn worker<'a>(
        &'a self,
        id: &'a WorkerId,
    ) -> PortFuture<'a, Result<Option<WorkerRow>, StoreError>> {
        Box::pin(self.read_worker(id))
    }

    fn register<'a>(
        &'a self,
        seen: Option<&'a WorkerRow>,
        row: &'a WorkerRow,
    ) -> PortFuture<'a, Result<Raced, StoreError>> {
        let condition = match seen {
            None => Condition::is_new(),
            Some(seen) => Condition {
                expression: AS_SEEN,
                values: as_seen(seen),
            },
        };
        Box::pin(self.put_if(condition, coordinator_item::encode_worker(row)))
    }

    fn heartbeat<'a>(&'a self, row: &'a WorkerRow) -> PortFuture<'a, Result<Raced, StoreError>> {
        // The beat rises, so that a request that was delayed for long cannot turn it back.
        let condition = Condition {
            expression: "incarnation = :run AND beat < :beat",
            values: as_seen(row),
        };
        Box::pin(self.put_if(condition, coordinator_item::encode_worker(row)))
    }

    fn remove_worker<'a>(
        &'a self,
        row: &'a WorkerRow,
    ) -> PortFuture<'a, Result<Raced, StoreError>> {
        Box::pin(self.delete(row))
    }

    fn write_leader<'a>(
        &'a self,
        seen: Option<&'a LeaderRow>,
        next: &'a LeaderRow,
    ) -> PortFuture<'a, Result<Raced, StoreError>> {
        let condition = match seen {
            None => Condition::is_new(),
            Some(seen) => Condition::is_as_seen("version = :seen", seen.version),
        };
        Box::pin(self.put_if(condition, coordinator_item::encode_leader(next)))
    }

    fn write_stream<'a>(
        &'a self,
        seen: Option<&'a StreamRow>,
        next: &'a StreamRow,
    ) -> PortFuture<'a, Result<Raced, StoreError>> {
        let condition = match seen {
            None => Condition::is_new(),
            Some(seen) => Condition {
                expression: "#name = :name AND createdAtMillis = :created",
                values: Item::from([
                    (":name".to_owned(), text(seen.name.as_str())),
                    (":created".to_owned(), number(seen.identity.created_at_ms)),
                ]),
            },
        };
        Box::pin(self.put_if(condition, coordinator_item::encode_stream(next)))
    }

    fn write_start<'a>(
        &'a self,
        start: &'a ApplicationStart,
    ) -> PortFuture<'a, Result<Raced, StoreError>> {
        Box::pin(self.put_if(Condition::is_new(), coordinator_item::encode_start(start)))
    }

    fn quarantine<'a>(&'a self, entry: &'a Quarantined) -> PortFuture<'a, Result<(), StoreError>> {
        Box::pin(self.put(version_item::encode_quarantined(entry)))
    }

    fn release_version<'a>(
        &'a self,
        digest: &'a PluginDigest,
    ) -> PortFuture<'a, Result<(), StoreError>> {
        Box::pin(self.remove(version_item::quarantine_key(digest)))
    }

    fn announce(&self) -> PortFuture<'_, Result<(), StoreError>> {
        Box::pin(self.raise_bulletin())
    }

    fn shards(&self) -> PortFuture<'_, Result<Option<CachedShards>, StoreError>> {
        Box::pin(async move { Ok(shard_cache::decode(&self.query(SHARDS, None).await?)) })
    }

    fn write_shards<'a>(
        &'a self,
        shards: &'a CachedShards,
    ) -> PortFuture<'a, Result<(), StoreError>> {
        Box::pin(self.write_list(shards))
    }
}

#[cfg(test)]
mod tests {
    use shardmill_core::fleet::{Incarnation, StreamIdentity};
    use shardmill_core::stream::{HashKeyRange, Shard, ShardId};
    use tokio::time::Instant;

    use super::*;
    use crate::transport_double::TransportDouble;

    fn list(count: usize) -> CachedShards {
        let shard = |n: usize| Shard {
            id: ShardId::new(format!("shardId-{n:012}")).unwrap(),
            parents: Vec::new(),
            hash_range: HashKeyRange::FULL,
            ending_sequence: None,
        };
        CachedShards {
            identity: StreamIdentity { created_at_ms: 5 },
            shards: (0..count).map(shard).collect(),
            listed_by: Incarnation::new("run").unwrap(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_list_is_written_in_chunks_with_time_between_them_and_the_index_last() {
        let transport = TransportDouble::new([(200, "{}"); 4]);
        let table = CoordinatorTable::new(transport.dynamodb(), "orders");
        let started = Instant::now();
        table.write_list(&list(2_001)).await.unwrap();
        assert!(started.elapsed() >= CHUNK_EVERY * 2);
        let written = transport.requests();
        assert_eq!(written.len(), 4);
        for (number, chunk) in written[..3].iter().enumerate() {
            assert!(chunk.contains(&format!("chunk#{number:06}")), "{chunk}");
        }
        assert!(
            written[3].contains("\"chunks\":{\"N\":\"3\"}"),
            "{}",
            written[3]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_of_one_chunk_waits_for_nothing() {
        let transport = TransportDouble::new([(200, "{}"); 2]);
        let table = CoordinatorTable::new(transport.dynamodb(), "orders");
        let started = Instant::now();
        table.write_list(&list(1_000)).await.unwrap();
        assert!(started.elapsed() < CHUNK_EVERY);
        assert_eq!(transport.requests().len(), 2);
    }
}
