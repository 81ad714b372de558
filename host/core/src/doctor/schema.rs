//! Which library, in which of its versions, wrote a table's rows, as far as they show it.

use super::mode::traces_of_kcl3;
use super::{Facts, LeaseTableFacts, TableFacts};

/// The writer in words; empty if there are no rows.
pub(super) fn writer(facts: &Facts) -> String {
    if let Some(predecessor) = &facts.predecessor {
        let library = predecessor.library;
        return format!("{library}, {}", library.versions());
    }
    match &facts.table {
        TableFacts::Leases(table) if !table.leases.is_empty() => writer_of_leases(facts, table),
        _ => String::new(),
    }
}

fn writer_of_leases(facts: &Facts, table: &LeaseTableFacts) -> String {
    let any = |is: fn(&super::LeaseFacts) -> bool| table.leases.iter().any(is);
    let is_multi_stream = any(|facts| facts.lease.key.stream_prefix().is_some());
    let has_hash_keys = any(|facts| facts.lease.hash_range.is_some());
    let has_entity_type = any(|facts| facts.has_entity_type) || table.table_migration.is_some();
    let is_of_kcl3 = !traces_of_kcl3(table, facts.companions).is_empty();
    let versions = match (has_entity_type, is_of_kcl3, has_hash_keys) {
        (true, _, _) => "KCL 3.5 or later",
        (false, true, _) => "KCL 3.0 to 3.4",
        _ if facts.companions.own_coordinator => "shardmill, in the rows of the KCL 2.x",
        (false, false, true) => "KCL 1.14 or later, or 2.3 or later",
        (false, false, false) => "KCL 1.x before 1.14, or 2.x before 2.3",
    };
    if is_multi_stream {
        format!("{versions}, in multi-stream mode")
    } else {
        versions.to_owned()
    }
}
