//! Stands where dead letters would go, for as long as no sink takes them: the configuration refuses a policy that needs it.

use std::sync::Arc;

use shardmill_core::ports::{DeadLetter, DeadLetters, PortFuture, SinkError};

/// Stores nothing, and says so: a record is never taken for stored.
#[derive(Debug, Clone, Copy)]
pub struct NoDeadLetters;

impl DeadLetters for NoDeadLetters {
    fn store<'a>(&'a self, target: &'a str, _: Arc<Vec<DeadLetter>>) -> PortFuture<'a, Result<(), SinkError>> {
        Box::pin(async move {
            Err(SinkError { sink: target.to_owned(), message: "this host stores no dead letters".to_owned() })
        })
    }
}
