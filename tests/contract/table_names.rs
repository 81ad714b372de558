//! Tables of the embedded DynamoDB whose names differ only in capitals.

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::ProvideErrorMetadata;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, KeysAndAttributes,
    Put, ScalarAttributeType, TransactWriteItem,
};
use harness::embedded::Embedded;
use shardmill_local::LocalOptions;

const NAMES: [&str; 3] = ["Orders", "ORDERS", "orders"];
const KEY: &str = "id";

async fn make(client: &Client, table: &str) -> Result<(), String> {
    let key = KeySchemaElement::builder()
        .attribute_name(KEY)
        .key_type(KeyType::Hash);
    let attribute = AttributeDefinition::builder()
        .attribute_name(KEY)
        .attribute_type(ScalarAttributeType::S);
    let made = client
        .create_table()
        .table_name(table)
        .billing_mode(BillingMode::PayPerRequest)
        .key_schema(key.build().unwrap())
        .attribute_definitions(attribute.build().unwrap())
        .send()
        .await;
    let told = |error: aws_sdk_dynamodb::Error| error.message().unwrap_or_default().to_owned();
    let made = made.map_err(|error| told(error.into()))?;
    let shown = made.table_description.unwrap();
    assert_eq!(shown.table_name.as_deref(), Some(table));
    assert!(
        shown
            .table_arn
            .unwrap()
            .ends_with(&format!(":table/{table}"))
    );
    Ok(())
}

fn text(value: &str) -> AttributeValue {
    AttributeValue::S(value.to_owned())
}

async fn put(client: &Client, table: &str) {
    let put = client.put_item().table_name(table);
    let put = put.item(KEY, text("a")).item("of", text(table));
    put.send().await.unwrap();
}

/// What each of the tables has in its only row.
async fn rows(client: &Client) -> Vec<String> {
    let mut rows = Vec::new();
    for table in NAMES {
        let scan = client.scan().table_name(table).send().await.unwrap();
        rows.extend(
            scan.items()
                .iter()
                .map(|row| row["of"].as_s().unwrap().clone()),
        );
    }
    rows
}

async fn listed(client: &Client) -> Vec<String> {
    let pages = client.list_tables().limit(1).into_paginator().items();
    let mut names = pages.send().collect::<Result<Vec<_>, _>>().await.unwrap();
    names.sort();
    names
}

async fn three_tables(embedded: &Embedded) -> Client {
    let client = embedded.clients.dynamodb.clone();
    for table in NAMES {
        make(&client, table).await.unwrap();
        put(&client, table).await;
    }
    client
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_whose_names_differ_only_in_capitals_keep_their_rows_apart() {
    let embedded = Embedded::start(LocalOptions::in_memory()).await;
    let client = three_tables(&embedded).await;
    assert_eq!(rows(&client).await, NAMES);
    let mut sorted = NAMES.to_vec();
    sorted.sort_unstable();
    assert_eq!(listed(&client).await, sorted);
    for table in NAMES {
        let described = client.describe_table().table_name(table).send().await;
        let shown = described.unwrap().table.unwrap();
        assert_eq!(shown.table_name.as_deref(), Some(table));
    }

    client
        .delete_table()
        .table_name("ORDERS")
        .send()
        .await
        .unwrap();
    let gone = client.scan().table_name("ORDERS").send().await;
    let gone = gone.unwrap_err().into_service_error();
    assert!(gone.is_resource_not_found_exception(), "{gone:?}");
    assert_eq!(listed(&client).await, ["Orders", "orders"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn transactions_and_batches_reach_the_table_that_they_name() {
    let embedded = Embedded::start(LocalOptions::in_memory()).await;
    let client = three_tables(&embedded).await;
    let of = |table: &str| {
        let put = Put::builder().table_name(table).item(KEY, text("a"));
        let put = put.item("of", text(&format!("new {table}")));
        TransactWriteItem::builder()
            .put(put.build().unwrap())
            .build()
    };
    let write = client.transact_write_items();
    let write = NAMES
        .iter()
        .fold(write, |write, table| write.transact_items(of(table)));
    write.send().await.unwrap();
    assert_eq!(
        rows(&client).await,
        NAMES.map(|table| format!("new {table}"))
    );

    let asked = KeysAndAttributes::builder().keys([(KEY.to_owned(), text("a"))].into());
    let asked = asked.build().unwrap();
    let get = client.batch_get_item();
    let get = NAMES
        .iter()
        .fold(get, |get, table| get.request_items(*table, asked.clone()));
    let got = get.send().await.unwrap().responses.unwrap();
    for table in NAMES {
        assert_eq!(got[table][0]["of"], text(&format!("new {table}")));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_data_folder_opens_with_such_tables_and_with_those_that_were_kept_by_their_names() {
    let folder = tempfile::tempdir().unwrap();
    let options = || LocalOptions::kept_in(folder.path());
    let embedded = Embedded::start(options()).await;
    let client = three_tables(&embedded).await;
    make(&client, "Alone").await.unwrap();
    embedded.stack.stop().await;

    let embedded = Embedded::start(options()).await;
    let client = &embedded.clients.dynamodb;
    assert_eq!(rows(client).await, NAMES);
    assert_eq!(
        listed(client).await,
        ["Alone", "ORDERS", "Orders", "orders"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_is_too_long_for_its_alias_is_refused_and_said() {
    let embedded = Embedded::start(LocalOptions::in_memory()).await;
    let client = &embedded.clients.dynamodb;
    let (small, large) = ("x".repeat(255), "X".repeat(255));
    make(client, &small).await.unwrap();
    let told = make(client, &large).await.unwrap_err();
    assert!(told.contains("choose a shorter name"), "{told}");
    // With fewer letters there is room for the alias.
    make(client, &"y".repeat(200)).await.unwrap();
    make(client, &"Y".repeat(200)).await.unwrap();
    assert_eq!(listed(client).await.len(), 3);
}
