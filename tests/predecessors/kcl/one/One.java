import com.amazonaws.auth.AWSStaticCredentialsProvider;
import com.amazonaws.auth.BasicAWSCredentials;
import com.amazonaws.services.kinesis.clientlibrary.lib.worker.InitialPositionInStream;
import com.amazonaws.services.kinesis.clientlibrary.lib.worker.KinesisClientLibConfiguration;
import com.amazonaws.services.kinesis.clientlibrary.lib.worker.Worker;
import com.amazonaws.services.kinesis.metrics.impl.NullMetricsFactory;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;

/**
 * The application of tests/kcl/consumer, for the KCL 1.x: the same arguments, the same lines of output, the same end by
 * SIGTERM. Polling only.
 */
public final class One {
    private One() {}

    public static void main(String[] args) throws Exception {
        Settings settings = new Settings(args);
        // The SDK's own choice is CBOR.
        System.setProperty("com.amazonaws.sdk.disableCbor", "true");
        RecordLines out = new RecordLines(Path.of(settings.text("output")), settings.text("worker"));
        long checkpointBatches = settings.number("checkpoint-batches", 1);
        Worker worker = new Worker.Builder()
                .recordProcessorFactory(() -> new OneProcessor(out, checkpointBatches))
                .config(configuration(settings))
                // Metrics would go to CloudWatch, which is not there.
                .metricsFactory(new NullMetricsFactory())
                .build();
        long limitMillis = settings.number("stop-ms", 10_000);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> stop(worker, limitMillis), "stop"));
        worker.run();
    }

    private static void stop(Worker worker, long limitMillis) {
        try {
            boolean isClean = worker.startGracefulShutdown().get(limitMillis, TimeUnit.MILLISECONDS);
            System.err.println(isClean ? "stopped cleanly" : "stopped, not cleanly");
        } catch (Exception e) {
            System.err.println("cannot stop: " + e);
        }
    }

    private static KinesisClientLibConfiguration configuration(Settings settings) {
        AWSStaticCredentialsProvider credentials =
                new AWSStaticCredentialsProvider(new BasicAWSCredentials("local", "local"));
        return new KinesisClientLibConfiguration(
                        settings.text("application"), settings.text("stream"), credentials, settings.text("worker"))
                .withKinesisEndpoint(settings.text("kinesis"))
                .withDynamoDBEndpoint(settings.text("dynamodb"))
                .withRegionName("us-east-1")
                .withInitialPositionInStream(
                        InitialPositionInStream.valueOf(settings.text("initial-position", "TRIM_HORIZON")))
                .withFailoverTimeMillis(settings.number("failover-ms", 3_000))
                .withMaxRecords((int) settings.number("records-per-call", 10_000))
                .withIdleTimeBetweenReadsInMillis(settings.number("idle-ms", 200))
                .withParentShardPollIntervalMillis(settings.number("parent-poll-ms", 500))
                .withShardSyncIntervalMillis(settings.number("shard-sync-ms", 200));
    }
}
