//! Reads the history of an application, which may be long: hosts write into it too.

use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;
use shardmill_core::control::HistoryEntry;
use shardmill_core::ports::StoreError;

use super::attributes::text;
use super::coordinator_table::CoordinatorTable;
use super::history_item::{self, HISTORY};
use super::row::KIND;

/// Entries that are read at a time: those that are meant may be few among them.
const PAGE_ENTRIES: i32 = 1_000;
/// At most a hundred thousand entries are looked through: DynamoDB charges for each.
const PAGES_MAX: usize = 100;

/// A part of the history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryPart {
    /// The entries, oldest first.
    pub entries: Vec<HistoryEntry>,
    /// Whether all of the time was looked through, or as many entries as were wanted were found.
    pub is_searched: bool,
}

impl CoordinatorTable {
    /// Entries since that time, the newest first.
    fn request_since(&self, since_ms: u64) -> QueryFluentBuilder {
        self.client()
            .query()
            .table_name(self.name())
            .expression_attribute_names("#kind", KIND)
            .expression_attribute_values(":kind", text(&self.scope().partition(HISTORY)))
            .expression_attribute_values(":since", text(&history_item::since(since_ms)))
            .key_condition_expression("#kind = :kind AND id >= :since")
            .scan_index_forward(false)
            .limit(PAGE_ENTRIES)
    }

    /// The entries of the history since a time, in milliseconds since the Unix epoch, oldest first:
    /// the last `count_max` of those that are meant. Those that cannot be read, a newer host's for
    /// instance, are left out. Not part of the port: no host reads it.
    pub async fn history(
        &self,
        since_ms: u64,
        count_max: usize,
        is_meant: impl Fn(&HistoryEntry) -> bool,
    ) -> Result<HistoryPart, StoreError> {
        self.learn_stream().await?;
        let request = self.request_since(since_ms);
        let mut entries = Vec::new();
        let mut start = None;
        for _ in 0..PAGES_MAX {
            let page = request.clone().set_exclusive_start_key(start).send().await;
            let page = page.map_err(|error| self.error(&error))?;
            let items = page.items.unwrap_or_default();
            let read = items
                .iter()
                .filter_map(|item| history_item::decode(item).ok());
            entries.extend(read.filter(&is_meant));
            start = page.last_evaluated_key.filter(|key| !key.is_empty());
            if start.is_none() || entries.len() >= count_max {
                break;
            }
        }
        let is_searched = start.is_none() || entries.len() >= count_max;
        entries.truncate(count_max);
        entries.reverse();
        Ok(HistoryPart {
            entries,
            is_searched,
        })
    }
}
