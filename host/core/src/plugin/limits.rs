//! What one instance of a plugin may use.

use std::time::Duration;

/// Limits of one instance. Every field is enforced by the engine or by a host function; none is
/// advice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GuestLimits {
    /// Linear memory, summed over all memories of the instance. 64 MiB: what Python and JavaScript
    /// guests need to start, and 256 shards of a Rust guest use a fraction of.
    pub memory_bytes: usize,
    /// Elements in all tables. 100,000: far above what compilers emit for function tables.
    pub table_elements: usize,
    /// Wall time of one call of `process`. 5 s: half the default lease duration, so that a stuck
    /// guest is stopped before anything else goes wrong.
    pub process_deadline: Duration,
    /// Wall time of instantiation together with `init`, and of `close`. 5 s: Python guests need
    /// about one.
    pub init_deadline: Duration,
    /// Bytes that may cross from guest to host in one call: arguments of the functions that it
    /// calls, and results of its exports. The host copies them before it looks at them, on as many
    /// threads as there are calls. 1 MiB is far more than a plugin logs or requests; for `process`,
    /// the batch adds to it, see [`Self::hostcall_bytes_with`].
    pub hostcall_bytes: usize,
    /// Handles held at once: streams, pollables, errors, requests. 1,024: a well-behaved guest
    /// holds a handful.
    pub handles: usize,
    /// Bytes emitted in one batch. 32 MiB: three of the largest records.
    pub emit_bytes: usize,
    /// Pieces emitted in one batch. 100,000: ten for each record of the largest `GetRecords` reply.
    pub emit_count: usize,
    /// Bytes of saved state of one shard. 256 KiB: DynamoDB's items have 400 KB at most (AWS
    /// limit), and each checkpoint writes all of it.
    pub state_bytes: usize,
    /// Bytes of one log line; the rest is cut. 8 KiB.
    pub log_line_bytes: usize,
    /// Log lines a second, sustained, over all of a plugin's instances; the rest is dropped and
    /// counted. 200.
    pub log_lines_per_second: u32,
    /// Log lines that may come at once before that rate applies. 1,000.
    pub log_burst: u32,
}

/// The most that [`GuestLimits::state_bytes`] may be: an item of DynamoDB has 400 KB at most (AWS
/// limit), with its names, the checkpoint and a digest.
pub const STATE_BYTES_MAX: usize = 380 << 10;

impl Default for GuestLimits {
    fn default() -> Self {
        Self {
            memory_bytes: 64 << 20,
            table_elements: 100_000,
            process_deadline: Duration::from_secs(5),
            init_deadline: Duration::from_secs(5),
            hostcall_bytes: 1 << 20,
            handles: 1_024,
            emit_bytes: 32 << 20,
            emit_count: 100_000,
            state_bytes: 256 << 10,
            log_line_bytes: 8 << 10,
            log_lines_per_second: 200,
            log_burst: 1_000,
        }
    }
}

/// How many times a record's size a piece of output may have, before the limit of what crosses is
/// raised: twice is what text takes in most encodings.
const OUTPUT_OF_RECORD: usize = 2;
/// Bytes of what `process` says of each record that failed: an index and a message.
const SAID_OF_RECORD: usize = 256;

impl GuestLimits {
    /// [`Self::hostcall_bytes`] for a call of `process` with a batch of so many records: a plugin
    /// that passes its largest record on, or says why all have failed, needs more than one that
    /// logs.
    pub fn hostcall_bytes_with(&self, records: usize, largest_record_bytes: usize) -> usize {
        let output = largest_record_bytes.saturating_mul(OUTPUT_OF_RECORD);
        self.hostcall_bytes
            .saturating_add(output)
            .saturating_add(records.saturating_mul(SAID_OF_RECORD))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_call_may_pass_to_the_host_grows_with_what_it_was_given() {
        let limits = GuestLimits::default();
        assert_eq!(limits.hostcall_bytes_with(0, 0), 1 << 20);
        assert_eq!(
            limits.hostcall_bytes_with(1_000, 10 << 20),
            (21 << 20) + 256_000
        );
        assert_eq!(
            limits.hostcall_bytes_with(usize::MAX, usize::MAX),
            usize::MAX
        );
    }
}
