//! The lease table of one application, through `Scan`, `GetItem`, `PutItem` and `UpdateItem`.
//!
//! A failed condition comes back with the row as it is now (`ALL_OLD`), so that a lost race needs
//! no second read.

use std::sync::Arc;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::http::HttpResponse;
use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::delete_item::DeleteItemError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::operation::update_item::builders::UpdateItemFluentBuilder;
use aws_sdk_dynamodb::types::{ReturnValue, ReturnValuesOnConditionCheckFailure};
use shardmill_core::control::Directives;
use shardmill_core::lease::{Checkpoint, Lease, LeaseToken, WorkerId};
use shardmill_core::plugin::lease_table;
use shardmill_core::ports::{
    CheckpointWrite, Created, Deleted, Directing, LeaseListing, LeaseStore, ObeyWrite, PortFuture,
    Progress, SavedState, ShardEndWrite, StoreError, Took, WriteResult, Written,
};
use shardmill_core::stream::LeaseKey;

use super::attributes::Item;
use super::conditions::{self, ConditionalUpdate, IS_NEW};
use super::errors::{is_condition_failed, store_error};
use super::lease_item::{self, Row};
use super::row_size;
use super::scan::{self, Pages};
use super::scope::Scope;
use super::state_change::StateChange;
use super::stream_asked::StreamAsked;
use super::table;
use super::table_options::TableOptions;

/// The lease store of one application in DynamoDB.
#[derive(Debug, Clone)]
pub struct LeaseTable {
    client: Client,
    table: String,
    scope: Scope,
    page_rows: Option<i32>,
    options: Arc<TableOptions>,
}

impl LeaseTable {
    /// Accesses the leases of an application through `client`; only those of one standalone host
    /// with `APPLICATION@HOST`, or of one stream with `APPLICATION:STREAM`.
    pub fn new(client: Client, application: impl AsRef<str>) -> Self {
        let application = application.as_ref();
        Self {
            client,
            table: lease_table(application).to_owned(),
            scope: Scope::of(application),
            page_rows: None,
            options: Arc::default(),
        }
    }

    /// Makes the tables that are missing in this way.
    #[must_use]
    pub fn made_as(self, options: Arc<TableOptions>) -> Self {
        Self { options, ..self }
    }

    /// Scans in pages of at most this many rows. For tests of the paging.
    #[must_use]
    pub fn with_page_rows(self, rows: u16) -> Self {
        Self {
            page_rows: Some(i32::from(rows).max(1)),
            ..self
        }
    }

    /// The name of the DynamoDB table: the application's, without a host.
    pub fn name(&self) -> &str {
        &self.table
    }

    /// Whether the table exists; creates nothing.
    pub async fn exists(&self) -> Result<bool, StoreError> {
        table::exists(&self.client, &self.table).await
    }

    /// Whether the table for the plugin's state exists; creates nothing.
    pub async fn has_state_table(&self) -> Result<bool, StoreError> {
        table::exists(&self.client, &self.state_table()).await
    }

    /// Moves the checkpoint of a lease that was never held, if the row is still as seen. Not part
    /// of the port: only an import does this, before the application has hosts.
    pub async fn move_checkpoint(&self, seen: &Lease, to: &Lease) -> Result<RowMove, StoreError> {
        self.learn_stream().await?;
        let update = conditions::move_checkpoint(seen, to);
        let request = self.update_request(&seen.key, update);
        match request.send().await {
            Ok(_) => Ok(RowMove::Moved),
            Err(error) if is_condition_failed(&error) => Ok(RowMove::Changed),
            Err(error) => Err(self.error(&error)),
        }
    }

