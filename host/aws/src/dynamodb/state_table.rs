//! The plugin's state: a table beside the lease table, written in one transaction with the lease's
//! row, so that state and checkpoint never disagree, and the row keeps its size.

use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{
    AttributeValue, CancellationReason, Delete, Put, ReturnValuesOnConditionCheckFailure,
    TransactWriteItem, Update,
};
use bytes::Bytes;
use shardmill_core::lease::{Checkpoint, LeaseToken};
use shardmill_core::plugin::{PluginDigest, state_table};
use shardmill_core::ports::{SavedState, StoreError, WriteResult, Written};
use shardmill_core::stream::LeaseKey;

use super::conditions::ConditionalUpdate;
use super::errors::store_error;
use super::lease_item::{Item, LEASE_KEY, text};
use super::lease_table::LeaseTable;
use super::state_change::{CHECKPOINT, PLUGIN_DIGEST, STATE, SUB_SEQUENCE, StateChange};

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
        let refused = |error: aws_sdk_dynamodb::error::BuildError| StoreError::Refused {
            message: error.to_string(),
        };
        let lease = Update::builder()
            .table_name(self.name())
            .key(LEASE_KEY, text(then.key.as_str()))
            .condition_expression(update.condition)
            .update_expression(update.update)
            .set_expression_attribute_values(Some(update.values))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .build()
            .map_err(refused)?;
        let state = TransactWriteItem::builder();
        let state = match change {
            StateChange::Put(item) => state.put(
                Put::builder()
                    .table_name(self.state_table())
                    .set_item(Some(*item))
                    .build()
                    .map_err(refused)?,
            ),
            StateChange::Remove => {
                let key = text(then.key.as_str());
                let delete = Delete::builder()
                    .table_name(self.state_table())
                    .key(LEASE_KEY, key)
                    .build();
                state.delete(delete.map_err(refused)?)
            }
        };
        let request = self.client().transact_write_items();
        let request = request.transact_items(TransactWriteItem::builder().update(lease).build());
        let Err(error) = request.transact_items(state.build()).send().await else {
            return Ok(Written::Applied(then));
        };
        match error.as_service_error() {
            Some(TransactWriteItemsError::TransactionCanceledException(cancelled)) => {
                self.cancelled(&then.key, cancelled.cancellation_reasons())
            }
            Some(_) | None => Err(store_error(self.name(), &error)),
        }
    }

    /// A cancelled transaction was not applied, whatever the reason.
    fn cancelled(&self, key: &LeaseKey, reasons: &[CancellationReason]) -> WriteResult {
        if let Some(failed) = reasons
            .iter()
            .find(|reason| reason.code() == Some("ConditionalCheckFailed"))
        {
            // `ALL_OLD` of a row that is not there is an empty map.
            let row = failed.item().filter(|row| !row.is_empty());
            let row = row.map(|row| self.decode(key, row)).transpose()?;
            return Ok(Written::Conflict(row.map(Box::new)));
        }
        let why = reasons
            .iter()
            .find(|reason| reason.code().is_some_and(|code| code != "None"));
        let code = why
            .and_then(CancellationReason::code)
            .unwrap_or("for no reason given");
        let details = why
            .and_then(CancellationReason::message)
            .unwrap_or_default();
        let message = format!(
            "tables {} and {}: cancelled: {code}: {details}",
            self.name(),
            self.state_table()
        );
        Err(match code {
            // Too large an item, or a table of another shape: trying again changes nothing.
            "ValidationError" | "ItemCollectionSizeLimitExceeded" => {
                StoreError::Refused { message }
            }
            // TransactionConflict, ThrottlingError, ProvisionedThroughputExceeded, and what comes
            // next.
            _ => StoreError::Throttled { message },
        })
    }

    pub(super) async fn saved_state(
        &self,
        key: &LeaseKey,
    ) -> Result<Option<SavedState>, StoreError> {
        let table = self.state_table();
        let request = self
            .client()
            .get_item()
            .table_name(&table)
            .key(LEASE_KEY, text(key.as_str()));
        let reply = request
            .consistent_read(true)
            .send()
            .await
            .map_err(|error| store_error(&table, &error))?;
        let Some(item) = reply.item else {
            return Ok(None);
        };
        let unreadable = |problem: &str| StoreError::Refused {
            message: format!(
                "table {table}: row {key} cannot be read: {problem}; delete it to start without state"
            ),
        };
        decode(&item).map(Some).map_err(unreadable)
    }
}

fn decode(item: &Item) -> Result<SavedState, &'static str> {
    let bytes = match item.get(STATE) {
        Some(AttributeValue::B(state)) => Bytes::copy_from_slice(state.as_ref()),
        _ => return Err("`state` is not binary"),
    };
    let Some(AttributeValue::S(sequence)) = item.get(CHECKPOINT) else {
        return Err("it has no `checkpoint`");
    };
    let sub = match item.get(SUB_SEQUENCE) {
        Some(AttributeValue::N(sub)) => sub
            .parse()
            .map_err(|_| "`checkpointSubSequenceNumber` is not a number")?,
        _ => 0,
    };
    let checkpoint = Checkpoint::parse(sequence, sub).ok_or("`checkpoint` is not a checkpoint")?;
    let plugin_digest = match item.get(PLUGIN_DIGEST) {
        Some(AttributeValue::S(digest)) => PluginDigest::from_hex(digest),
        _ => None,
    };
    Ok(SavedState {
        bytes,
        checkpoint,
        plugin_digest,
    })
}
