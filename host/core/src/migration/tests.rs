//! Rows as each library writes them, what they mean, and what happens to each shard.

mod exporting;
mod importing;
mod reading;
mod watching;

use std::time::Duration;

use super::*;
use crate::lease::{Checkpoint, Lease, Pulse, WorkerId};
use crate::stream::{HashKeyRange, InitialPosition, SequenceNumber, Shard, ShardId, StreamName};
use crate::time::Moment;

const P: &str = "shardId-000000000000";
const Q: &str = "shardId-000000000001";
const CHILD: &str = "shardId-000000000002";

fn id(text: &str) -> ShardId {
    ShardId::new(text).unwrap()
}

fn at(number: &str) -> Checkpoint {
    Checkpoint::parse(number, 0).unwrap()
}

fn open(name: &str, parents: &[&str]) -> Shard {
    Shard {
        id: id(name),
        parents: parents.iter().map(|parent| id(parent)).collect(),
        hash_range: HashKeyRange::FULL,
        ending_sequence: None,
    }
}

fn closed(name: &str, parents: &[&str]) -> Shard {
    Shard {
        ending_sequence: SequenceNumber::parse("900").ok(),
        ..open(name, parents)
    }
}

fn row<const N: usize>(attributes: [(&str, Value); N]) -> Row {
    let named = |(name, value): (&str, Value)| (name.to_owned(), value);
    attributes.into_iter().map(named).collect()
}

fn text(value: &str) -> Value {
    Value::text(value)
}

fn checkpoints(rows: Vec<Row>) -> Tables {
    Tables {
        checkpoints: rows,
        workers: Vec::new(),
    }
}

/// A vmware-go-kcl row.
fn vmware(shard: &str, checkpoint: Option<&str>, owner: Option<&str>, timeout: &str) -> Row {
    let mut row = row([("ShardID", text(shard)), ("LeaseTimeout", text(timeout))]);
    if let Some(checkpoint) = checkpoint {
        row.insert("Checkpoint".to_owned(), text(checkpoint));
    }
    if let Some(owner) = owner {
        row.insert("AssignedTo".to_owned(), text(owner));
    }
    row
}

fn of_vmware(rows: Vec<Row>) -> Found {
    read(Library::VmwareGoKcl, &checkpoints(rows)).remove(0)
}
