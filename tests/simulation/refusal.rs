//! Services that say no to some requests for a while: a right is missing, a rate exceeded, or
//! transactions collide; of one table, for some actions, for one host or all.

use std::time::Duration;

use crate::weather::Service;

/// A refusal lasts no longer.
pub const LASTS_MAX: Duration = Duration::from_mins(2);

/// How a request is refused; nothing is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// `AccessDeniedException`.
    Denied,
    /// `ProvisionedThroughputExceededException`.
    Throttled,
    /// `TransactionConflictException`.
    Conflict,
}

/// What is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// To whom; `None` for all.
    pub host: Option<String>,
    /// By which service.
    pub service: Service,
    /// Which actions, by their API's names.
    pub actions: &'static [&'static str],
    /// How.
    pub how: How,
}

/// What can be missing by itself.
const RIGHTS: [(Service, &[&str]); 12] = [
    (
        Service::Dynamodb,
        &["UpdateItem", "PutItem", "DeleteItem", "TransactWriteItems"],
    ),
    (Service::Dynamodb, &["UpdateItem"]),
    (Service::Dynamodb, &["TransactWriteItems"]),
    (Service::Dynamodb, &["PutItem"]),
    (Service::Dynamodb, &["Scan"]),
    (Service::Dynamodb, &["GetItem"]),
    (Service::Coordinator, &["PutItem"]),
    (Service::Coordinator, &["Query"]),
    (
        Service::Coordinator,
        &["GetItem", "UpdateItem", "DeleteItem"],
    ),
    (Service::Kinesis, &["GetRecords", "SubscribeToShard"]),
    (Service::Kinesis, &["GetShardIterator"]),
    (Service::Kinesis, &["ListShards", "DescribeStreamSummary"]),
];

impl Refusal {
    /// One of them.
    pub fn draw(dice: &mut fastrand::Rng, host: Option<String>) -> Self {
        let (service, actions) = RIGHTS[dice.usize(..RIGHTS.len())];
        let how = match dice.u32(0..20) {
            0..12 => How::Denied,
            12..17 => How::Throttled,
            _ if service == Service::Dynamodb => How::Conflict,
            _ => How::Throttled,
        };
        Self {
            host,
            service,
            actions,
            how,
        }
    }

    /// Whether it is about this request.
    pub fn is_about(&self, host: &str, service: Service, action: &str) -> bool {
        self.service == service
            && self.host.as_deref().is_none_or(|refused| refused == host)
            && self.actions.contains(&action)
    }
}
