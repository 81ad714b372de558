import java.net.URI;
import java.nio.file.Path;
import java.time.Duration;
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
import software.amazon.kinesis.coordinator.Scheduler;
import software.amazon.kinesis.retrieval.RetrievalSpecificConfig;
import software.amazon.kinesis.retrieval.fanout.FanOutConfig;
import software.amazon.kinesis.retrieval.polling.PollingConfig;

/**
 * A KCL application on one stream: polling or fan-out. It ends when it gets SIGTERM: every processor checkpoints, then
 * the leases are left to expire, since the KCL releases nothing.
 *
 * <p>Required: application, stream, worker, output, kinesis, dynamodb. The waits are settings because the KCL's own
 * (a failover of 10 s, a parent poll of 10 s, ...) would make a test take minutes; nothing else is unusual. With {@code output-of=count} the
 * output is only how many records came, as benches want it.
 */
public final class Consumer {
    private Consumer() {}

    public static void main(String[] args) throws Exception {
        Settings settings = new Settings(args);
        // The SDK's own choice is CBOR; it reads this once.
        System.setProperty("aws.cborEnabled", String.valueOf(settings.text("wire", "json").equals("cbor")));
        Scheduler scheduler = scheduler(settings);
        long limitMillis = settings.number("stop-ms", 10_000);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> stop(scheduler, limitMillis), "stop"));
        scheduler.run();
    }

    /**
     * Every processor checkpoints at once. After that a KCL 2.x waits for the processor of each lease it holds, and if
     * one of these is of a shard that has ended long ago (it keeps them for minutes), it waits for ever.
     */
    private static void stop(Scheduler scheduler, long limitMillis) {
        try {
            boolean isClean = scheduler.startGracefulShutdown().get(limitMillis, TimeUnit.MILLISECONDS);
            System.err.println(isClean ? "stopped cleanly" : "stopped, not cleanly");
        } catch (Exception e) {
            System.err.println("cannot stop: " + e);
        }
    }

    private static Scheduler scheduler(Settings settings) throws Exception {
        String worker = settings.text("worker");
        String stream = settings.text("stream");
        KinesisAsyncClient kinesis = client(KinesisAsyncClient.builder(), settings.text("kinesis"));
        DynamoDbAsyncClient dynamodb = client(DynamoDbAsyncClient.builder(), settings.text("dynamodb"));
        CloudWatchAsyncClient cloudwatch = client(CloudWatchAsyncClient.builder(), Metrics.endpoint(settings));
        Path path = Path.of(settings.text("output"));
        Output out = settings.text("output-of", "records").equals("count")
                ? new RecordCount(path)
                : new RecordFile(path, worker);
        long checkpointBatches = settings.number("checkpoint-batches", 1);
        ConfigsBuilder configs = new ConfigsBuilder(
                stream,
                settings.text("application"),
                kinesis,
                dynamodb,
                cloudwatch,
                worker,
                () -> new Processor(out, checkpointBatches, settings.text("checkpoint-at", "last")));
        InitialPositionInStreamExtended start = InitialPositionInStreamExtended.newInitialPosition(
                InitialPositionInStream.valueOf(settings.text("initial-position", "TRIM_HORIZON")));
        return new Scheduler(
                configs.checkpointConfig(),
                configs.coordinatorConfig()
                        .parentShardPollIntervalMillis(settings.number("parent-poll-ms", 500))
                        .shardConsumerDispatchPollIntervalMillis(settings.number("dispatch-ms", 200)),
                configs.leaseManagementConfig()
                        .failoverTimeMillis(settings.number("failover-ms", 3_000))
                        // The KCL sleeps this long after it made the first leases of an empty table.
                        .shardSyncIntervalMillis(settings.number("shard-sync-ms", 200))
                        .maxLeasesToStealAtOneTime((int) settings.number("steal-at-once", 1))
                        .initialPositionInStream(start),
                configs.lifecycleConfig(),
                Metrics.of(configs.metricsConfig(), settings),
                configs.processorConfig(),
                configs.retrievalConfig()
                        .retrievalSpecificConfig(retrieval(settings, kinesis))
                        .initialPositionInStreamExtended(start));
    }

    private static RetrievalSpecificConfig retrieval(Settings settings, KinesisAsyncClient kinesis) {
        String stream = settings.text("stream");
        if (settings.text("retrieval", "polling").equals("fan-out")) {
            // Its consumer has the application's name.
            return new FanOutConfig(kinesis).streamName(stream).applicationName(settings.text("application"));
        }
        return new PollingConfig(stream, kinesis)
                .maxRecords((int) settings.number("records-per-call", 10_000))
                .idleTimeBetweenReadsInMillis(settings.number("idle-ms", 200));
    }

    private static <B extends AwsClientBuilder<B, C> & AwsAsyncClientBuilder<B, C>, C> C client(
            B builder, String endpoint) {
        // Kinesis' asynchronous client would speak HTTP/2, which a plain-text endpoint does not offer; events of a
        // subscription come in the body of a reply, which HTTP/1.1 can stream too.
        NettyNioAsyncHttpClient.Builder http = NettyNioAsyncHttpClient.builder()
                .protocol(Protocol.HTTP1_1)
                .connectionTimeout(Duration.ofSeconds(5));
        return builder.httpClientBuilder(http)
                .region(Region.US_EAST_1)
                .endpointOverride(URI.create(endpoint))
                .credentialsProvider(StaticCredentialsProvider.create(AwsBasicCredentials.create("local", "local")))
                .build();
    }
}
