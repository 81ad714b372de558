import software.amazon.kinesis.metrics.MetricsConfig;
import software.amazon.kinesis.metrics.MetricsLevel;
import software.amazon.kinesis.metrics.NullMetricsFactory;

/** The KCL's own metrics: none, unless {@code cloudwatch} says where they go. Nothing but the buffer's time is unusual then. */
final class Metrics {
    private Metrics() {}

    static MetricsConfig of(MetricsConfig config, Settings settings) {
        if (settings.text("cloudwatch", "").isEmpty()) {
            return config.metricsFactory(new NullMetricsFactory());
        }
        return config.metricsLevel(MetricsLevel.valueOf(settings.text("metrics-level", "DETAILED")))
                .metricsBufferTimeMillis(settings.number("metrics-ms", 1_000));
    }

    /** The KCL wants a client; without metrics it is never called. */
    static String endpoint(Settings settings) {
        return settings.text("cloudwatch", settings.text("dynamodb"));
    }
}
