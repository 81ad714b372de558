//! DynamoDB as the lease table: the KCL 2.x schema, attribute for attribute.

mod conditions;
mod errors;
mod inspection;
mod lease_item;
mod lease_table;
mod scan;
mod table;

pub use inspection::TableInspector;
pub use lease_table::LeaseTable;
