import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Base64;
import java.util.List;
import software.amazon.kinesis.retrieval.KinesisClientRecord;

/** One JSON line for each record, in one write for each batch: a killed process leaves whole lines. */
final class RecordFile implements Output {
    private final FileChannel channel;
    private final String worker;

    RecordFile(Path path, String worker) throws IOException {
        this.channel = FileChannel.open(
                path, StandardOpenOption.CREATE, StandardOpenOption.WRITE, StandardOpenOption.APPEND);
        this.worker = worker;
    }

    @Override
    public synchronized void append(String shard, List<KinesisClientRecord> records) throws IOException {
        StringBuilder lines = new StringBuilder();
        for (KinesisClientRecord record : records) {
            byte[] data = new byte[record.data().remaining()];
            record.data().duplicate().get(data);
            lines.append("{\"worker\":").append(quoted(worker));
            lines.append(",\"shard\":").append(quoted(shard));
            lines.append(",\"sequence_number\":").append(quoted(record.sequenceNumber()));
            lines.append(",\"sub_sequence_number\":").append(record.subSequenceNumber());
            lines.append(",\"partition_key\":").append(quoted(record.partitionKey()));
            lines.append(",\"data\":").append(quoted(Base64.getEncoder().encodeToString(data)));
            lines.append("}\n");
        }
        ByteBuffer bytes = ByteBuffer.wrap(lines.toString().getBytes(StandardCharsets.UTF_8));
        while (bytes.hasRemaining()) {
            channel.write(bytes);
        }
    }

    private static String quoted(String text) {
        StringBuilder quoted = new StringBuilder("\"");
        for (char c : text.toCharArray()) {
            if (c < ' ' || c == '"' || c == '\\') {
                quoted.append(String.format("\\u%04x", (int) c));
            } else {
                quoted.append(c);
            }
        }
        return quoted.append('"').toString();
    }
}
