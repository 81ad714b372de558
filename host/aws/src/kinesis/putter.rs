//! `PutRecords`, one request at a time: says of each record whether it was stored, and repeats
//! nothing.

use std::fmt;

use aws_sdk_kinesis::Client;
use aws_sdk_kinesis::primitives::Blob;
use aws_sdk_kinesis::types::{PutRecordsRequestEntry, PutRecordsResultEntry};
use bytes::Bytes;
use shardmill_core::ports::ReadError;
use shardmill_core::stream::{InvalidName, SequenceNumber, ShardId, StreamName};

use super::convert;
use super::errors::read_error;

/// A record to be put.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutEntry {
    /// What the shard is chosen by; 1 to 256 characters (AWS limit).
    pub partition_key: String,
    /// Instead of the key's hash.
    pub explicit_hash_key: Option<u128>,
    /// The payload.
    pub data: Bytes,
}

/// What became of one record of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PutOutcome {
    /// It is stored.
    Stored {
        /// Where.
        shard: ShardId,
        /// Under which number.
        sequence: SequenceNumber,
    },
    /// Not this time, most often because the shard takes no more in this second; sending it again
    /// may help.
    Refused {
        /// In Kinesis' words.
        message: String,
    },
}

/// The stream that is written to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PutTarget {
    /// By name, in the caller's account and the client's region.
    Name(StreamName),
    /// By ARN, which may be of another account.
    Arn {
        /// All of it.
        arn: String,
        /// The region it names.
        region: String,
    },
}

/// Sends `PutRecords` to one stream.
#[derive(Debug, Clone)]
pub struct Putter {
    client: Client,
    target: PutTarget,
}

// === impl PutEntry ===

impl PutEntry {
    /// What counts against the limits of a record and of a request: data and key, in bytes (AWS
    /// rule).
    pub fn cost_bytes(&self) -> usize {
        self.data.len() + self.partition_key.len()
    }

    fn to_sdk(&self) -> Result<PutRecordsRequestEntry, ReadError> {
        PutRecordsRequestEntry::builder()
            .partition_key(&self.partition_key)
            .set_explicit_hash_key(self.explicit_hash_key.map(|key| key.to_string()))
            .data(Blob::new(self.data.as_ref()))
            .build()
            .map_err(|error| ReadError::Refused {
                message: error.to_string(),
            })
    }
}

// === impl PutTarget ===

impl PutTarget {
    /// Takes a stream's name, or its ARN: `arn:PARTITION:kinesis:REGION:ACCOUNT:stream/NAME`.
    pub fn parse(text: &str) -> Result<Self, InvalidName> {
        if !text.starts_with("arn:") {
            return StreamName::new(text).map(Self::Name);
        }
        let parts: Vec<&str> = text.splitn(6, ':').collect();
        if let [_, partition, "kinesis", region, account, resource] = parts[..]
            && partition.starts_with("aws")
            && !region.is_empty()
            && account.len() == 12
            && account.bytes().all(|digit| digit.is_ascii_digit())
            && let Some(name) = resource.strip_prefix("stream/")
        {
            StreamName::new(name)?;
            return Ok(Self::Arn {
                arn: text.to_owned(),
                region: region.to_owned(),
            });
        }
        let rule =
            "an ARN of a stream looks like arn:aws:kinesis:eu-west-1:123456789012:stream/NAME";
        Err(InvalidName {
            what: "stream ARN",
            name: text.to_owned(),
            rule,
        })
    }
}

impl fmt::Display for PutTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(f, "{name}"),
            Self::Arn { arn, .. } => f.write_str(arn),
        }
    }
}

// === impl Putter ===

impl Putter {
    /// Writes to `target` through `client`.
    pub fn new(client: Client, target: PutTarget) -> Self {
        Self { client, target }
    }

    /// One request, at most 500 records and 10 MiB (AWS limits); one outcome a record, in order.
    ///
    /// After an error nothing is known of any record: some may be stored.
    pub async fn put(&self, entries: &[PutEntry]) -> Result<Vec<PutOutcome>, ReadError> {
        let records = entries
            .iter()
            .map(PutEntry::to_sdk)
            .collect::<Result<Vec<_>, _>>()?;
        let request = self.client.put_records().set_records(Some(records));
        let request = match &self.target {
            PutTarget::Name(name) => request.stream_name(name.as_str()),
            PutTarget::Arn { arn, .. } => request.stream_arn(arn),
        };
        let reply = request.send().await.map_err(|error| read_error(&error))?;
        if reply.records.len() != entries.len() {
            let problem = format_args!(
                "{} results for {} records",
                reply.records.len(),
                entries.len()
            );
            return Err(convert::unreadable(problem));
        }
        reply.records.into_iter().map(outcome).collect()
    }
}

fn outcome(result: PutRecordsResultEntry) -> Result<PutOutcome, ReadError> {
    match (result.shard_id, result.sequence_number) {
        (Some(shard), Some(sequence)) if result.error_code.is_none() => Ok(PutOutcome::Stored {
            shard: convert::shard_id(shard)?,
            sequence: SequenceNumber::parse(&sequence).map_err(convert::unreadable)?,
        }),
        _ => {
            let code = result
                .error_code
                .unwrap_or_else(|| "refused without a reason".to_owned());
            let message = match result.error_message {
                Some(message) => format!("{code}: {message}"),
                None => code,
            };
            Ok(PutOutcome::Refused { message })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_named_by_name_or_by_arn() {
        let arn = "arn:aws-cn:kinesis:cn-north-1:123456789012:stream/orders";
        assert!(
            matches!(PutTarget::parse("orders").unwrap(), PutTarget::Name(name) if name.as_str() == "orders")
        );
        assert!(
            matches!(PutTarget::parse(arn).unwrap(), PutTarget::Arn { region, .. } if region == "cn-north-1")
        );
        assert_eq!(PutTarget::parse(arn).unwrap().to_string(), arn);
    }

    #[test]
    fn what_is_neither_is_refused_with_the_rule() {
        for text in [
            "",
            "or ders",
            "arn:aws:kinesis:eu-west-1:12:stream/orders",
            "arn:aws:kinesis::123456789012:stream/orders",
            "arn:aws:dynamodb:eu-west-1:123456789012:table/orders",
            "arn:aws:kinesis:eu-west-1:123456789012:stream/",
            "arn:aws:kinesis:eu-west-1:123456789012:stream/orders/consumer/fan:1",
        ] {
            assert!(PutTarget::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_result_without_a_number_is_a_refusal_and_keeps_the_words_of_kinesis() {
        let refused = PutRecordsResultEntry::builder()
            .error_code("InternalFailure")
            .error_message("busy")
            .build();
        assert_eq!(
            outcome(refused).unwrap(),
            PutOutcome::Refused {
                message: "InternalFailure: busy".to_owned()
            }
        );
        let odd = PutRecordsResultEntry::builder().build();
        assert!(matches!(outcome(odd).unwrap(), PutOutcome::Refused { .. }));
    }
}
