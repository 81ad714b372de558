import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.URI;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import software.amazon.awssdk.auth.credentials.AwsBasicCredentials;
import software.amazon.awssdk.auth.credentials.StaticCredentialsProvider;
import software.amazon.awssdk.awscore.client.builder.AwsAsyncClientBuilder;
import software.amazon.awssdk.awscore.client.builder.AwsClientBuilder;
import software.amazon.awssdk.http.Protocol;
import software.amazon.awssdk.http.nio.netty.NettyNioAsyncHttpClient;
import software.amazon.awssdk.regions.Region;
import software.amazon.awssdk.services.cloudwatch.CloudWatchAsyncClient;
import software.amazon.awssdk.services.dynamodb.DynamoDbAsyncClient;
import software.amazon.awssdk.services.kinesis.KinesisAsyncClient;
import software.amazon.kinesis.common.ConfigsBuilder;
import software.amazon.kinesis.common.InitialPositionInStream;
import software.amazon.kinesis.common.InitialPositionInStreamExtended;
import software.amazon.kinesis.common.StreamConfig;
import software.amazon.kinesis.common.StreamIdentifier;
import software.amazon.kinesis.coordinator.Scheduler;
import software.amazon.kinesis.processor.FormerStreamsLeasesDeletionStrategy;
import software.amazon.kinesis.processor.FormerStreamsLeasesDeletionStrategy.NoLeaseDeletionStrategy;
import software.amazon.kinesis.processor.MultiStreamTracker;
import software.amazon.kinesis.processor.ShardRecordProcessor;
import software.amazon.kinesis.processor.ShardRecordProcessorFactory;
import software.amazon.kinesis.retrieval.polling.PollingConfig;

/**
 * The application of tests/kcl/consumer in multi-stream mode: the same arguments, but {@code streams} with the streams as
 * {@code ACCOUNT:NAME:CREATED}, a comma between them. The records of the stream NAME go to {@code OUTPUT.NAME}, since
 * shards of two streams have the same ids.
 */
public final class Many {
    private static final InitialPositionInStreamExtended START =
            InitialPositionInStreamExtended.newInitialPosition(InitialPositionInStream.TRIM_HORIZON);

    private Many() {}

    public static void main(String[] args) {
        Settings settings = new Settings(args);
        System.setProperty("aws.cborEnabled", "false");
        Scheduler scheduler = scheduler(settings);
        long limitMillis = settings.number("stop-ms", 10_000);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> stop(scheduler, limitMillis), "stop"));
        scheduler.run();
    }

    private static void stop(Scheduler scheduler, long limitMillis) {
        try {
            boolean isClean = scheduler.startGracefulShutdown().get(limitMillis, TimeUnit.MILLISECONDS);
            System.err.println(isClean ? "stopped cleanly" : "stopped, not cleanly");
        } catch (Exception e) {
            System.err.println("cannot stop: " + e);
        }
    }

    private static Scheduler scheduler(Settings settings) {
        KinesisAsyncClient kinesis = client(KinesisAsyncClient.builder(), settings.text("kinesis"));
        ConfigsBuilder configs = new ConfigsBuilder(
                new Streams(settings.text("streams")),
                settings.text("application"),
                kinesis,
                client(DynamoDbAsyncClient.builder(), settings.text("dynamodb")),
                client(CloudWatchAsyncClient.builder(), Metrics.endpoint(settings)),
                settings.text("worker"),
                new Processors(settings));
        return new Scheduler(
                configs.checkpointConfig(),
                configs.coordinatorConfig()
                        .parentShardPollIntervalMillis(settings.number("parent-poll-ms", 500))
                        .shardConsumerDispatchPollIntervalMillis(settings.number("dispatch-ms", 200)),
                configs.leaseManagementConfig()
                        .failoverTimeMillis(settings.number("failover-ms", 3_000))
                        .shardSyncIntervalMillis(settings.number("shard-sync-ms", 200)),
                configs.lifecycleConfig(),
                Metrics.of(configs.metricsConfig(), settings),
                configs.processorConfig(),
                configs.retrievalConfig().retrievalSpecificConfig(new PollingConfig(kinesis)
                        .maxRecords((int) settings.number("records-per-call", 10_000))
                        .idleTimeBetweenReadsInMillis(settings.number("idle-ms", 200))));
    }

    private static <B extends AwsClientBuilder<B, C> & AwsAsyncClientBuilder<B, C>, C> C client(
            B builder, String endpoint) {
        // Kinesis' asynchronous client would speak HTTP/2, which a plain-text endpoint does not offer.
        return builder.httpClientBuilder(NettyNioAsyncHttpClient.builder().protocol(Protocol.HTTP1_1))
                .region(Region.US_EAST_1)
                .endpointOverride(URI.create(endpoint))
                .credentialsProvider(StaticCredentialsProvider.create(AwsBasicCredentials.create("local", "local")))
                .build();
    }

    /** The same streams all the time. */
    private static final class Streams implements MultiStreamTracker {
        private final List<StreamConfig> streams = new ArrayList<>();

        Streams(String names) {
            for (String name : names.split(",")) {
                streams.add(new StreamConfig(StreamIdentifier.multiStreamInstance(name), START));
            }
        }

        @Override
        public List<StreamConfig> streamConfigList() {
            return streams;
        }

        @Override
        public FormerStreamsLeasesDeletionStrategy formerStreamsLeasesDeletionStrategy() {
            return new NoLeaseDeletionStrategy();
        }
    }

    /** A processor for each shard, whose records go to its stream's file. */
    private static final class Processors implements ShardRecordProcessorFactory {
        private final Settings settings;

        Processors(Settings settings) {
            this.settings = settings;
        }

        @Override
        public ShardRecordProcessor shardRecordProcessor() {
            throw new IllegalStateException("called with a stream in multi-stream mode");
        }

        @Override
        public ShardRecordProcessor shardRecordProcessor(StreamIdentifier stream) {
            Path path = Path.of(settings.text("output") + "." + stream.streamName());
            try {
                // Appends: each shard may have its own, a batch being one write.
                Output out = new RecordFile(path, settings.text("worker"));
                return new Processor(out, settings.number("checkpoint-batches", 1), "last");
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
        }
    }
}
