//! Every operation of AWS that this package calls: what a host must be allowed to do is made of
//! them.

/// An operation, as AWS names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Operation {
    service: &'static str,
    name: &'static str,
}

/// Those of Kinesis Data Streams.
pub mod kinesis {
    use super::Operation;

    /// What an operation of Kinesis is.
    const fn of(name: &'static str) -> Operation {
        Operation {
            service: "kinesis",
            name,
        }
    }

    /// Makes a stream; only `shardmill dev`, `shardmill load` and tests do.
    pub const CREATE_STREAM: Operation = of("CreateStream");
    /// Removes a stream with its records; only `shardmill load` does, with one that it made.
    pub const DELETE_STREAM: Operation = of("DeleteStream");
    /// Removes a fan-out consumer.
    pub const DEREGISTER_STREAM_CONSUMER: Operation = of("DeregisterStreamConsumer");
    /// Whether a stream is there, since when, and its clock.
    pub const DESCRIBE_STREAM_SUMMARY: Operation = of("DescribeStreamSummary");
    /// Whether a fan-out consumer is there.
    pub const DESCRIBE_STREAM_CONSUMER: Operation = of("DescribeStreamConsumer");
    /// Reads records from a shard at an iterator.
    pub const GET_RECORDS: Operation = of("GetRecords");
    /// Finds a place in a shard.
    pub const GET_SHARD_ITERATOR: Operation = of("GetShardIterator");
    /// Lists the shards of a stream, with their parents and hash keys.
    pub const LIST_SHARDS: Operation = of("ListShards");
    /// Lists fan-out consumers; only a command does.
    pub const LIST_STREAM_CONSUMERS: Operation = of("ListStreamConsumers");
    /// Stores the output of a Kinesis sink.
    pub const PUT_RECORDS: Operation = of("PutRecords");
    /// Makes a fan-out consumer.
    pub const REGISTER_STREAM_CONSUMER: Operation = of("RegisterStreamConsumer");
    /// Asks Kinesis to push a shard's records, for five minutes at a time.
    pub const SUBSCRIBE_TO_SHARD: Operation = of("SubscribeToShard");
}

/// The operations of DynamoDB, in alphabetical order.
pub mod dynamodb {
    use super::Operation;

    /// What an operation of DynamoDB is.
    const fn of(name: &'static str) -> Operation {
        Operation {
            service: "dynamodb",
            name,
        }
    }

    /// Creates a lease table or a coordinator table.
    pub const CREATE_TABLE: Operation = of("CreateTable");
    /// Removes a table; only a command does.
    pub const DELETE_TABLE: Operation = of("DeleteTable");
    /// Removes one row, on a condition.
    pub const DELETE_ITEM: Operation = of("DeleteItem");
    /// Whether a table is there, and its key.
    pub const DESCRIBE_TABLE: Operation = of("DescribeTable");
    /// Reads one row, consistently where it matters.
    pub const GET_ITEM: Operation = of("GetItem");
    /// Lists tables; only commands do.
    pub const LIST_TABLES: Operation = of("ListTables");
    /// Writes a whole row.
    pub const PUT_ITEM: Operation = of("PutItem");
    /// Reads the rows of a partition.
    pub const QUERY: Operation = of("Query");
    /// Reads all rows of a table.
    pub const SCAN: Operation = of("Scan");
    /// Labels a table; `CreateTable` needs the permission if it has tags.
    pub const TAG_RESOURCE: Operation = of("TagResource");
    /// Writes rows of two tables; needs only the permissions of its parts.
    pub const TRANSACT_WRITE_ITEMS: Operation = of("TransactWriteItems");
    /// Switches point-in-time recovery on.
    pub const UPDATE_CONTINUOUS_BACKUPS: Operation = of("UpdateContinuousBackups");
    /// Changes attributes of one row, on a condition.
    pub const UPDATE_ITEM: Operation = of("UpdateItem");
    /// Has old rows removed; only a command does.
    pub const UPDATE_TIME_TO_LIVE: Operation = of("UpdateTimeToLive");
}

/// The operations of KMS that DynamoDB and Kinesis call with the caller's rights, for a table or a
/// stream with a key of the customer (DynamoDB's encryption usage notes; Kinesis' permissions to
/// use user-generated keys).
pub mod kms {
    use super::Operation;

    /// What an operation of KMS is.
    const fn of(name: &'static str) -> Operation {
        Operation {
            service: "kms",
            name,
        }
    }

    /// Lets DynamoDB use the key later, on its own.
    pub const CREATE_GRANT: Operation = of("CreateGrant");
    /// Opens what was encrypted.
    pub const DECRYPT: Operation = of("Decrypt");
    /// Whether the key can be used.
    pub const DESCRIBE_KEY: Operation = of("DescribeKey");
    /// Encrypts a table's own key.
    pub const ENCRYPT: Operation = of("Encrypt");
    /// Makes a table's own key; any of the operations with this beginning.
    pub const GENERATE_DATA_KEY: Operation = of("GenerateDataKey*");
    /// Makes the key that encrypts a record of a stream.
    pub const GENERATE_STREAM_KEY: Operation = of("GenerateDataKey");
    /// Encrypts again with a newer version; any of the operations with this beginning.
    pub const RE_ENCRYPT: Operation = of("ReEncrypt*");
}

