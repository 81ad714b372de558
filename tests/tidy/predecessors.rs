//! Every option of each library that people come from has a row on its page.
//!
//! The names are those of the libraries' own code, in the versions that the pages name: fields of
//! `KinesisClientLibConfiguration` (vmware-go-kcl), of `Config` and the arguments of `New`
//! (kinsumer), the documented options of `new Kinesis` (lifion-kinesis), accessors of `Kcl::Config`
//! (kcl-rb), methods of the subscription and the broker (ruststream-kinesis), fields of
//! `kinesisInputSpec` (Redpanda Connect), and of `MultiLangDaemonConfiguration` with the beans and
//! setters in it (MultiLangDaemon).

use std::collections::BTreeSet;

const VMWARE_GO_KCL: &str = "ApplicationName DynamoDBEndpoint KinesisEndpoint KinesisCredentials \
    DynamoDBCredentials TableName StreamName EnableEnhancedFanOutConsumer \
    EnhancedFanOutConsumerName EnhancedFanOutConsumerARN WorkerID InitialPositionInStream \
    InitialPositionInStreamExtended FailoverTimeMillis LeaseRefreshPeriodMillis \
    LeaseRefreshWaitTime MaxRecords IdleTimeBetweenReadsInMillis \
    CallProcessRecordsEvenForEmptyRecordList ParentShardPollIntervalMillis \
    ShardSyncIntervalMillis CleanupTerminatedShardsBeforeExpiry TaskBackoffTimeMillis \
    ValidateSequenceNumberBeforeCheckpointing RegionName ShutdownGraceMillis MaxLeasesForWorker \
    MaxLeasesToStealAtOneTime InitialLeaseTableReadCapacity InitialLeaseTableWriteCapacity \
    SkipShardSyncAtWorkerInitializationIfLeasesExist Logger MonitoringService EnableLeaseStealing \
    LeaseStealingIntervalMillis LeaseStealingClaimTimeoutMillis LeaseSyncingTimeIntervalMillis \
    MaxRetryCount";
const KINSUMER: &str = "streamName applicationName clientName throttleDelay commitFrequency \
    shardCheckFrequency leaderActionFrequency bufferSize stats logger dynamoReadCapacity \
    dynamoWriteCapacity dynamoWaiterDelay useListShardsForKinesisStreamReady";
const LIFION: &str = "compression consumerGroup createStreamIfNeeded dynamoDb.tableName \
    dynamoDb.tags dynamoDb.provisionedThroughput encryption.type encryption.keyId \
    initialPositionInStream leaseAcquisitionInterval leaseAcquisitionRecoveryInterval limit logger maxEnhancedConsumers \
    noRecordsPollDelay pollDelay s3.bucketName s3.largeItemThreshold s3.nonS3Keys s3.tags \
    shardCount shouldDeaggregate shouldParseJson statsInterval streamName \
    supressThroughputWarnings tags useAutoCheckpoints useAutoShardAssignment useEnhancedFanOut \
    usePausedPolling useS3ForLargeItems";
const KCL_RB: &str = "aws_region aws_access_key_id aws_secret_access_key dynamodb_endpoint \
    dynamodb_table_name dynamodb_read_capacity dynamodb_write_capacity dynamodb_failover_seconds \
    kinesis_endpoint kinesis_stream_name logger log_level max_lease_count use_ssl worker_count";
const RUSTSTREAM: &str = "stream start_at batch poll_interval create_if_missing from_config \
    region endpoint test_credentials lease_store table owner_id LEASE_TTL RENEW_EVERY";
const REDPANDA: &str = "streams dynamodb.table dynamodb.create dynamodb.billing_mode \
    dynamodb.read_capacity_units dynamodb.write_capacity_units checkpoint_limit poll_period \
    enhanced_fan_out.enabled enhanced_fan_out.consumer_name \
    enhanced_fan_out.consumer_activation_timeout enhanced_fan_out.max_resubscribe_interval \
    auto_replay_nacks commit_period steal_grace_period rebalance_period lease_period \
    start_from_oldest batching region endpoint credentials";
