//! What spans and their attributes are called. Those without `shardmill.` are of OpenTelemetry's
//! semantic conventions; a test compares them with its registry.

/// The version of the conventions.
pub(super) const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.44.0";

pub(super) const SYSTEM: &str = "messaging.system";
pub(super) const OPERATION_NAME: &str = "messaging.operation.name";
pub(super) const OPERATION_TYPE: &str = "messaging.operation.type";
pub(super) const DESTINATION: &str = "messaging.destination.name";
pub(super) const PARTITION: &str = "messaging.destination.partition.id";
pub(super) const GROUP: &str = "messaging.consumer.group.name";
pub(super) const MESSAGES: &str = "messaging.batch.message_count";
pub(super) const KINESIS_STREAM: &str = "aws.kinesis.stream_name";
pub(super) const ERROR: &str = "error.type";
pub(super) const SERVICE: &str = "service.name";
pub(super) const SERVICE_VERSION: &str = "service.version";
pub(super) const SERVICE_INSTANCE: &str = "service.instance.id";

/// The plugin, as it is called on the stream.
pub(super) const PLUGIN: &str = "shardmill.plugin.name";
/// The version that was called, by its digest.
pub(super) const DIGEST: &str = "shardmill.plugin.digest";
/// 1 for the first delivery of a batch.
pub(super) const ATTEMPT: &str = "shardmill.batch.attempt";
/// The sequence number of the batch's first record, with its place in an aggregate.
pub(super) const FIRST: &str = "shardmill.batch.first";
/// The same of its last record.
pub(super) const LAST: &str = "shardmill.batch.last";
/// What is written into the lease's row.
pub(super) const CHECKPOINT: &str = "shardmill.checkpoint";

/// Kinesis, which the conventions do not list; they allow other values.
pub(super) const KINESIS: &str = "aws_kinesis";
/// The system of a sink: what becomes of output there is the sink's.
pub(super) const SHARDMILL: &str = "shardmill";