    /// Opens the row of a finished shard again, at `to`, if the row is still as seen. Not part of
    /// the port: a host never does this.
    pub async fn reopen(&self, seen: &Lease, to: &Checkpoint) -> Result<RowMove, StoreError> {
        self.learn_stream().await?;
        let update = conditions::reopen(seen, to);
        let request = self.update_request(&seen.key, update);
        match request.send().await {
            Ok(_) => Ok(RowMove::Moved),
            Err(error) if is_condition_failed(&error) => Ok(RowMove::Changed),
            Err(error) => Err(self.error(&error)),
        }
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

    async fn scan(&self, are_consistent: bool) -> Result<LeaseListing, StoreError> {
        let mut listing = LeaseListing::default();
        let pages = Pages {
            rows_max: self.page_rows,
            are_consistent,
        };
        self.learn_stream().await?;
        let (mut is_of_standalone, mut is_of_one_stream) = (false, false);
        scan::each_in_scope(&self.client, &self.table, &self.scope, pages, |item| {
            is_of_standalone |= self.scope.is_anothers(&item);
            is_of_one_stream |= self.scope.is_of_one_stream(&item);
            self.list(&item, &mut listing);
        })
        .await?;
        if is_of_standalone {
            return Err(self.is_wrong(table::OF_STANDALONE));
        }
        if is_of_one_stream {
            return Err(self.is_wrong(
                "it has leases under the ids of shards, which are one stream's: remove \
                    multi-stream-table, or name another application",
            ));
        }
        Ok(listing)
    }

    fn list(&self, item: &Item, listing: &mut LeaseListing) {
        listing.bytes += row_size::of_item(item);
        match self.scope.classify(item) {
            Some(Row::Lease(lease)) => listing.leases.push(*lease),
            Some(Row::Bad(row)) => listing.bad_rows.push(row),
            Some(Row::Foreign) => listing.foreign_rows += 1,
            None => {}
        }
    }

    fn is_wrong(&self, problem: &str) -> StoreError {
        StoreError::WrongTable {
            table: self.table.clone(),
            problem: problem.to_owned(),
        }
    }

    async fn get_row(&self, key: &LeaseKey) -> Result<Option<Lease>, StoreError> {
        self.learn_stream().await?;
        let request = self
            .client
            .get_item()
            .table_name(&self.table)
            .set_key(Some(self.scope.key_of(key)))
            .consistent_read(true);
        let reply = request.send().await.map_err(|error| self.error(&error))?;
        reply.item.map(|item| self.decode(key, &item)).transpose()
    }

    async fn put_new(&self, lease: &Lease) -> Result<Created, StoreError> {
        self.learn_stream().await?;
        let item = self.scope.own(lease_item::encode(lease));
        let request = self
            .client
            .put_item()
            .table_name(&self.table)
            .set_item(Some(item))
            .condition_expression(IS_NEW);
        match request.send().await {
            Ok(_) => Ok(Created::New),
            Err(error) if is_condition_failed(&error) => Ok(Created::Existed),
            Err(error) => Err(self.error(&error)),
        }
    }

    pub(super) fn update_request(
        &self,
        key: &LeaseKey,
        update: ConditionalUpdate,
    ) -> UpdateItemFluentBuilder {
        self.client
            .update_item()
            .table_name(&self.table)
            .set_key(Some(self.scope.key_of(key)))
            .condition_expression(update.condition)
            .update_expression(update.update)
            .set_expression_attribute_values(Some(update.values))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
    }

    async fn take_row(
        &self,
        seen: &Lease,
        by: &WorkerId,
        wall_ms: u64,
    ) -> Result<Took, StoreError> {
        self.learn_stream().await?;
        let request = self
            .update_request(&seen.key, conditions::take(seen, by, wall_ms))
            .return_values(ReturnValue::AllNew);
        match request.send().await {
            Ok(reply) => {
                let row = reply.attributes.unwrap_or_default();
                Ok(Took::Applied {
                    token: seen.token(by.clone()).advanced(),
                    directives: Box::new(lease_item::directives(&row)),
                })
            }
            Err(error) => Ok(Took::Conflict(self.row_in_the_way(&seen.key, &error)?)),
        }
    }

    async fn direct_row(&self, seen: &Lease, next: &Directives) -> Result<Directing, StoreError> {
        self.learn_stream().await?;
        let request = self
            .update_request(&seen.key, conditions::direct(seen, next))
            .return_values(ReturnValue::AllNew);
        match request.send().await {
            Ok(reply) => {
                let row = reply.attributes.unwrap_or_default();
                Ok(Directing::Applied(Box::new(self.decode(&seen.key, &row)?)))
            }
            Err(error) => Ok(Directing::Changed(self.row_in_the_way(&seen.key, &error)?)),
        }
    }

    /// The row that did not meet a write's condition, `None` if there is none; the error if that is
    /// not why the write failed.
    fn row_in_the_way(
        &self,
        key: &LeaseKey,
        error: &SdkError<UpdateItemError, HttpResponse>,
    ) -> Result<Option<Box<Lease>>, StoreError> {
        match error.as_service_error() {
            Some(UpdateItemError::ConditionalCheckFailedException(failed)) => {
                // `ALL_OLD` of a row that is not there may be an empty map.
                let row = failed.item().filter(|row| !row.is_empty());
                let row = row.map(|row| self.decode(key, row)).transpose()?;
                Ok(row.map(Box::new))
            }
            Some(_) | None => Err(self.error(error)),
        }
    }

    /// Sends `update`; `then` is what the writer holds if it is applied.
    pub(super) async fn write(&self, update: ConditionalUpdate, then: LeaseToken) -> WriteResult {
        self.learn_stream().await?;
        let request = self.update_request(&then.key, update);
        let Err(error) = request.send().await else {
            return Ok(Written::Applied(then));
        };
        match error.as_service_error() {
            Some(UpdateItemError::ConditionalCheckFailedException(failed)) => {
                self.conflict(&then.key, failed.item())
            }
            Some(_) | None => Err(self.error(&error)),
        }
    }

    async fn delete_row(&self, seen: &Lease) -> Result<Deleted, StoreError> {
        self.learn_stream().await?;
        let (condition, values) = conditions::delete(seen);
        let request = self
            .client
            .delete_item()
            .table_name(&self.table)
            .set_key(Some(self.scope.key_of(&seen.key)))
            .condition_expression(condition)
            .set_expression_attribute_values(Some(values))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        let Err(error) = request.send().await else {
            return Ok(Deleted::Gone);
        };
        match error.as_service_error() {
            Some(DeleteItemError::ConditionalCheckFailedException(failed)) => {
                Ok(if failed.item.is_some() {
                    Deleted::Changed
                } else {
                    Deleted::Gone
                })
            }
            Some(_) | None => Err(self.error(&error)),
        }
    }

    /// The answer to a writer whose condition failed on `row`, which is `None` if it is gone.
    pub(super) fn conflict(&self, key: &LeaseKey, row: Option<&Item>) -> WriteResult {
        let lease = row.map(|row| self.decode(key, row)).transpose()?;
        Ok(Written::Conflict(lease.map(Box::new)))
    }

    fn decode(&self, key: &LeaseKey, row: &Item) -> Result<Lease, StoreError> {
        self.scope
            .decode(row)
            .map_err(|problem| StoreError::Refused {
                message: format!("table {}: row {key} cannot be read: {problem}", self.table),
            })
    }

    fn error<E, R>(&self, error: &aws_sdk_dynamodb::error::SdkError<E, R>) -> StoreError
    where
        E: aws_sdk_dynamodb::error::ProvideErrorMetadata + std::error::Error + 'static,
        R: std::fmt::Debug + 'static,
    {
        store_error(&self.table, error)
    }
}

/// What became of a row that was to be moved to another checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowMove {
    /// The row has the new checkpoint.
    Moved,
    /// It changed since it was seen, and was left alone.
    Changed,
}

