//! The coordinator table of one application, through `Query`, `GetItem`, `PutItem`, `UpdateItem`
//! and `DeleteItem`.

use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::operation::delete_item::DeleteItemError;
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use shardmill_core::fleet::{ApplicationStart, FleetRows, LeaderRow, Mail, StreamRow, WorkerRow};
use shardmill_core::lease::WorkerId;
use shardmill_core::plugin::{PluginDigest, coordinator_table};
use shardmill_core::ports::{CachedShards, Coordinator, PortFuture, Raced, StoreError};
use shardmill_core::rollout::Quarantined;

use super::coordinator_item::{self, BULLETIN, NAME, WORKER_PREFIX, collect};
use super::errors::store_error;
use super::lease_item::{Item, number, text};
use super::mail_item;
use super::row::{self, FLEET, ID, KIND, key};
use super::shard_cache::{self, SHARDS};
use super::table::{self, Key};
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

/// Holds while a worker's row is as it was read; its values are `as_seen`.
const AS_SEEN: &str = "incarnation = :run AND beat = :beat";

/// The adapter.
#[derive(Debug, Clone)]
pub struct CoordinatorTable {
    client: Client,
    table: String,
    unreadable: Unreadable,
}

impl CoordinatorTable {
    /// The coordinator table of `application`, which is `<application>-coordinator`.
    pub fn new(client: Client, application: &str) -> Self {
        Self {
            client,
            table: coordinator_table(application),
            unreadable: Unreadable::default(),
        }
    }

    /// The table's name.
    pub fn name(&self) -> &str {
        &self.table
    }

    /// Whether the table is there; makes nothing.
    pub async fn exists(&self) -> Result<bool, StoreError> {
        table::exists(&self.client, &self.table).await
    }

    /// The rows of a partition, of those before a sort key if one is given.
    async fn query(&self, kind: &str, before: Option<&str>) -> Result<Vec<Item>, StoreError> {
        let (mut items, mut start) = (Vec::new(), None);
        for _ in 0..PAGES_MAX {
            let mut request = self
                .client
                .query()
                .table_name(&self.table)
                .key_condition_expression(if before.is_some() {
                    PART_OF_KIND
                } else {
                    WHOLE_KIND
                })
                .expression_attribute_names("#kind", KIND)
                .expression_attribute_values(":kind", text(kind))
                .set_exclusive_start_key(start);
            if let Some(before) = before {
                request = request.expression_attribute_values(":before", text(before));
            }
            let page = request.send().await.map_err(|error| self.error(&error))?;
            items.extend(page.items.unwrap_or_default());
            match page.last_evaluated_key.filter(|key| !key.is_empty()) {
                Some(next) => start = Some(next),
                None => return Ok(items),
            }
        }
        Err(StoreError::Refused {
            message: format!(
                "table {}: {kind} has more than {PAGES_MAX} pages",
                self.table
            ),
        })
    }

    async fn read_fleet(&self, before: Option<&str>) -> Result<FleetRows, StoreError> {
        let mut rows = FleetRows::default();
        for item in self.query(FLEET, before).await? {
            let read = collect(&item, &mut rows);
            let id = row::string(&item, ID).unwrap_or("?");
            if let Some(problem) = self.unreadable.news(id, read.err()) {
                tracing::warn!(
                    table = self.table,
                    id,
                    problem,
                    "a coordinator row cannot be read, leaving it alone; delete it if no newer \
                        version wrote it"
                );
            }
        }
        Ok(rows)
    }

    async fn read_worker(&self, id: &WorkerId) -> Result<Option<WorkerRow>, StoreError> {
        let row_key = key(FLEET, &coordinator_item::worker_id(id));
        let request = self
            .client
            .get_item()
            .table_name(&self.table)
            .set_key(Some(row_key))
            .consistent_read(true);
        let reply = request.send().await.map_err(|error| self.error(&error))?;
        let decode = |item: &Item| {
            coordinator_item::decode_worker(item).map_err(|problem| StoreError::Refused {
                message: format!(
                    "table {}: the row of worker {id} cannot be read, delete it: {problem}",
                    self.table
                ),
            })
        };
        reply.item.as_ref().map(decode).transpose()
    }

