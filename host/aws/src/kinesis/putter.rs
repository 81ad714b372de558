//! `PutRecords`, one request at a time: says of each record whether it was stored, and repeats
//! nothing.

use std::fmt;

use aws_sdk_kinesis::Client;
use aws_sdk_kinesis::error::SdkError;
use aws_sdk_kinesis::operation::put_records::PutRecordsError;
use aws_sdk_kinesis::primitives::Blob;
use aws_sdk_kinesis::types::{PutRecordsRequestEntry, PutRecordsResultEntry};
use bytes::Bytes;
use shardmill_core::ports::ReadError;
use shardmill_core::stream::{InvalidName, SequenceNumber, ShardId, StreamName};
use shardmill_wire::{Format, PutResult};

use super::convert;
use super::errors::read_error;
use super::wire::{self, Decoded, Inbox, Wire};

/// A record to be put.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutEntry {
    /// What the shard is chosen by; 1 to 256 characters (AWS limit).
    pub partition_key: String,
    /// Instead of the key's hash.
    pub explicit_hash_key: Option<u128>,
    /// The payload of the record, as it is stored.
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
    wire: Wire,
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
            .data(Blob::from_maybe_shared(self.data.clone()))
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
        Self {
            client,
            target,
            wire: Wire::default(),
        }
    }

    /// Speaks as `wire` says and shares what it learns; without it, as the default says.
    #[must_use]
    pub fn speaking(self, wire: Wire) -> Self {
        Self { wire, ..self }
    }

    /// One request, at most 500 records and 10 MiB (AWS limits); one outcome a record, in order.
    ///
    /// After an error nothing is known of any record: some may be stored.
    pub async fn put(&self, entries: &[PutEntry]) -> Result<Vec<PutOutcome>, ReadError> {
        let records = entries
            .iter()
            .map(PutEntry::to_sdk)
            .collect::<Result<Vec<_>, _>>()?;
        let format = self.wire.format();
        let mut reply = self.ask(records.clone(), format).await;
        if reply.as_ref().is_err_and(is_rejected) && self.wire.has_left(format) {
            reply = self.ask(records, self.wire.format()).await;
        }
        let results = reply.map_err(|error| read_error(&error))?;
        if results.len() != entries.len() {
            let problem = format_args!("{} results for {} records", results.len(), entries.len());
            return Err(convert::unreadable(problem));
        }
        results.into_iter().map(outcome).collect()
    }

    async fn ask(
        &self,
        records: Vec<PutRecordsRequestEntry>,
        format: Format,
    ) -> Result<Vec<PutResult>, SdkError<PutRecordsError>> {
        let inbox = Inbox::default();
        let request = self.client.put_records().set_records(Some(records));
        let request = match &self.target {
            PutTarget::Name(name) => request.stream_name(name.as_str()),
            PutTarget::Arn { arn, .. } => request.stream_arn(arn),
        };
        let request = request
            .customize()
            .config_override(wire::config(&self.wire, format, &inbox));
        let output = request.send().await?;
        Ok(match inbox.take() {
            Some(Decoded::Puts(results)) => results,
            Some(Decoded::Reply(_)) | None => {
                output.records.into_iter().map(decoded_by_sdk).collect()
            }
        })
    }
}

/// Whether nothing was stored for certain, so that a request may be repeated: a good reply that
/// cannot be read says nothing of the kind.
fn is_rejected(error: &SdkError<PutRecordsError>) -> bool {
    let reply = error.raw_response();
    reply.is_some_and(|reply| reply.status().is_client_error())
}

fn decoded_by_sdk(result: PutRecordsResultEntry) -> PutResult {
    PutResult {
        shard_id: result.shard_id,
        sequence_number: result.sequence_number,
        error_code: result.error_code,
        error_message: result.error_message,
    }
}

fn outcome(result: PutResult) -> Result<PutOutcome, ReadError> {
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
        let refused = PutResult {
            error_code: Some("InternalFailure".to_owned()),
            error_message: Some("busy".to_owned()),
            ..PutResult::default()
        };
        assert_eq!(
            outcome(refused).unwrap(),
            PutOutcome::Refused {
                message: "InternalFailure: busy".to_owned()
            }
        );
        let odd = PutResult::default();
        assert!(matches!(outcome(odd).unwrap(), PutOutcome::Refused { .. }));
    }
}