impl LeaseStore for LeaseTable {
    fn ensure_table(&self) -> PortFuture<'_, Result<(), StoreError>> {
        let keys = self.scope.keys();
        Box::pin(table::ensure(
            &self.client,
            &self.table,
            keys,
            &self.options,
        ))
    }

    fn list(&self) -> PortFuture<'_, Result<LeaseListing, StoreError>> {
        Box::pin(self.scan(false))
    }

    fn list_consistently(&self) -> PortFuture<'_, Result<LeaseListing, StoreError>> {
        Box::pin(self.scan(true))
    }

    fn get<'a>(&'a self, key: &'a LeaseKey) -> PortFuture<'a, Result<Option<Lease>, StoreError>> {
        Box::pin(self.get_row(key))
    }

    fn create<'a>(&'a self, lease: &'a Lease) -> PortFuture<'a, Result<Created, StoreError>> {
        Box::pin(self.put_new(lease))
    }

    fn take<'a>(
        &'a self,
        seen: &'a Lease,
        by: &'a WorkerId,
        wall_ms: u64,
    ) -> PortFuture<'a, Result<Took, StoreError>> {
        Box::pin(self.take_row(seen, by, wall_ms))
    }

    fn claim<'a>(&'a self, seen: &'a Lease, by: &'a WorkerId) -> PortFuture<'a, WriteResult> {
        let Some(owner) = &seen.owner else {
            return Box::pin(std::future::ready(Ok(Written::Conflict(Some(Box::new(
                seen.clone(),
            ))))));
        };
        Box::pin(self.write(
            conditions::claim(seen, owner, by),
            seen.token(owner.clone()),
        ))
    }

    fn delete<'a>(&'a self, seen: &'a Lease) -> PortFuture<'a, Result<Deleted, StoreError>> {
        Box::pin(self.delete_row(seen))
    }

    fn renew<'a>(
        &'a self,
        token: &'a LeaseToken,
        progress: &'a Progress,
    ) -> PortFuture<'a, WriteResult> {
        Box::pin(self.write(conditions::renew(token, progress), token.advanced()))
    }

    fn checkpoint<'a>(
        &'a self,
        token: &'a LeaseToken,
        write: &'a CheckpointWrite,
    ) -> PortFuture<'a, WriteResult> {
        let (update, then) = (conditions::checkpoint(token, write), token.advanced());
        match &write.state {
            Some(state) => {
                let state = StateChange::saved(&token.key, write, state);
                Box::pin(self.write_with_state(update, state, then))
            }
            None => Box::pin(self.write(update, then)),
        }
    }

    fn end<'a>(
        &'a self,
        token: &'a LeaseToken,
        write: &'a ShardEndWrite,
    ) -> PortFuture<'a, WriteResult> {
        let (update, then) = (conditions::end(token, write), token.advanced());
        if write.keeps_state {
            return Box::pin(self.write_with_state(update, StateChange::Remove, then));
        }
        Box::pin(self.write(update, then))
    }

    fn release<'a>(
        &'a self,
        token: &'a LeaseToken,
        progress: &'a Progress,
    ) -> PortFuture<'a, WriteResult> {
        Box::pin(self.write(conditions::release(token, progress), token.advanced()))
    }

    fn direct<'a>(
        &'a self,
        seen: &'a Lease,
        next: &'a Directives,
    ) -> PortFuture<'a, Result<Directing, StoreError>> {
        Box::pin(self.direct_row(seen, next))
    }

    fn obey<'a>(
        &'a self,
        token: &'a LeaseToken,
        write: &'a ObeyWrite,
    ) -> PortFuture<'a, WriteResult> {
        let (update, then) = (conditions::obey(token, write), token.advanced());
        match StateChange::obeyed(&token.key, &write.state) {
            Some(state) => Box::pin(self.write_with_state(update, state, then)),
            None => Box::pin(self.write(update, then)),
        }
    }

    fn ensure_state_table(&self) -> PortFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            let (table, keys) = (self.state_table(), self.scope.keys());
            table::ensure(&self.client, &table, keys, &self.options).await
        })
    }

    fn stream_prefix(&self) -> Option<String> {
        self.scope.stream()?.prefix().map(str::to_owned)
    }

    fn state<'a>(
        &'a self,
        key: &'a LeaseKey,
    ) -> PortFuture<'a, Result<Option<SavedState>, StoreError>> {
        Box::pin(self.saved_state(key))
    }
}