    /// Mail that cannot be read, a newer leader's for instance, is as good as none.
    async fn read_mail(&self, id: &WorkerId) -> Result<Option<Mail>, StoreError> {
        let request = self
            .client
            .get_item()
            .table_name(&self.table)
            .set_key(Some(mail_item::key_of(id)));
        let reply = request.send().await.map_err(|error| self.error(&error))?;
        Ok(reply
            .item
            .as_ref()
            .and_then(|item| mail_item::decode(item).ok()))
    }

    async fn remove_mail(&self, id: &WorkerId) -> Result<(), StoreError> {
        let request = self
            .client
            .delete_item()
            .table_name(&self.table)
            .set_key(Some(mail_item::key_of(id)));
        request
            .send()
            .await
            .map(drop)
            .map_err(|error| self.error(&error))
    }

    async fn put(&self, item: Item, condition: Option<(&str, Item)>) -> Result<Raced, StoreError> {
        let mut request = self
            .client
            .put_item()
            .table_name(&self.table)
            .set_item(Some(item));
        if let Some((condition, values)) = condition {
            let values = (!values.is_empty()).then_some(values);
            request = request
                .condition_expression(condition)
                .set_expression_attribute_values(values);
            // `name` is a reserved word of DynamoDB.
            if condition.contains("#name") {
                request = request.expression_attribute_names("#name", NAME);
            }
        }
        match request.send().await {
            Ok(_) => Ok(Raced::Applied),
            Err(error)
                if error
                    .as_service_error()
                    .is_some_and(PutItemError::is_conditional_check_failed_exception) =>
            {
                Ok(Raced::Lost)
            }
            Err(error) => Err(self.error(&error)),
        }
    }

    async fn delete(&self, row: &WorkerRow) -> Result<Raced, StoreError> {
        let request = self
            .client
            .delete_item()
            .table_name(&self.table)
            .set_key(Some(key(FLEET, &coordinator_item::worker_id(&row.worker))))
            .condition_expression(AS_SEEN)
            .set_expression_attribute_values(Some(as_seen(row)));
        match request.send().await {
            Ok(_) => Ok(Raced::Applied),
            Err(error)
                if error
                    .as_service_error()
                    .is_some_and(DeleteItemError::is_conditional_check_failed_exception) =>
            {
                Ok(Raced::Lost)
            }
            Err(error) => Err(self.error(&error)),
        }
    }

    async fn raise_bulletin(&self) -> Result<(), StoreError> {
        let request = self
            .client
            .update_item()
            .table_name(&self.table)
            .set_key(Some(key(FLEET, BULLETIN)))
            .update_expression("ADD version :one")
            .expression_attribute_values(":one", number(1));
        request
            .send()
            .await
            .map(drop)
            .map_err(|error| self.error(&error))
    }

    /// Chunks first, the index last: a reader that sees the index sees its chunks, or knows that it
    /// does not.
    async fn write_list(&self, shards: &CachedShards) -> Result<(), StoreError> {
        let version = format!("{:016x}", fastrand::u64(..));
        let (index, chunks) = shard_cache::encode(shards, &version)
            .map_err(|message| StoreError::Refused { message })?;
        for (number, chunk) in chunks.into_iter().enumerate() {
            if number > 0 {
                tokio::time::sleep(CHUNK_EVERY).await;
            }
            self.put(chunk, None).await?;
        }
        self.put(index, None).await.map(drop)
    }

    fn error<E, R>(&self, error: &aws_sdk_dynamodb::error::SdkError<E, R>) -> StoreError
    where
        E: aws_sdk_dynamodb::error::ProvideErrorMetadata + std::error::Error + 'static,
        R: std::fmt::Debug + 'static,
    {
        store_error(&self.table, error)
    }
}

