//! What a host calls each operation for.

use shardmill_aws::operations::{Operation, dynamodb, ecr, kinesis, kms, s3, sts};

/// An operation, and what a host calls it for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Need {
    /// The operation's name, such as `GetRecords`.
    pub operation: Operation,
    /// The reason, for people.
    pub why: &'static str,
}

const fn need(operation: Operation, why: &'static str) -> Need {
    Need { operation, why }
}

pub(super) const READ: [Need; 4] = [
    need(
        kinesis::DESCRIBE_STREAM_SUMMARY,
        "whether the stream is the one that the checkpoints belong to, and what time it is there",
    ),
    need(kinesis::LIST_SHARDS, "which shards there are"),
    need(
        kinesis::GET_SHARD_ITERATOR,
        "to begin reading a shard at its checkpoint",
    ),
    need(
        kinesis::GET_RECORDS,
        "to read records; with fan-out, while there is no subscription",
    ),
];
pub(super) const LEASES: [Need; 6] = on_leases(
    need(
        dynamodb::SCAN,
        "to watch all leases, as the leader and its deputies do",
    ),
    "to take, claim, checkpoint and release leases",
    "to remove the leases of finished shards",
);
/// In the place of [`LEASES`] where hosts are standalone.
pub(super) const OWN_LEASES: [Need; 6] = on_leases(
    need(dynamodb::QUERY, "to watch this host's own leases"),
    "to take, checkpoint and release leases",
    "to remove the leases of finished shards, and of hosts that are gone",
);

const fn on_leases(watch: Need, update: &'static str, remove: &'static str) -> [Need; 6] {
    [
        need(
            dynamodb::DESCRIBE_TABLE,
            "whether the lease table is there, and has the right key",
        ),
        watch,
        need(
            dynamodb::GET_ITEM,
            "to read a lease before it is taken, and after a write without an answer",
        ),
        need(dynamodb::PUT_ITEM, "to create the leases of new shards"),
        need(dynamodb::UPDATE_ITEM, update),
        need(dynamodb::DELETE_ITEM, remove),
    ]
}

/// Beside [`STATE`], where hosts are standalone.
pub(super) const OTHERS_STATE: [Need; 1] = [need(
    dynamodb::QUERY,
    "to remove the state of hosts that are gone",
)];
pub(super) const COORDINATION: [Need; 6] = [
    need(
        dynamodb::DESCRIBE_TABLE,
        "whether the coordinator table is there, and has the right key",
    ),
    need(
        dynamodb::QUERY,
        "to watch the fleet, and to read what the leader left for this host",
    ),
    need(dynamodb::GET_ITEM, "to read a host's registration"),
    need(
        dynamodb::PUT_ITEM,
        "to register, to lead, and to write the list of shards",
    ),
    need(
        dynamodb::UPDATE_ITEM,
        "for heartbeats and messages between hosts",
    ),
    need(
        dynamodb::DELETE_ITEM,
        "to leave the fleet, and to remove hosts that died",
    ),
];
pub(super) const STATE: [Need; 4] = [
    need(
        dynamodb::DESCRIBE_TABLE,
        "whether the state table is there, and has the right key",
    ),
    need(
        dynamodb::GET_ITEM,
        "to give a plugin the state of its shard",
    ),
    need(
        dynamodb::PUT_ITEM,
        "to save state in one transaction with the checkpoint",
    ),
    need(
        dynamodb::DELETE_ITEM,
        "to remove state in one transaction with the checkpoint",
    ),
];
pub(super) const CREATE_TABLES: [Need; 1] = [need(
    dynamodb::CREATE_TABLE,
    "to create a table that is missing; not needed once all exist",
)];
pub(super) const TAG_TABLES: [Need; 1] = [need(
    dynamodb::TAG_RESOURCE,
    "because of tables.tags; not needed once all tables exist",
)];
pub(super) const RECOVER_TABLES: [Need; 1] = [need(
    dynamodb::UPDATE_CONTINUOUS_BACKUPS,
    "because of tables.point-in-time-recovery",
)];
/// For the key of tables, which DynamoDB uses on behalf of who calls it.
pub const USE_TABLE_KEY: [Need; 6] = [
    need(
        kms::ENCRYPT,
        "because the tables are encrypted with this key, by DynamoDB",
    ),
    need(kms::DECRYPT, "the same"),
    need(kms::RE_ENCRYPT, "the same"),
    need(kms::GENERATE_DATA_KEY, "the same"),
    need(kms::DESCRIBE_KEY, "the same"),
    need(
        kms::CREATE_GRANT,
        "the same; not needed once all tables exist",
    ),
];
pub(super) const ASSUME_ROLES: [Need; 1] = [need(
    sts::ASSUME_ROLE,
    "for who starts the host; the other permissions are for the role",
)];
pub(super) const REGISTER: [Need; 1] = [need(
    kinesis::REGISTER_STREAM_CONSUMER,
    "to register the fan-out consumer if it is missing",
)];
pub(super) const DESCRIBE_CONSUMER: [Need; 1] = [need(
    kinesis::DESCRIBE_STREAM_CONSUMER,
    "whether the fan-out consumer can be used",
)];
pub(super) const SUBSCRIBE: [Need; 1] =
    [need(kinesis::SUBSCRIBE_TO_SHARD, "to have records pushed")];
pub(super) const DEREGISTER: [Need; 1] = [need(
    kinesis::DEREGISTER_STREAM_CONSUMER,
    "because of reads.deregister-on-exit",
)];
pub(super) const PUT: [Need; 2] = [
    need(
        kinesis::DESCRIBE_STREAM_SUMMARY,
        "whether the stream of a Kinesis sink is there, asked once at the start",
    ),
    need(kinesis::PUT_RECORDS, "to store the output of Kinesis sinks"),
];

pub(super) const PULL: [Need; 1] = [need(
    s3::GET_OBJECT,
    "to pull versions of plugins from a bucket, and their signatures",
)];
pub(super) const LOG_IN: [Need; 1] = [need(
    ecr::GET_AUTHORIZATION_TOKEN,
    "to log in to registries of AWS; AWS knows no resource for it",
)];
pub(super) const PULL_IMAGES: [Need; 2] = [
    need(
        ecr::BATCH_GET_IMAGE,
        "to pull versions of plugins from a repository",
    ),
    need(ecr::GET_DOWNLOAD_URL_FOR_LAYER, "the same"),
];
