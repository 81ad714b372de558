import java.io.IOException;
import java.io.UncheckedIOException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import software.amazon.kinesis.exceptions.InvalidStateException;
import software.amazon.kinesis.exceptions.ShutdownException;
import software.amazon.kinesis.lifecycle.events.InitializationInput;
import software.amazon.kinesis.lifecycle.events.LeaseLostInput;
import software.amazon.kinesis.lifecycle.events.ProcessRecordsInput;
import software.amazon.kinesis.lifecycle.events.ShardEndedInput;
import software.amazon.kinesis.lifecycle.events.ShutdownRequestedInput;
import software.amazon.kinesis.processor.ShardRecordProcessor;
import software.amazon.kinesis.retrieval.KinesisClientRecord;

/**
 * Gives each record to the output and checkpoints every few batches, as the KCL's own examples do: at the last record, or at the
 * last but one, which inside an aggregate leaves the rest of it to whoever comes next.
 */
final class Processor implements ShardRecordProcessor {
    private static final Logger LOG = LoggerFactory.getLogger(Processor.class);

    private final Output out;
    private final long checkpointBatches;
    private final boolean atLastButOne;
    private String shard;
    private long batches;

    Processor(Output out, long checkpointBatches, String checkpointAt) {
        this.out = out;
        this.checkpointBatches = checkpointBatches;
        this.atLastButOne = checkpointAt.equals("last-but-one");
    }

    @Override
    public void initialize(InitializationInput input) {
        shard = input.shardId();
        LOG.info("{} starts at {}", shard, input.extendedSequenceNumber());
    }

    @Override
    public void processRecords(ProcessRecordsInput input) {
        if (input.records().isEmpty()) {
            return;
        }
        try {
            out.append(shard, input.records());
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        batches += 1;
        if (batches % checkpointBatches == 0) {
            checkpoint(atLastButOne ? atLastButOne(input) : input.checkpointer()::checkpoint, "batch");
        }
    }

    @Override
    public void leaseLost(LeaseLostInput input) {
        LOG.info("{} was lost", shard);
    }

    @Override
    public void shardEnded(ShardEndedInput input) {
        checkpoint(input.checkpointer()::checkpoint, "shard end");
    }

    @Override
    public void shutdownRequested(ShutdownRequestedInput input) {
        checkpoint(input.checkpointer()::checkpoint, "shutdown");
    }

    private interface Write {
        void run() throws ShutdownException, InvalidStateException;
    }

    private static Write atLastButOne(ProcessRecordsInput input) {
        KinesisClientRecord record = input.records().get(Math.max(0, input.records().size() - 2));
        return () -> input.checkpointer().checkpoint(record.sequenceNumber(), record.subSequenceNumber());
    }

    private void checkpoint(Write write, String why) {
        try {
            write.run();
            LOG.info("{} checkpointed: {}", shard, why);
        } catch (ShutdownException e) {
            // Another worker has the lease now; it repeats what is not covered.
            LOG.info("{} is not ours any more: {}", shard, e.getMessage());
        } catch (InvalidStateException e) {
            throw new IllegalStateException("the lease table is gone", e);
        }
    }
}