/// Those of the Elastic Container Registry: one that is called, and two whose permissions a pull
/// needs.
pub mod ecr {
    use super::Operation;

    /// What an operation of ECR is.
    const fn of(name: &'static str) -> Operation {
        Operation {
            service: "ecr",
            name,
        }
    }

    /// Gives a login to registries.
    pub const GET_AUTHORIZATION_TOKEN: Operation = of("GetAuthorizationToken");
    /// Reads a list of layers, by tag or digest.
    pub const BATCH_GET_IMAGE: Operation = of("BatchGetImage");
    /// Reads a layer by its digest, from where ECR says.
    pub const GET_DOWNLOAD_URL_FOR_LAYER: Operation = of("GetDownloadUrlForLayer");
}

/// Those of the Security Token Service, which the SDK calls.
pub mod sts {
    use super::Operation;

    /// Gives the credentials of a role.
    pub const ASSUME_ROLE: Operation = Operation {
        service: "sts",
        name: "AssumeRole",
    };
}

/// Those of Amazon S3. No client calls them: such a request is signed here, and sent by others.
pub mod s3 {
    use super::Operation;

    /// Fetches an object, whole.
    pub const GET_OBJECT: Operation = Operation {
        service: "s3",
        name: "GetObject",
    };
}

impl Operation {
    /// Every one that this package calls itself.
    pub const ALL: [Self; 25] = [
        kinesis::CREATE_STREAM,
        kinesis::DELETE_STREAM,
        kinesis::DEREGISTER_STREAM_CONSUMER,
        kinesis::DESCRIBE_STREAM_SUMMARY,
        kinesis::DESCRIBE_STREAM_CONSUMER,
        kinesis::GET_RECORDS,
        kinesis::GET_SHARD_ITERATOR,
        kinesis::LIST_SHARDS,
        kinesis::LIST_STREAM_CONSUMERS,
        kinesis::PUT_RECORDS,
        kinesis::REGISTER_STREAM_CONSUMER,
        kinesis::SUBSCRIBE_TO_SHARD,
        dynamodb::CREATE_TABLE,
        dynamodb::DELETE_ITEM,
        dynamodb::DELETE_TABLE,
        dynamodb::DESCRIBE_TABLE,
        dynamodb::GET_ITEM,
        dynamodb::LIST_TABLES,
        dynamodb::PUT_ITEM,
        dynamodb::QUERY,
        dynamodb::SCAN,
        dynamodb::TRANSACT_WRITE_ITEMS,
        dynamodb::UPDATE_CONTINUOUS_BACKUPS,
        dynamodb::UPDATE_ITEM,
        dynamodb::UPDATE_TIME_TO_LIVE,
    ];

    /// As AWS writes it, such as `GetRecords`.
    pub fn name(self) -> &'static str {
        self.name
    }

    /// The permission that it needs, such as `kinesis:GetRecords`.
    pub fn permission(self) -> String {
        format!("{}:{}", self.service, self.name)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};

    use super::*;

    fn files(folder: &Path) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        entries
            .flat_map(|path| {
                if path.is_dir() {
                    files(&path)
                } else {
                    vec![path]
                }
            })
            .collect()
    }

    /// As the SDK calls the method that begins a request: `get_records` for `GetRecords`.
    fn method(name: &str) -> String {
        let mut method = String::new();
        for c in name.chars() {
            if c.is_ascii_uppercase() && !method.is_empty() {
                method.push('_');
            }
            method.push(c.to_ascii_lowercase());
        }
        method
    }

    /// What is called on a client, in files that are no tests.
    fn called() -> BTreeSet<String> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let is_of_product = |path: &PathBuf| {
            let name = path.file_name().unwrap().to_str().unwrap();
            !name.contains("tests") && !["transport.rs", "operations.rs"].contains(&name)
        };
        let mut called = BTreeSet::new();
        for path in files(&source).into_iter().filter(is_of_product) {
            let text = std::fs::read_to_string(path).unwrap();
            let code: String = text
                .split("#[cfg(test)]")
                .next()
                .unwrap()
                .split_whitespace()
                .collect();
            for client in ["client.", "client().", "kinesis.", "dynamodb."] {
                for rest in code.split(client).skip(1) {
                    let name: String = rest
                        .chars()
                        .take_while(|c| c.is_ascii_lowercase() || *c == '_')
                        .collect();
                    if rest[name.len()..].starts_with("()") {
                        called.insert(name);
                    }
                }
            }
        }
        called
    }

    #[test]
    fn every_operation_that_is_called_is_listed_and_no_other_is() {
        let no_operation = ["clone", "config"];
        let called: BTreeSet<String> = called()
            .into_iter()
            .filter(|name| !no_operation.contains(&name.as_str()))
            .collect();
        let listed: BTreeSet<String> = Operation::ALL
            .iter()
            .map(|operation| method(operation.name()))
            .collect();
        assert_eq!(called, listed);
        assert_eq!(listed.len(), Operation::ALL.len());
    }
}
