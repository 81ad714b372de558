import com.amazonaws.services.kinesis.clientlibrary.types.UserRecord;
import com.amazonaws.services.kinesis.model.Record;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Base64;
import java.util.List;

/** One JSON line for each record, in one write for each batch: a killed process leaves whole lines. */
final class RecordLines {
    private final FileChannel channel;
    private final String worker;

    RecordLines(Path path, String worker) throws IOException {
        this.channel = FileChannel.open(
                path, StandardOpenOption.CREATE, StandardOpenOption.WRITE, StandardOpenOption.APPEND);
        this.worker = worker;
    }

    synchronized void append(String shard, List<Record> records) throws IOException {
        StringBuilder lines = new StringBuilder();
        for (Record record : records) {
            byte[] data = new byte[record.getData().remaining()];
            record.getData().duplicate().get(data);
            // Nothing here needs an escape: ids, numbers and base64.
            lines.append(String.format(
                    "{\"worker\":\"%s\",\"shard\":\"%s\",\"sequence_number\":\"%s\",\"sub_sequence_number\":%d,"
                            + "\"data\":\"%s\"}\n",
                    worker,
                    shard,
                    record.getSequenceNumber(),
                    subSequence(record),
                    Base64.getEncoder().encodeToString(data)));
        }
        ByteBuffer bytes = ByteBuffer.wrap(lines.toString().getBytes(StandardCharsets.UTF_8));
        while (bytes.hasRemaining()) {
            channel.write(bytes);
        }
    }

    private static long subSequence(Record record) {
        return record instanceof UserRecord ? ((UserRecord) record).getSubSequenceNumber() : 0;
    }
}