const MULTILANG: &str = "executableName processingLanguage maxActiveThreads applicationName \
    streamName streamArn tableName workerIdentifier workerId failoverTimeMillis \
    shardSyncIntervalMillis cleanupLeasesUponShardCompletion ignoreUnexpectedChildShards \
    maxLeasesForWorker maxLeasesToStealAtOneTime initialLeaseTableReadCapacity \
    initialLeaseTableWriteCapacity initialPositionInStream initialPositionInStreamExtended \
    maxLeaseRenewalThreads listShardsBackoffTimeInMillis maxListShardsRetryAttempts \
    callProcessRecordsEvenForEmptyRecordList parentShardPollIntervalMillis shardPrioritization \
    skipShardSyncAtWorkerInitializationIfLeasesExist schedulerInitializationBackoffTimeMillis \
    taskBackoffTimeMillis metricsBufferTimeMillis metricsMaxQueueSize metricsLevel \
    logWarningForTaskAfterMillis metricsEnabledDimensions retrievalMode fanoutConfig maxRecords \
    idleTimeBetweenReadsInMillis maxGetRecordsThreadPool retryGetRecordsInSeconds \
    validateSequenceNumberBeforeCheckpointing shutdownGraceMillis timeoutInSeconds \
    kinesisCredentialsProvider AWSCredentialsProvider dynamoDBCredentialsProvider \
    AWSCredentialsProviderDynamoDB cloudWatchCredentialsProvider AWSCredentialsProviderCloudWatch \
    kinesisClient dynamoDbClient cloudWatchClient regionName dynamoDBRegionName \
    cloudWatchRegionName kinesisEndpoint dynamoDBEndpoint";

/// The first cells of the rows under `## Settings`, without their code marks.
fn settings_of(page: &str) -> BTreeSet<String> {
    let section = page
        .split("\n## ")
        .find(|section| section.starts_with("Settings\n"));
    let rows = section
        .unwrap_or_default()
        .lines()
        .filter(|line| line.starts_with("| `"));
    let name = |row: &str| row.split('`').nth(1).unwrap_or_default().to_owned();
    rows.map(name).collect()
}

#[test]
fn every_option_of_each_predecessor_has_a_row_and_no_row_is_of_an_option_that_it_has_not() {
    let folder = super::root().join("docs/how-to/from");
    for (page, options) in [
        ("vmware-go-kcl", VMWARE_GO_KCL),
        ("kinsumer", KINSUMER),
        ("lifion-kinesis", LIFION),
        ("kcl-rb", KCL_RB),
        ("ruststream-kinesis", RUSTSTREAM),
        ("redpanda-connect", REDPANDA),
        ("multilang", MULTILANG),
    ] {
        let text = std::fs::read_to_string(folder.join(page).with_extension("md")).unwrap();
        let options: BTreeSet<String> = options.split_whitespace().map(str::to_owned).collect();
        assert_eq!(settings_of(&text), options, "{page}");
    }
}

#[test]
fn every_key_of_ours_that_such_a_page_names_is_in_the_configuration() {
    let configuration =
        std::fs::read_to_string(super::root().join("docs/configuration.md")).unwrap();
    let folder = super::root().join("docs/how-to/from");
    let mut named = 0;
    for page in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(page.unwrap().path()).unwrap();
        let ours = text.lines().filter(|line| line.starts_with("| "));
        for cell in ours.filter_map(|line| line.split(" | ").nth(2)) {
            for key in cell.split('`').skip(1).step_by(2) {
                let sections = [
                    "aws.",
                    "leases.",
                    "reads.",
                    "retry.",
                    "host.",
                    "checkpoint.",
                    "limits.",
                    "batch.",
                ];
                let Some((_, name)) = key
                    .split_once('.')
                    .filter(|_| sections.iter().any(|section| key.starts_with(section)))
                else {
                    continue;
                };
                let name = name.split(' ').next().unwrap_or(name);
                named += 1;
                assert!(
                    configuration.contains(&format!("`{name}`")),
                    "{key} is no setting"
                );
            }
        }
    }
    assert!(named > 50, "only {named} settings were found");
}
