import com.amazonaws.services.kinesis.clientlibrary.exceptions.InvalidStateException;
import com.amazonaws.services.kinesis.clientlibrary.exceptions.ShutdownException;
import com.amazonaws.services.kinesis.clientlibrary.interfaces.IRecordProcessorCheckpointer;
import com.amazonaws.services.kinesis.clientlibrary.interfaces.v2.IRecordProcessor;
import com.amazonaws.services.kinesis.clientlibrary.interfaces.v2.IShutdownNotificationAware;
import com.amazonaws.services.kinesis.clientlibrary.lib.worker.ShutdownReason;
import com.amazonaws.services.kinesis.clientlibrary.types.InitializationInput;
import com.amazonaws.services.kinesis.clientlibrary.types.ProcessRecordsInput;
import com.amazonaws.services.kinesis.clientlibrary.types.ShutdownInput;
import java.io.IOException;
import java.io.UncheckedIOException;

/** Gives each record to the output and checkpoints every few batches, as the processor of the later versions does. */
final class OneProcessor implements IRecordProcessor, IShutdownNotificationAware {
    private final RecordLines out;
    private final long checkpointBatches;
    private String shard;
    private long batches;

    OneProcessor(RecordLines out, long checkpointBatches) {
        this.out = out;
        this.checkpointBatches = checkpointBatches;
    }

    @Override
    public void initialize(InitializationInput input) {
        shard = input.getShardId();
        System.err.println(shard + " starts at " + input.getExtendedSequenceNumber());
    }

    @Override
    public void processRecords(ProcessRecordsInput input) {
        if (input.getRecords().isEmpty()) {
            return;
        }
        try {
            out.append(shard, input.getRecords());
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        batches += 1;
        if (batches % checkpointBatches == 0) {
            checkpoint(input.getCheckpointer());
        }
    }

    /** After a planned stop too: then the lease is no longer held, and there is nothing to write. */
    @Override
    public void shutdown(ShutdownInput input) {
        if (input.getShutdownReason() == ShutdownReason.TERMINATE) {
            checkpoint(input.getCheckpointer());
        }
    }

    @Override
    public void shutdownRequested(IRecordProcessorCheckpointer checkpointer) {
        checkpoint(checkpointer);
    }

    private void checkpoint(IRecordProcessorCheckpointer checkpointer) {
        try {
            checkpointer.checkpoint();
        } catch (ShutdownException e) {
            // Another worker has the lease now; it repeats what is not covered.
            System.err.println(shard + " is not ours any more");
        } catch (InvalidStateException e) {
            throw new IllegalStateException("the lease table is gone", e);
        }
    }
}
