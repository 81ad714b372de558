//! How hosts make the tables that are missing. Nothing here changes a table that another program
//! made, but for point-in-time recovery, which is switched on wherever it is asked for.

use std::collections::BTreeMap;

use aws_sdk_dynamodb::error::BuildError;
use aws_sdk_dynamodb::operation::create_table::builders::CreateTableFluentBuilder;
use aws_sdk_dynamodb::types::{BillingMode, ProvisionedThroughput, SseSpecification, SseType, Tag};

/// How hosts make tables.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TableOptions {
    /// Whether hosts make a table that is missing, or refuse to serve the plugin.
    pub creation: Creation,
    /// How reads and writes are paid for.
    pub billing: Billing,
    /// Tags by key; at most 50 (AWS limit).
    pub tags: BTreeMap<String, String>,
    /// Whether DynamoDB keeps what a table held in each second of the last 35 days.
    pub has_recovery: bool,
    /// Whether `DeleteTable` is refused, `shardmill delete` included.
    pub is_protected: bool,
    /// The ARN of the KMS key that encrypts a table; by default DynamoDB's own.
    pub encryption_key: Option<String>,
}

/// What happens if a table is missing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Creation {
    /// A host makes it.
    #[default]
    IfMissing,
    /// Somebody else makes all tables.
    Never,
}

/// How reads and writes of a table are paid for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Billing {
    /// By request, as the KCL has it: the traffic follows the number of shards, for which nobody
    /// plans a capacity.
    #[default]
    OnDemand,
    /// By capacity, for each table.
    Provisioned {
        /// Read units a second.
        read_units: u32,
        /// Write units a second.
        write_units: u32,
    },
}

impl TableOptions {
    pub(super) fn apply(
        &self,
        request: CreateTableFluentBuilder,
    ) -> Result<CreateTableFluentBuilder, BuildError> {
        let mut request = match self.billing {
            Billing::OnDemand => request.billing_mode(BillingMode::PayPerRequest),
            Billing::Provisioned {
                read_units,
                write_units,
            } => request
                .billing_mode(BillingMode::Provisioned)
                .provisioned_throughput(capacity(read_units, write_units)?),
        };
        for (key, value) in &self.tags {
            request = request.tags(Tag::builder().key(key).value(value).build()?);
        }
        if self.is_protected {
            request = request.deletion_protection_enabled(true);
        }
        Ok(request.set_sse_specification(self.encryption_key.as_deref().map(encrypted_with)))
    }
}

fn capacity(read_units: u32, write_units: u32) -> Result<ProvisionedThroughput, BuildError> {
    ProvisionedThroughput::builder()
        .read_capacity_units(read_units.into())
        .write_capacity_units(write_units.into())
        .build()
}

fn encrypted_with(key: &str) -> SseSpecification {
    SseSpecification::builder()
        .enabled(true)
        .sse_type(SseType::Kms)
        .kms_master_key_id(key)
        .build()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::Value;
    use shardmill_core::ports::LeaseStore;

    use super::*;
    use crate::dynamodb::LeaseTable;
    use crate::transport_double::TransportDouble;

    const MISSING: (u16, &str) = (
        400,
        r#"{"__type":"com.amazonaws.dynamodb.v20120810#ResourceNotFoundException"}"#,
    );
    const ACTIVE: (u16, &str) = (
        200,
        r#"{"Table":{"TableStatus":"ACTIVE","KeySchema":[{"AttributeName":"leaseKey",
            "KeyType":"HASH"}],"AttributeDefinitions":[{"AttributeName":"leaseKey",
            "AttributeType":"S"}]}}"#,
    );
    const REFUSED: (u16, &str) = (
        400,
        r#"{"__type":"com.amazon.coral.service#AccessDeniedException","message":"no"}"#,
    );

    async fn made<const N: usize>(
        replies: [(u16, &str); N],
        options: TableOptions,
    ) -> (Result<(), String>, Vec<Value>) {
        let transport = TransportDouble::new(replies);
        let table = LeaseTable::new(transport.dynamodb(), "orders").made_as(Arc::new(options));
        let done = table.ensure_table().await;
        let requests = transport.requests();
        let requests = requests
            .iter()
            .map(|body| serde_json::from_str(body).unwrap());
        (done.map_err(|error| error.to_string()), requests.collect())
    }

    #[tokio::test(start_paused = true)]
    async fn a_missing_table_is_made_as_it_is_wanted() {
        let options = TableOptions {
            billing: Billing::Provisioned {
                read_units: 5,
                write_units: 7,
            },
            tags: BTreeMap::from([("team".to_owned(), "payments".to_owned())]),
            has_recovery: true,
            is_protected: true,
            encryption_key: Some("arn:key".to_owned()),
            ..TableOptions::default()
        };
        let replies = [MISSING, (200, "{}"), ACTIVE, (200, "{}")];
        let (done, requests) = made(replies, options).await;
        assert_eq!(done, Ok(()));
        let create = &requests[1];
        assert_eq!(create["BillingMode"], "PROVISIONED");
        let throughput = &create["ProvisionedThroughput"];
        assert_eq!(throughput["ReadCapacityUnits"], 5);
        assert_eq!(throughput["WriteCapacityUnits"], 7);
        assert_eq!(create["Tags"][0]["Key"], "team");
        assert_eq!(create["Tags"][0]["Value"], "payments");
        assert_eq!(create["DeletionProtectionEnabled"], true);
        assert_eq!(create["SSESpecification"]["KMSMasterKeyId"], "arn:key");
        let recovery = &requests[3];
        assert_eq!(recovery["TableName"], "orders");
        let wanted = &recovery["PointInTimeRecoverySpecification"];
        assert_eq!(wanted["PointInTimeRecoveryEnabled"], true);
    }

    #[tokio::test(start_paused = true)]
    async fn by_default_a_table_is_on_demand_and_has_nothing_else() {
        let replies = [MISSING, (200, "{}"), ACTIVE];
        let (done, requests) = made(replies, TableOptions::default()).await;
        assert_eq!(done, Ok(()));
        assert_eq!(requests[1]["BillingMode"], "PAY_PER_REQUEST");
        for absent in ["Tags", "DeletionProtectionEnabled", "SSESpecification"] {
            assert!(requests[1].get(absent).is_none(), "{absent}");
        }
        assert_eq!(requests.len(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_table_that_nobody_may_make_is_named_with_its_key() {
        let options = TableOptions {
            creation: Creation::Never,
            ..TableOptions::default()
        };
        let (done, requests) = made([MISSING], options.clone()).await;
        let error = done.unwrap_err();
        assert!(
            error.contains("there is no table orders") && error.contains("HASH leaseKey S"),
            "{error}"
        );
        assert_eq!(requests.len(), 1);
        assert_eq!(made([ACTIVE], options).await.0, Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_recovery_that_is_refused_keeps_no_host_from_its_work_and_is_asked_for_at_each_start()
    {
        let options = TableOptions {
            has_recovery: true,
            ..TableOptions::default()
        };
        let (done, requests) = made([ACTIVE, REFUSED], options).await;
        assert_eq!((done, requests.len()), (Ok(()), 2));
    }
}
