//! The lease table itself, and rows that other programs wrote.

use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType,
    ScalarAttributeType,
};

use super::*;

#[tokio::test]
async fn a_table_with_another_key_is_refused_with_what_was_found() {
    let (_stack, clients) = in_memory().await;
    let key = KeySchemaElement::builder()
        .attribute_name("id")
        .key_type(KeyType::Hash)
        .build()
        .unwrap();
    let attribute = AttributeDefinition::builder()
        .attribute_name("id")
        .attribute_type(ScalarAttributeType::N)
        .build()
        .unwrap();
    let request = clients
        .dynamodb
        .create_table()
        .table_name("app")
        .key_schema(key)
        .attribute_definitions(attribute);
    request
        .billing_mode(BillingMode::PayPerRequest)
        .send()
        .await
        .unwrap();
    let error = LeaseTable::new(clients.dynamodb.clone(), "app")
        .ensure_table()
        .await
        .unwrap_err();
    assert!(matches!(error, StoreError::WrongTable { .. }), "{error}");
    assert!(error.to_string().contains("HASH id N"), "{error}");
}

#[tokio::test]
async fn a_missing_table_is_refused_by_name() {
    let (_stack, clients) = in_memory().await;
    let error = LeaseTable::new(clients.dynamodb.clone(), "nowhere")
        .list()
        .await
        .unwrap_err();
    assert!(
        matches!(&error, StoreError::Refused { message } if message.contains("nowhere")),
        "{error}"
    );
}

#[tokio::test]
async fn two_hosts_may_make_the_table_at_once() {
    let (_stack, clients) = in_memory().await;
    let table = LeaseTable::new(clients.dynamodb.clone(), "app");
    let (a, b, c) = tokio::join!(
        table.ensure_table(),
        table.ensure_table(),
        table.ensure_table()
    );
    assert_eq!((a, b, c), (Ok(()), Ok(()), Ok(())));
}

#[tokio::test]
async fn attributes_of_other_programs_survive_every_write_and_other_rows_are_counted() {
    let (_stack, clients) = in_memory().await;
    let table = LeaseTable::new(clients.dynamodb.clone(), "app");
    table.ensure_table().await.unwrap();
    let lease = lease("shardId-000000000000");
    let (text, number) = (
        |v: &str| AttributeValue::S(v.to_owned()),
        |v: &str| AttributeValue::N(v.to_owned()),
    );
    let put = |pairs: Vec<(&str, AttributeValue)>| {
        let item = pairs
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect();
        clients
            .dynamodb
            .put_item()
            .table_name("app")
            .set_item(Some(item))
            .send()
    };
    put(vec![
        ("leaseKey", text(lease.key.as_str())),
        ("leaseCounter", number("0")),
        ("checkpoint", text("LATEST")),
        ("checkpointOwner", text("old")),
        ("pendingCheckpoint", text("5")),
        ("throughputKBps", number("12.5")),
    ])
    .await
    .unwrap();
    put(vec![
        ("leaseKey", text("Leader")),
        ("entityType", text("LEADER")),
    ])
    .await
    .unwrap();
    put(vec![
        ("leaseKey", text("shardId-000000000001")),
        ("leaseCounter", text("many")),
    ])
    .await
    .unwrap();

    let listing = table.list().await.unwrap();
    assert_eq!(
        (
            listing.leases.len(),
            listing.bad_rows.len(),
            listing.foreign_rows
        ),
        (1, 1, 1)
    );
    let of_lease = "leaseKey shardId-000000000000 leaseCounter checkpoint LATEST checkpointOwner \
        old pendingCheckpoint 5 throughputKBps";
    let of_others =
        "leaseKey Leader entityType LEADER leaseKey shardId-000000000001 leaseCounter many";
    let texts = (of_lease.len() - of_lease.matches(' ').count())
        + (of_others.len() - of_others.matches(' ').count());
    // The two numbers: a byte for two digits, and one more.
    assert_eq!(listing.bytes, texts + 2 + 3, "of all rows and attributes");
    let worker = WorkerId::new("a").unwrap();
    let took = table.take(&listing.leases[0], &worker, 7).await.unwrap();
    let Written::Applied(token) = took.written() else {
        panic!("a conflict")
    };
    let position = Position::plain(SequenceNumber::parse("7").unwrap());
    let write = CheckpointWrite {
        checkpoint: Checkpoint::At(position),
        progress: Progress::default(),
        state: None,
    };
    let Written::Applied(token) = table.checkpoint(&token, &write).await.unwrap() else {
        panic!("a conflict")
    };
    table
        .release(&token, &shardmill_core::ports::Progress::default())
        .await
        .unwrap();
    let get = clients
        .dynamodb
        .get_item()
        .table_name("app")
        .key("leaseKey", text(lease.key.as_str()));
    let item = get.send().await.unwrap().item.unwrap();
    assert_eq!(item["throughputKBps"], number("12.5"));
    for gone in ["leaseOwner", "checkpointOwner", "pendingCheckpoint"] {
        assert!(!item.contains_key(gone), "{gone}");
    }
}