fn as_seen(row: &WorkerRow) -> Item {
    Item::from([
        (":run".to_owned(), text(row.incarnation.as_str())),
        (":beat".to_owned(), number(row.beat)),
    ])
}

impl Coordinator for CoordinatorTable {
    fn ensure_table(&self) -> PortFuture<'_, Result<(), StoreError>> {
        Box::pin(table::ensure(
            &self.client,
            &self.table,
            &[Key::Hash(KIND), Key::Range(ID)],
        ))
    }

    fn fleet(&self) -> PortFuture<'_, Result<FleetRows, StoreError>> {
        Box::pin(self.read_fleet(None))
    }

    fn board(&self) -> PortFuture<'_, Result<FleetRows, StoreError>> {
        // Workers' rows come last in the order of sort keys.
        Box::pin(self.read_fleet(Some(WORKER_PREFIX)))
    }

    fn mail<'a>(&'a self, id: &'a WorkerId) -> PortFuture<'a, Result<Option<Mail>, StoreError>> {
        Box::pin(self.read_mail(id))
    }

    fn leave_mail<'a>(
        &'a self,
        id: &'a WorkerId,
        mail: Option<&'a Mail>,
    ) -> PortFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            match mail {
                Some(mail) => self.put(mail_item::encode(id, mail), None).await.map(drop),
                None => self.remove_mail(id).await,
            }
        })
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
            Some(seen) => (AS_SEEN, as_seen(seen)),
            None => ("attribute_not_exists(id)", Item::new()),
        };
        Box::pin(self.put(coordinator_item::encode_worker(row), Some(condition)))
    }

    fn heartbeat<'a>(&'a self, row: &'a WorkerRow) -> PortFuture<'a, Result<Raced, StoreError>> {
        // The beat rises, so that a request that was stuck on the way for long cannot turn it back.
        let condition = ("incarnation = :run AND beat < :beat", as_seen(row));
        Box::pin(self.put(coordinator_item::encode_worker(row), Some(condition)))
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
            Some(seen) => (
                "version = :seen",
                Item::from([(":seen".to_owned(), number(seen.version))]),
            ),
            None => ("attribute_not_exists(id)", Item::new()),
        };
        Box::pin(self.put(coordinator_item::encode_leader(next), Some(condition)))
    }

    fn write_stream<'a>(
        &'a self,
        seen: Option<&'a StreamRow>,
        next: &'a StreamRow,
    ) -> PortFuture<'a, Result<Raced, StoreError>> {
        let condition = match seen {
            Some(seen) => {
                let values = Item::from([
                    (":name".to_owned(), text(seen.name.as_str())),
                    (":created".to_owned(), number(seen.identity.created_at_ms)),
                ]);
                ("#name = :name AND createdAtMillis = :created", values)
            }
            None => ("attribute_not_exists(id)", Item::new()),
        };
        Box::pin(self.put(coordinator_item::encode_stream(next), Some(condition)))
    }

    fn write_start<'a>(
        &'a self,
        start: &'a ApplicationStart,
    ) -> PortFuture<'a, Result<Raced, StoreError>> {
        let condition = ("attribute_not_exists(id)", Item::new());
        Box::pin(self.put(coordinator_item::encode_start(start), Some(condition)))
    }

    fn quarantine<'a>(&'a self, entry: &'a Quarantined) -> PortFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            self.put(version_item::encode_quarantined(entry), None)
                .await
                .map(drop)
        })
    }

    fn release_version<'a>(
        &'a self,
        digest: &'a PluginDigest,
    ) -> PortFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let row_key = version_item::quarantine_key(digest);
            let request = self
                .client
                .delete_item()
                .table_name(&self.table)
                .set_key(Some(row_key));
            request
                .send()
                .await
                .map(drop)
                .map_err(|error| self.error(&error))
        })
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
