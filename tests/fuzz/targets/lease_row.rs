//! Whatever a row of the lease table holds, it is read as a lease, as another kind of row, or as a
//! bad one.
#![no_main]
#![allow(dead_code, missing_docs)]

#[path = "../checks/lease_row.rs"]
mod check;
#[path = "../../../host/aws/src/dynamodb/lease_item.rs"]
mod lease_item;

use lease_item::{Item, Row, classify, encode};

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::check(data));
