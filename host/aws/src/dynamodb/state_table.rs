//! The plugin's state: a table next to the lease table, written in one transaction with the lease's
//! row. So state and checkpoint never disagree, and the row stays small.

use aws_sdk_dynamodb::error::BuildError;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{
    AttributeValue, CancellationReason, Delete, Put, ReturnValuesOnConditionCheckFailure,
    TransactWriteItem, Update,
};
use bytes::Bytes;
use shardmill_core::lease::LeaseToken;
use shardmill_core::plugin::{PluginDigest, state_table};
use shardmill_core::ports::{SavedState, StoreError, WriteResult, Written};
use shardmill_core::stream::LeaseKey;

use super::attributes::Item;
use super::checkpoint_item::checkpoint;
use super::conditions::{ConditionalUpdate, IS_NEW};
use super::errors::store_error;
use super::lease_table::LeaseTable;
use super::state_change::{self, PLUGIN_DIGEST, STATE, StateChange};

impl LeaseTable {
    /// The table's name: the lease table's, and `-state`.
    pub(super) fn state_table(&self) -> String {
        state_table(self.name())
    }

    /// Sends `update` and `change` as one transaction; `then` is what the writer holds if it is
    /// applied.
    pub(super) async fn write_with_state(
        &self,
        update: ConditionalUpdate,
        change: StateChange,
        then: LeaseToken,
    ) -> WriteResult {
        self.learn_stream().await?;
        let lease = self
            .lease_part(&then.key, update)
            .map_err(|error| refused(&error))?;
        let state = self
            .state_parts(&then.key, change)
            .map_err(|error| refused(&error))?;
        let mut request = self.client().transact_write_items().transact_items(lease);
        for part in state {
            request = request.transact_items(part);
        }
        let Err(error) = request.send().await else {
            return Ok(Written::Applied(then));
        };
        match error.as_service_error() {
            Some(TransactWriteItemsError::TransactionCanceledException(cancelled)) => {
                self.cancelled(&then.key, cancelled.cancellation_reasons())
            }
            Some(_) | None => Err(store_error(self.name(), &error)),
        }
    }

    pub(super) fn lease_part(
        &self,
        key: &LeaseKey,
        update: ConditionalUpdate,
    ) -> Result<TransactWriteItem, BuildError> {
        let update = Update::builder()
            .table_name(self.name())
            .set_key(Some(self.scope().key_of(key)))
            .condition_expression(update.condition)
            .update_expression(update.update)
            .set_expression_attribute_values(Some(update.values))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .build()?;
        Ok(TransactWriteItem::builder().update(update).build())
    }

    pub(super) fn state_parts(
        &self,
        key: &LeaseKey,
        change: StateChange,
    ) -> Result<Vec<TransactWriteItem>, BuildError> {
        Ok(match change {
            StateChange::Put(item) => vec![self.put_part(*item)?],
            StateChange::Remove => vec![self.delete_part(key)?],
            StateChange::Import(item, staged) => {
                vec![self.put_part(*item)?, self.delete_part(&staged)?]
            }
        })
    }

    fn put_part(&self, item: Item) -> Result<TransactWriteItem, BuildError> {
        let put = Put::builder().table_name(self.state_table());
        let put = put.set_item(Some(self.scope().own(item))).build()?;
        Ok(TransactWriteItem::builder().put(put).build())
    }

    fn delete_part(&self, key: &LeaseKey) -> Result<TransactWriteItem, BuildError> {
        let delete = Delete::builder().table_name(self.state_table());
        let delete = delete.set_key(Some(self.scope().key_of(key))).build()?;
        Ok(TransactWriteItem::builder().delete(delete).build())
    }

    /// Leaves a state in a row of its own, for a holder that is told to take it over. Not part of
    /// the port: a host never does this.
    pub async fn stage_state(&self, key: &LeaseKey, state: &SavedState) -> Result<(), StoreError> {
        self.learn_stream().await?;
        let table = self.state_table();
        let request = self
            .client()
            .put_item()
            .table_name(&table)
            .set_item(Some(self.scope().own(state_change::encode(key, state))))
            .condition_expression(IS_NEW);
        let reply = request.send().await;
        reply.map(drop).map_err(|error| store_error(&table, &error))
    }

    /// Removes a state that no holder is told to take over any more.
    pub async fn unstage_state(&self, key: &LeaseKey) -> Result<(), StoreError> {
        self.learn_stream().await?;
        let table = self.state_table();
        let request = self
            .client()
            .delete_item()
            .table_name(&table)
            .set_key(Some(self.scope().key_of(key)));
        let reply = request.send().await;
        reply.map(drop).map_err(|error| store_error(&table, &error))
    }

    /// A cancelled transaction was not applied, for any reason.
    pub(super) fn cancelled(&self, key: &LeaseKey, reasons: &[CancellationReason]) -> WriteResult {
        let failed = reasons
            .iter()
            .find(|reason| reason.code() == Some("ConditionalCheckFailed"));
        if let Some(failed) = failed {
            // `ALL_OLD` of a row that is not there is an empty map.
            let row = failed.item().filter(|row| !row.is_empty());
            return self.conflict(key, row);
        }
        let reason = reasons
            .iter()
            .find(|reason| reason.code().is_some_and(|code| code != "None"));
        let code = reason.and_then(CancellationReason::code);
        let code = code.unwrap_or("for no reason given");
        let details = reason.and_then(CancellationReason::message);
        let message = format!(
            "tables {} and {}: cancelled: {code}: {}",
            self.name(),
            self.state_table(),
            details.unwrap_or_default()
        );
        Err(error_of_cancelled(code, message))
    }

    pub(super) async fn saved_state(
        &self,
        key: &LeaseKey,
    ) -> Result<Option<SavedState>, StoreError> {
        self.learn_stream().await?;
        let table = self.state_table();
        let request = self
            .client()
            .get_item()
            .table_name(&table)
            .set_key(Some(self.scope().key_of(key)))
            .consistent_read(true);
        let reply = request.send().await;
        let reply = reply.map_err(|error| store_error(&table, &error))?;
        let Some(item) = reply.item else {
            return Ok(None);
        };
        match decode(&item) {
            Ok(state) => Ok(Some(state)),
            Err(problem) => Err(StoreError::Refused {
                message: format!(
                    "table {table}: row {key} cannot be read: {problem}; delete it to start \
                     without state"
                ),
            }),
        }
    }
}

pub(super) fn refused(error: &BuildError) -> StoreError {
    StoreError::Refused {
        message: error.to_string(),
    }
}

fn error_of_cancelled(code: &str, message: String) -> StoreError {
    match code {
        // Too large an item, or a table of another shape: trying again changes nothing.
        "ValidationError" | "ItemCollectionSizeLimitExceeded" => StoreError::Refused { message },
        // TransactionConflict, ThrottlingError, ProvisionedThroughputExceeded, and what comes next.
        _ => StoreError::Throttled { message },
    }
}

fn decode(item: &Item) -> Result<SavedState, String> {
    let Some(AttributeValue::B(state)) = item.get(STATE) else {
        return Err("`state` is not binary".to_owned());
    };
    let plugin_digest = match item.get(PLUGIN_DIGEST) {
        Some(AttributeValue::S(digest)) => PluginDigest::from_hex(digest),
        _ => None,
    };
    Ok(SavedState {
        bytes: Bytes::copy_from_slice(state.as_ref()),
        checkpoint: checkpoint(item)?,
        plugin_digest,
    })
}
