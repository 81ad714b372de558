//! Counts requests to tables, attempt by attempt, and what they cost: the SDK's own retries are
//! requests too, and are throttled too.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use aws_sdk_dynamodb::config::interceptors::{
    BeforeSerializationInterceptorContextMut, FinalizerInterceptorContextRef,
};
use aws_sdk_dynamodb::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_dynamodb::error::BoxError;
use aws_sdk_dynamodb::operation::create_table::CreateTableInput;
use aws_sdk_dynamodb::operation::delete_item::{DeleteItemInput, DeleteItemOutput};
use aws_sdk_dynamodb::operation::describe_table::DescribeTableInput;
use aws_sdk_dynamodb::operation::get_item::{GetItemInput, GetItemOutput};
use aws_sdk_dynamodb::operation::put_item::{PutItemInput, PutItemOutput};
use aws_sdk_dynamodb::operation::query::{QueryInput, QueryOutput};
use aws_sdk_dynamodb::operation::scan::{ScanInput, ScanOutput};
use aws_sdk_dynamodb::operation::transact_write_items::{
    TransactWriteItemsInput, TransactWriteItemsOutput,
};
use aws_sdk_dynamodb::operation::update_item::{UpdateItemInput, UpdateItemOutput};
use aws_sdk_dynamodb::types::{
    ConditionCheck, ConsumedCapacity, Delete, Put, ReturnConsumedCapacity, TransactWriteItem,
    Update,
};
use aws_smithy_runtime_api::client::interceptors::context::{Input, Output};
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_types::config_bag::{Storable, StoreReplace};

use crate::metrics::{TABLE_CAPACITY, TABLE_REQUESTS};

/// Counts requests and units.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    /// Fractions of units that are not counted yet, since only whole ones are: an eventually
    /// consistent read costs half of one. By table and operation; locked for some nanoseconds.
    left: Mutex<BTreeMap<(String, &'static str), f64>>,
}

/// A request, remembered until it is answered.
#[derive(Debug)]
struct Asked {
    table: String,
    operation: &'static str,
}

impl Storable for Asked {
    type Storer = StoreReplace<Self>;
}

impl Intercept for Meter {
    fn name(&self) -> &'static str {
        "shardmill table meter"
    }

    fn modify_before_serialization(
        &self,
        context: &mut BeforeSerializationInterceptorContextMut<'_>,
        _components: &RuntimeComponents,
        bag: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        if let Some(asked) = ask_for_units(context.input_mut()) {
            bag.interceptor_state().store_put(asked);
        }
        Ok(())
    }

    fn read_after_attempt(
        &self,
        context: &FinalizerInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        bag: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let Some(asked) = bag.load::<Asked>() else {
            return Ok(());
        };
        let labels = [
            ("table", asked.table.clone()),
            ("operation", asked.operation.to_owned()),
            ("outcome", outcome_of(context.response()).to_owned()),
        ];
        ::metrics::counter!(TABLE_REQUESTS, &labels).increment(1);
        if let Some(Ok(output)) = context.output_or_error() {
            for consumed in consumed(output) {
                self.count_units(asked, consumed);
            }
        }
        Ok(())
    }
}

impl Meter {
    fn count_units(&self, asked: &Asked, consumed: &ConsumedCapacity) {
        let table = consumed.table_name().unwrap_or(&asked.table);
        let units = consumed.capacity_units().unwrap_or_default();
        let units = self.whole_units(table, asked.operation, units);
        let labels = [
            ("table", table.to_owned()),
            ("operation", asked.operation.to_owned()),
        ];
        ::metrics::counter!(TABLE_CAPACITY, &labels).increment(units);
    }
    /// The whole units to count now; the fraction is kept for the next time.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "above zero; the cast saturates"
    )]
    fn whole_units(&self, table: &str, operation: &'static str, units: f64) -> u64 {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let sum = left.entry((table.to_owned(), operation)).or_default();
        *sum += units.max(0.0);
        let whole = sum.floor();
        *sum -= whole;
        whole as u64
    }
}

/// An error's body begins with its name.
const ERROR_BYTES_MAX: usize = 512;

/// The outcome as the metric names it; `None` means that there was no answer.
fn outcome_of(response: Option<&HttpResponse>) -> &'static str {
    let Some(response) = response else {
        return "failed";
    };
    let body = response.body().bytes().unwrap_or_default();
    let start = &body[..body.len().min(ERROR_BYTES_MAX)];
    outcome(response.status().as_u16(), &String::from_utf8_lossy(start))
}

