//! A batch, from the host to the component.
//!
//! | Bytes | |
//! |---|---|
//! | 4 | layout: 1 |
//! | 4 | how many records |
//! | 4 | attempt |
//! | 8 | milliseconds behind the latest |
//!
//! Then each record:
//!
//! | Bytes | |
//! |---|---|
//! | 4 | length of the sequence number |
//! | 4 | length of the partition key |
//! | 4 | length of the explicit hash key; `0xffff_ffff` if there is none |
//! | 4 | length of the data |
//! | 8 | sub-sequence number |
//! | 8 | arrival in milliseconds |
//! | | sequence number, partition key, explicit hash key and data |

use crate::frame::{LAYOUT, Malformed, Reading, TooLong, length};

const HEAD_BYTES: usize = 20;
const RECORD_BYTES: usize = 32;
/// The length of an explicit hash key that is not there.
const NONE: u32 = u32::MAX;

/// One user record. Records inside a KPL aggregate arrive one by one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Record<'a> {
    /// The producer's payload: opaque, possibly empty, at most 10 MiB.
    pub data: &'a [u8],
    /// The key by which the producer chose the shard.
    pub partition_key: &'a str,
    /// The producer's explicit hash key, if known (only inside KPL aggregates).
    pub explicit_hash_key: Option<&'a str>,
    /// The record's place in its shard: a decimal number of up to 186 bits. Compare it as a number,
    /// not as text.
    pub sequence_number: &'a str,
    /// The place inside a KPL aggregate; 0 for a plain record. Sequence number and sub-sequence
    /// number together identify a record, even when it is delivered again.
    pub sub_sequence_number: u64,
    /// When Kinesis received it, in milliseconds since the Unix epoch; 0 if unknown.
    pub arrival_ms: u64,
}

/// Records delivered in one call, in shard order, never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch<'a> {
    /// The records, as slices of the frame.
    pub records: Vec<Record<'a>>,
    /// 1 on the first delivery, one more on each delivery after a failure.
    pub attempt: u32,
    /// How far the shard's tip was ahead when the last of these records was fetched; 0 means caught
    /// up.
    pub millis_behind_latest: u64,
}

/// Writes a batch. The iterator is gone through twice: for the size of the frame, and to fill it.
///
/// # Errors
///
/// If something in it is longer than 4 GiB.
pub fn write_batch<'a>(
    records: impl ExactSizeIterator<Item = Record<'a>> + Clone,
    attempt: u32,
    millis_behind_latest: u64,
) -> Result<Vec<u8>, TooLong> {
    let count = u32::try_from(records.len()).map_err(|_| TooLong)?;
    let size: usize = records.clone().map(|record| size_of(&record)).sum();
    let mut frame = Vec::with_capacity(HEAD_BYTES + size);
    frame.extend(LAYOUT.to_le_bytes());
    frame.extend(count.to_le_bytes());
    frame.extend(attempt.to_le_bytes());
    frame.extend(millis_behind_latest.to_le_bytes());
    for record in records {
        write_record(&mut frame, &record)?;
    }
    Ok(frame)
}

fn size_of(record: &Record<'_>) -> usize {
    RECORD_BYTES
        + record.sequence_number.len()
        + record.partition_key.len()
        + record.explicit_hash_key.map_or(0, str::len)
        + record.data.len()
}

fn write_record(frame: &mut Vec<u8>, record: &Record<'_>) -> Result<(), TooLong> {
    let sequence = record.sequence_number.as_bytes();
    let key = record.partition_key.as_bytes();
    let hash_key = record.explicit_hash_key.map(str::as_bytes);
    let mut head = [0; RECORD_BYTES];
    let (lengths, numbers) = head.split_at_mut(16);
    let lengths_of_it = [
        length(sequence)?,
        length(key)?,
        hash_key.map_or(Ok(NONE), length)?,
        length(record.data)?,
    ];
    for (place, length) in lengths.chunks_exact_mut(4).zip(lengths_of_it) {
        place.copy_from_slice(&length.to_le_bytes());
    }
    let numbers_of_it = [record.sub_sequence_number, record.arrival_ms];
    for (place, number) in numbers.chunks_exact_mut(8).zip(numbers_of_it) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    frame.extend_from_slice(&head);
    frame.extend_from_slice(sequence);
    frame.extend_from_slice(key);
    frame.extend_from_slice(hash_key.unwrap_or_default());
    frame.extend_from_slice(record.data);
    Ok(())
}

impl<'a> Batch<'a> {
    /// Reads a batch; its records are slices of the frame.
    ///
    /// # Errors
    ///
    /// If the frame is not a batch in this layout.
    pub fn read(frame: &'a [u8]) -> Result<Self, Malformed> {
        let mut reading = Reading::new(frame)?;
        // The rest of the head is shorter than a record, so it cannot make the count too large.
        let count = reading.count(RECORD_BYTES)?;
        let attempt = reading.u32()?;
        let millis_behind_latest = reading.u64()?;
        let mut records = Vec::with_capacity(count);
        for _ in 0..count {
            records.push(read_record(&mut reading)?);
        }
        reading.end()?;
        Ok(Self {
            records,
            attempt,
            millis_behind_latest,
        })
    }
}

fn read_record<'a>(reading: &mut Reading<'a>) -> Result<Record<'a>, Malformed> {
    let sequence_length = reading.u32()?;
    let key_length = reading.u32()?;
    let hash_key_length = reading.u32()?;
    let data_length = reading.u32()?;
    let sub_sequence_number = reading.u64()?;
    let arrival_ms = reading.u64()?;
    Ok(Record {
        sequence_number: reading.text(sequence_length)?,
        partition_key: reading.text(key_length)?,
        explicit_hash_key: match hash_key_length {
            NONE => None,
            length => Some(reading.text(length)?),
        },
        data: reading.bytes(data_length)?,
        sub_sequence_number,
        arrival_ms,
    })
}
