use std::time::SystemTime;

use shardmill_aws::AwsClients;

/// What buckets and registries of AWS are asked with.
#[derive(Debug, Clone)]
pub struct AwsAccess {
    /// Has the credentials, and the region of buckets.
    pub clients: AwsClients,
    /// Where buckets are instead of the region's endpoint: an emulator's, or another service that
    /// speaks S3.
    pub s3_endpoint: Option<String>,
    /// Where logins to registries are asked for instead of the endpoint of the registry's region.
    pub ecr_endpoint: Option<String>,
    /// The wall time, which a signature has in it.
    pub now: fn() -> SystemTime,
}
