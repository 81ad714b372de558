//! A KCL worker's writes to a lease table, as the KCL sends them: the legacy DynamoDB API,
//! conditional on the counter alone (KCL 2.x `DynamoDBLeaseRefresher`).

use std::collections::HashMap;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::{
    AttributeAction, AttributeDefinition, AttributeValue, AttributeValueUpdate, BillingMode,
    ExpectedAttributeValue, KeySchemaElement, KeyType, ScalarAttributeType,
};

/// A DynamoDB item.
pub type Item = HashMap<String, AttributeValue>;

/// A string attribute.
pub fn text(value: &str) -> AttributeValue {
    AttributeValue::S(value.to_owned())
}

/// A number attribute; DynamoDB numbers are text.
pub fn number(value: impl ToString + Copy) -> AttributeValue {
    AttributeValue::N(value.to_string())
}

/// A string set attribute, in the order that [`KclPeer::row`] gives sets.
pub fn set(values: &[&str]) -> AttributeValue {
    let mut values: Vec<String> = values.iter().map(|value| (*value).to_owned()).collect();
    values.sort();
    AttributeValue::Ss(values)
}

/// An item of these attributes.
pub fn item<const N: usize>(attributes: [(&str, AttributeValue); N]) -> Item {
    attributes
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// A row as a KCL 2.x worker makes it for a shard, unowned.
pub fn fresh_row(key: &str) -> Item {
    item([
        ("leaseKey", text(key)),
        ("leaseCounter", number(0)),
        ("ownerSwitchesSinceCheckpoint", number(0)),
        ("checkpoint", text("TRIM_HORIZON")),
        ("checkpointSubSequenceNumber", number(0)),
    ])
}

/// A KCL worker, as the table sees it.
pub struct KclPeer {
    client: Client,
    table: String,
}

impl KclPeer {
    /// A worker of the application whose lease table is `table`.
    pub fn new(client: Client, table: impl Into<String>) -> Self {
        Self {
            client,
            table: table.into(),
        }
    }

    /// Makes a table with a string hash key of this name, which is `leaseKey` for a lease table.
    pub async fn create_table(&self, key_name: &str) {
        let key = KeySchemaElement::builder()
            .attribute_name(key_name)
            .key_type(KeyType::Hash)
            .build();
        let attribute = AttributeDefinition::builder()
            .attribute_name(key_name)
            .attribute_type(ScalarAttributeType::S)
            .build();
        let request = self
            .client
            .create_table()
            .table_name(&self.table)
            .billing_mode(BillingMode::PayPerRequest);
        let request = request
            .key_schema(key.expect("a key"))
            .attribute_definitions(attribute.expect("an attribute"));
        request.send().await.expect("the table is made");
    }

    /// Writes a whole row, whatever is there.
    pub async fn put(&self, row: &Item) {
        let request = self
            .client
            .put_item()
            .table_name(&self.table)
            .set_item(Some(row.clone()));
        request.send().await.expect("the row is written");
    }

    /// The row as it lies in the table, with string sets in order.
    pub async fn row(&self, key: &str) -> Option<Item> {
        let request = self
            .client
            .get_item()
            .table_name(&self.table)
            .key("leaseKey", text(key))
            .consistent_read(true);
        let mut row = request.send().await.expect("an answer").item?;
        for value in row.values_mut() {
            if let AttributeValue::Ss(names) = value {
                names.sort();
            }
        }
        Some(row)
    }

    /// `deleteLease`: unconditional.
    pub async fn delete(&self, key: &str) {
        let request = self
            .client
            .delete_item()
            .table_name(&self.table)
            .key("leaseKey", text(key));
        request.send().await.expect("the row is deleted");
    }

    /// `renewLease`. Whether it was applied.
    pub async fn renew(&self, key: &str, counter: u64) -> bool {
        self.update(
            key,
            [("leaseCounter", number(counter))],
            vec![("leaseCounter", put(number(counter + 1)))],
        )
        .await
    }

    /// `takeLease` of a lease seen with this counter and owner. Whether it was applied.
    pub async fn take(&self, key: &str, counter: u64, owner: Option<&str>, by: &str) -> bool {
        let mut updates = vec![
            ("leaseCounter", put(number(counter + 1))),
            ("leaseOwner", put(text(by))),
        ];
        if owner.is_some_and(|owner| owner != by) {
            let one = AttributeValueUpdate::builder()
                .value(number(1))
                .action(AttributeAction::Add)
                .build();
            updates.push(("ownerSwitchesSinceCheckpoint", one));
        }
        self.update(key, [("leaseCounter", number(counter))], updates)
            .await
    }

    /// KCL 3.x: the leader starts a graceful hand-off; the counter stays. Whether it was applied.
    pub async fn start_hand_off(&self, key: &str, from: &str, to: &str) -> bool {
        let updates = vec![
            ("leaseOwner", put(text(to))),
            ("checkpointOwner", put(text(from))),
        ];
        self.update(key, [("leaseOwner", text(from))], updates)
            .await
    }

    async fn update(
        &self,
        key: &str,
        expected: [(&str, AttributeValue); 1],
        updates: Vec<(&str, AttributeValueUpdate)>,
    ) -> bool {
        let mut request = self
            .client
            .update_item()
            .table_name(&self.table)
            .key("leaseKey", text(key));
        for (name, value) in expected {
            request =
                request.expected(name, ExpectedAttributeValue::builder().value(value).build());
        }
        for (name, update) in updates {
            request = request.attribute_updates(name, update);
        }
        match request.send().await {
            Ok(_) => true,
            Err(error) => {
                let is_conflict = error
                    .as_service_error()
                    .is_some_and(UpdateItemError::is_conditional_check_failed_exception);
                assert!(is_conflict, "{error:?}");
                false
            }
        }
    }
}

fn put(value: AttributeValue) -> AttributeValueUpdate {
    AttributeValueUpdate::builder()
        .value(value)
        .action(AttributeAction::Put)
        .build()
}
