import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.List;
import software.amazon.kinesis.retrieval.KinesisClientRecord;

/** A file that always holds the number of records seen so far: it only grows, and so each covers the one before. */
final class RecordCount implements Output {
    private final FileChannel channel;
    private long records;

    RecordCount(Path path) throws IOException {
        this.channel = FileChannel.open(path, StandardOpenOption.CREATE, StandardOpenOption.WRITE);
    }

    @Override
    public synchronized void append(String shard, List<KinesisClientRecord> batch) throws IOException {
        records += batch.size();
        channel.write(ByteBuffer.wrap(Long.toString(records).getBytes(StandardCharsets.UTF_8)), 0);
    }
}
