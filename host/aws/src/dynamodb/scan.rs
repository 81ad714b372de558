//! `Scan`, whole or not at all: a partial listing would make leases look deleted.

use aws_sdk_dynamodb::Client;
use shardmill_core::ports::StoreError;

use super::errors::store_error;
use super::lease_item::Item;

/// A page is up to 1 MiB, about 2,000 rows: this bounds a scan at far more rows than any stream has
/// shards.
const PAGES_MAX: usize = 10_000;

/// Gives every item of `table` to `visit`, in pages of at most `page_rows`, eventually or strongly
/// consistent.
pub(super) async fn each_item(
    client: &Client,
    table: &str,
    (page_rows, is_consistent): (Option<i32>, bool),
    mut visit: impl FnMut(Item),
) -> Result<(), StoreError> {
    let mut start = None;
    for _ in 0..PAGES_MAX {
        let request = client
            .scan()
            .table_name(table)
            .set_limit(page_rows)
            .consistent_read(is_consistent);
        let request = request.set_exclusive_start_key(start);
        let page = request
            .send()
            .await
            .map_err(|error| store_error(table, &error))?;
        page.items
            .unwrap_or_default()
            .into_iter()
            .for_each(&mut visit);
        match page.last_evaluated_key.filter(|key| !key.is_empty()) {
            Some(next) => start = Some(next),
            None => return Ok(()),
        }
    }
    Err(StoreError::Refused {
        message: format!("table {table} has more than {PAGES_MAX} pages"),
    })
}
