//! Writes what operators want of all hosts.

use shardmill_core::control::Control;
use shardmill_core::ports::{Raced, StoreError};

use super::CoordinatorTable;
use super::attributes::number;
use super::coordinator_condition::Condition;
use super::directive_item::{self, CONTROL};
use super::errors::is_condition_failed;
use super::row::{FLEET, key};

impl CoordinatorTable {
    /// Changes the row if it is as it was read. Only its creation writes all of it: an attribute
    /// that this version does not know stays.
    pub(super) async fn change_control(
        &self,
        seen: &Control,
        next: &Control,
    ) -> Result<Raced, StoreError> {
        if seen.version == 0 {
            let item = directive_item::encode_control(next);
            return self.put_if(Condition::is_new(), item).await;
        }
        self.learn_stream().await?;
        let (set, gone) = directive_item::control_changes(seen, next);
        if set.is_empty() && gone.is_empty() {
            return Ok(Raced::Applied);
        }
        let row_key = self.scope().own_of_coordinator(key(FLEET, CONTROL));
        let mut request = self
            .client()
            .update_item()
            .table_name(self.name())
            .set_key(Some(row_key))
            .condition_expression("version = :seen")
            .expression_attribute_values(":seen", number(seen.version));
        // Names of attributes may be reserved words of DynamoDB.
        let mut sets = Vec::new();
        for (index, (name, value)) in set.into_iter().enumerate() {
            sets.push(format!("#set{index} = :set{index}"));
            request = request
                .expression_attribute_names(format!("#set{index}"), name)
                .expression_attribute_values(format!(":set{index}"), value);
        }
        let mut removes = Vec::new();
        for (index, name) in gone.into_iter().enumerate() {
            removes.push(format!("#gone{index}"));
            request = request.expression_attribute_names(format!("#gone{index}"), name);
        }
        let mut parts = Vec::new();
        for (word, part) in [("SET", sets), ("REMOVE", removes)] {
            if !part.is_empty() {
                parts.push(format!("{word} {}", part.join(", ")));
            }
        }
        match request.update_expression(parts.join(" ")).send().await {
            Ok(_) => Ok(Raced::Applied),
            Err(error) if is_condition_failed(&error) => Ok(Raced::Lost),
            Err(error) => Err(self.error(&error)),
        }
    }
}
