import java.io.IOException;
import java.util.List;
import software.amazon.kinesis.retrieval.KinesisClientRecord;

/** Where processors leave what they got. */
interface Output {
    void append(String shard, List<KinesisClientRecord> records) throws IOException;
}
