//! DynamoDB as the lease table: the KCL 2.x schema, attribute for attribute.

mod conditions;
mod errors;
mod lease_item;
mod lease_table;
mod table;

pub use lease_table::LeaseTable;
