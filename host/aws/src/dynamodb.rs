//! DynamoDB as the lease table (the KCL 2.x schema, attribute for attribute) and as the coordinator
//! table next to it.

mod attributes;
mod checkpoint_item;
mod conditions;
mod coordinator_condition;
mod coordinator_item;
mod coordinator_stream;
mod coordinator_table;
mod deletion;
mod directive_item;
mod errors;
mod history_item;
mod history_table;
mod inspection;
mod lease_item;
mod lease_table;
mod library_tables;
mod load_item;
mod mail_item;
pub(crate) mod meter;
mod row;
pub mod row_size;
mod scan;
mod scope;
mod shard_cache;
mod siblings;
mod standalone_hosts;
mod state_change;
mod state_edit_item;
mod state_table;
mod stream_asked;
mod stream_rows;
mod table;
mod table_options;
mod unreadable;
mod version_item;

pub use coordinator_table::CoordinatorTable;
pub use deletion::{delete_table, existing_tables};
pub use history_table::HistoryPart;
pub use inspection::TableInspector;
pub use lease_table::{LeaseTable, RowMove};
pub use library_tables::{LibraryTables, RowWritten};
pub use siblings::{applications_of_streams, served_applications};
pub use standalone_hosts::StandaloneTables;
pub use table_options::{Billing, Creation, TableOptions};
