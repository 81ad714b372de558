//! `Scan`, or `Query` of one standalone host's rows; whole or not at all: a partial listing would
//! make leases look deleted.

use aws_sdk_dynamodb::Client;
use shardmill_core::ports::StoreError;

use super::attributes::{Item, text};
use super::errors::store_error;
use super::scope::{HOST, Scope};

/// A page is up to 1 MiB, about 2,000 rows: this bounds a scan at far more rows than any stream has
/// shards.
const PAGES_MAX: usize = 10_000;

/// How a table is read.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pages {
    /// At most this many rows a page; without it, 1 MiB a page.
    pub(super) rows_max: Option<i32>,
    /// Whether reads are strongly consistent.
    pub(super) are_consistent: bool,
}

/// Calls `visit` with every item of `table`.
pub(super) async fn each_item(
    client: &Client,
    table: &str,
    pages: Pages,
    mut visit: impl FnMut(Item),
) -> Result<(), StoreError> {
    let mut start = None;
    for _ in 0..PAGES_MAX {
        let request = client
            .scan()
            .table_name(table)
            .set_limit(pages.rows_max)
            .consistent_read(pages.are_consistent)
            .set_exclusive_start_key(start);
        let page = request
            .send()
            .await
            .map_err(|error| store_error(table, &error))?;
        start = take_page(page.items, page.last_evaluated_key, &mut visit);
        if start.is_none() {
            return Ok(());
        }
    }
    Err(too_long(table))
}

/// Calls `visit` with every item of `table`, a table of leases or state, that is in `scope`.
pub(super) async fn each_in_scope(
    client: &Client,
    table: &str,
    scope: &Scope,
    pages: Pages,
    visit: impl FnMut(Item),
) -> Result<(), StoreError> {
    match scope.host() {
        // Rows of several streams are told apart by their keys, after they are read.
        None => each_item(client, table, pages, visit).await,
        Some(host) => each_item_of_host(client, table, host, pages, visit).await,
    }
}

async fn each_item_of_host(
    client: &Client,
    table: &str,
    host: &str,
    pages: Pages,
    mut visit: impl FnMut(Item),
) -> Result<(), StoreError> {
    let mut start = None;
    for _ in 0..PAGES_MAX {
        let request = client
            .query()
            .table_name(table)
            .key_condition_expression("#host = :host")
            .expression_attribute_names("#host", HOST)
            .expression_attribute_values(":host", text(host))
            .set_limit(pages.rows_max)
            .consistent_read(pages.are_consistent)
            .set_exclusive_start_key(start);
        let page = request
            .send()
            .await
            .map_err(|error| store_error(table, &error))?;
        start = take_page(page.items, page.last_evaluated_key, &mut visit);
        if start.is_none() {
            return Ok(());
        }
    }
    Err(too_long(table))
}

/// Calls `visit` with the items of a page; where the next one begins, if there is one.
fn take_page(
    items: Option<Vec<Item>>,
    last: Option<Item>,
    visit: &mut impl FnMut(Item),
) -> Option<Item> {
    items.unwrap_or_default().into_iter().for_each(visit);
    last.filter(|key| !key.is_empty())
}

fn too_long(table: &str) -> StoreError {
    StoreError::Refused {
        message: format!("table {table} has more than {PAGES_MAX} pages"),
    }
}
