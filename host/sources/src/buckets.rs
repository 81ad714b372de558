use std::time::SystemTime;

use shardmill_aws::AwsClients;

/// What requests to buckets are signed with.
#[derive(Debug, Clone)]
pub struct Buckets {
    /// Has the credentials and the region; that of the buckets too.
    pub clients: AwsClients,
    /// Instead of the region's endpoint: an emulator's, or another service that speaks S3.
    pub endpoint: Option<String>,
    /// The wall time, which a signature has in it.
    pub now: fn() -> SystemTime,
}