/// By the answer's status and the beginning of its body.
fn outcome(status: u16, body: &str) -> &'static str {
    let has = |names: &[&str]| names.iter().any(|name| body.contains(name));
    match status {
        200..300 => "ok",
        _ if has(&[
            "ConditionalCheckFailed",
            "TransactionCanceled",
            "ResourceInUse",
        ]) =>
        {
            "condition"
        }
        // For instance a table that is still to be made.
        _ if has(&["ResourceNotFound"]) => "absent",
        _ if has(&["Throttl", "ThroughputExceeded", "LimitExceeded"]) => "throttled",
        400..500 => "refused",
        _ => "failed",
    }
}

/// Makes the answer show the units that the request consumes; `None` for requests that a host never
/// makes.
fn ask_for_units(input: &mut Input) -> Option<Asked> {
    macro_rules! metered {
        ($($input:ty => $operation:literal),*) => {
            $(if let Some(input) = input.downcast_mut::<$input>() {
                input.return_consumed_capacity = Some(ReturnConsumedCapacity::Total);
                let table = input.table_name.clone().unwrap_or_default();
                return Some(Asked { table, operation: $operation });
            })*
        };
    }
    metered!(
        GetItemInput => "GetItem",
        PutItemInput => "PutItem",
        UpdateItemInput => "UpdateItem",
        DeleteItemInput => "DeleteItem",
        QueryInput => "Query",
        ScanInput => "Scan"
    );
    if let Some(input) = input.downcast_mut::<TransactWriteItemsInput>() {
        input.return_consumed_capacity = Some(ReturnConsumedCapacity::Total);
        let table = input.transact_items().first().and_then(table_of);
        return Some(Asked {
            table: table.unwrap_or_default().to_owned(),
            operation: "TransactWriteItems",
        });
    }
    without_units(input)
}

/// A request about a table as a whole, which consumes no units.
fn without_units(input: &Input) -> Option<Asked> {
    let (operation, table) = if let Some(input) = input.downcast_ref::<DescribeTableInput>() {
        ("DescribeTable", &input.table_name)
    } else {
        let input = input.downcast_ref::<CreateTableInput>()?;
        ("CreateTable", &input.table_name)
    };
    Some(Asked {
        table: table.clone().unwrap_or_default(),
        operation,
    })
}

fn table_of(part: &TransactWriteItem) -> Option<&str> {
    let put = part.put().map(Put::table_name);
    let update = part.update().map(Update::table_name);
    let delete = part.delete().map(Delete::table_name);
    put.or(update)
        .or(delete)
        .or_else(|| part.condition_check().map(ConditionCheck::table_name))
}

fn consumed(output: &Output) -> Vec<&ConsumedCapacity> {
    macro_rules! of {
        ($($output:ty),*) => {
            $(if let Some(output) = output.downcast_ref::<$output>() {
                return output.consumed_capacity().into_iter().collect();
            })*
        };
    }
    of!(
        GetItemOutput,
        PutItemOutput,
        UpdateItemOutput,
        DeleteItemOutput,
        QueryOutput,
        ScanOutput
    );
    let transaction = output.downcast_ref::<TransactWriteItemsOutput>();
    transaction
        .map(|output| output.consumed_capacity().iter().collect())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_units_are_counted_two_by_two_and_by_table() {
        let meter = Meter::default();
        let count = |table: &str| meter.whole_units(table, "Query", 0.5);
        assert_eq!(
            (count("a"), count("b"), count("a"), count("a"), count("b")),
            (0, 0, 1, 0, 1)
        );
        assert_eq!(meter.whole_units("a", "Query", 2.0), 2);
    }

    #[test]
    fn an_answer_is_counted_by_what_it_means_for_the_operator() {
        let error =
            |name: &str| format!(r#"{{"__type":"com.amazonaws.dynamodb.v20120810#{name}"}}"#);
        for (status, name, expected) in [
            (400, "ConditionalCheckFailedException", "condition"),
            (400, "ProvisionedThroughputExceededException", "throttled"),
            (400, "ThrottlingException", "throttled"),
            (400, "AccessDeniedException", "refused"),
            (400, "ResourceNotFoundException", "absent"),
            (500, "InternalServerError", "failed"),
        ] {
            assert_eq!(outcome(status, &error(name)), expected, "{name}");
        }
        assert_eq!((outcome(200, "{}"), outcome_of(None)), ("ok", "failed"));
    }
}
