//! A row as a backup has it, in one transaction with its state. No host does this.

use aws_sdk_dynamodb::error::BuildError;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{Put, TransactWriteItem};
use shardmill_core::lease::Lease;
use shardmill_core::ports::{Created, LeaseStore, SavedState, StoreError, Written};
use shardmill_core::stream::LeaseKey;

use super::conditions::{self, IS_NEW};
use super::errors::{is_condition_failed, store_error};
use super::lease_item;
use super::lease_table::{LeaseTable, RowMove};
use super::state_change::{self, StateChange};
use super::state_table::refused;

/// The state of a shard that is restored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StateRestored {
    /// There is no table of states, and none is needed.
    NoTable,
    /// The shard has none: one that an earlier run left is removed.
    None,
    /// This one, in place of any other.
    Saved(SavedState),
}

impl LeaseTable {
    /// Writes the row `to` and its state: if `seen` is `None`, only if there is no row; otherwise
    /// only if owner, counter and directives are as in `seen`. Not part of the port.
    ///
    /// # Errors
    /// The table did not answer, or refused.
    pub async fn restore(
        &self,
        seen: Option<&Lease>,
        to: &Lease,
        state: &StateRestored,
    ) -> Result<RowMove, StoreError> {
        let change = match state {
            StateRestored::NoTable => return self.restore_row(seen, to).await,
            StateRestored::None => StateChange::Remove,
            StateRestored::Saved(saved) => {
                StateChange::Put(Box::new(state_change::encode(&to.key, saved)))
            }
        };
        self.learn_stream().await?;
        let row = match seen {
            None => self.new_part(to).map_err(|error| refused(&error))?,
            Some(seen) => self
                .lease_part(&to.key, conditions::restore(seen, to))
                .map_err(|error| refused(&error))?,
        };
        self.restore_both(&to.key, row, change).await
    }

    async fn restore_row(&self, seen: Option<&Lease>, to: &Lease) -> Result<RowMove, StoreError> {
        let Some(seen) = seen else {
            return Ok(match self.create(to).await? {
                Created::New => RowMove::Moved,
                Created::Existed => RowMove::Changed,
            });
        };
        self.learn_stream().await?;
        let request = self.update_request(&seen.key, conditions::restore(seen, to));
        match request.send().await {
            Ok(_) => Ok(RowMove::Moved),
            Err(error) if is_condition_failed(&error) => Ok(RowMove::Changed),
            Err(error) => Err(store_error(self.name(), &error)),
        }
    }

    async fn restore_both(
        &self,
        key: &LeaseKey,
        row: TransactWriteItem,
        change: StateChange,
    ) -> Result<RowMove, StoreError> {
        let mut request = self.client().transact_write_items().transact_items(row);
        let parts = self.state_parts(key, change);
        for part in parts.map_err(|error| refused(&error))? {
            request = request.transact_items(part);
        }
        let Err(error) = request.send().await else {
            return Ok(RowMove::Moved);
        };
        match error.as_service_error() {
            Some(TransactWriteItemsError::TransactionCanceledException(cancelled)) => {
                match self.cancelled(key, cancelled.cancellation_reasons())? {
                    Written::Conflict(_) | Written::Applied(_) => Ok(RowMove::Changed),
                }
            }
            Some(_) | None => Err(store_error(self.name(), &error)),
        }
    }

    fn new_part(&self, lease: &Lease) -> Result<TransactWriteItem, BuildError> {
        let item = self.scope().own(lease_item::encode(lease));
        let put = Put::builder().table_name(self.name());
        let put = put.set_item(Some(item)).condition_expression(IS_NEW);
        Ok(TransactWriteItem::builder().put(put.build()?).build())
    }
}
