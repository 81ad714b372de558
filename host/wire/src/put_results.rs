//! A reply of `PutRecords`.

use bytes::Bytes;

use crate::cbor::Cbor;
use crate::format::Format;
use crate::json::Json;
use crate::reader::{Read, Reader, Unreadable};

/// What Kinesis says of one record of a request, as it came.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PutResult {
    /// Where it is stored.
    pub shard_id: Option<String>,
    /// The sequence number that it is stored under.
    pub sequence_number: Option<String>,
    /// Why it is not stored.
    pub error_code: Option<String>,
    /// The same in a sentence.
    pub error_message: Option<String>,
}

/// Reads a reply of `PutRecords`, in whichever format it is; one result a record, in order.
pub fn read_put_results(body: &Bytes) -> Result<Vec<PutResult>, Unreadable> {
    match Format::of(body) {
        Format::Json => read(Json::new(body)),
        Format::Cbor => read(Cbor::new(body)),
    }
}

fn read<'a, R: Reader<'a>>(mut reader: R) -> Read<Vec<PutResult>> {
    let mut results = None;
    reader.object(|reader, name| match name {
        b"Records" => {
            let mut read = Vec::new();
            reader.array(|reader| {
                read.push(result(reader)?);
                Ok(())
            })?;
            reader.once(&mut results, read)
        }
        _ => reader.skip(),
    })?;
    reader.end()?;
    results.ok_or_else(|| reader.expected("a list of results"))
}

fn result<'a, R: Reader<'a>>(reader: &mut R) -> Read<PutResult> {
    let mut result = PutResult::default();
    reader.object(|reader, name| {
        let member = match name {
            b"ShardId" => &mut result.shard_id,
            b"SequenceNumber" => &mut result.sequence_number,
            b"ErrorCode" => &mut result.error_code,
            b"ErrorMessage" => &mut result.error_message,
            _ => return reader.skip(),
        };
        match reader.optional_text()? {
            Some(text) => reader.once(member, text),
            None => Ok(()),
        }
    })?;
    Ok(result)
}
