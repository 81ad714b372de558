//! `shardmill:processor/emit`: output, kept while a call runs and handed to the pipeline when it succeeds.

use shardmill_core::plugin::GuestLimits;
use shardmill_core::ports::InstanceContext;
use shardmill_core::stream::Emitted;

use crate::bindings::shardmill::processor::emit::{EmitError, Host};
use crate::instance_state::InstanceState;

/// Bytes that the host needs for a piece beside its key and its data.
pub(crate) const PIECE_BYTES: usize = 160;
/// Bytes of a key. 2,048 is DynamoDB's limit and more than Kinesis' 256 characters.
const KEY_BYTES_MAX: usize = 2_048;

/// What one call has emitted so far.
pub(crate) struct EmitBuffer {
    destinations: Vec<String>,
    pieces: Vec<Emitted>,
    bytes: usize,
    bytes_max: usize,
    count_max: usize,
    is_open: bool,
}

impl EmitBuffer {
    pub(crate) fn new(identity: &InstanceContext, limits: &GuestLimits) -> Self {
        Self {
            destinations: identity.destinations.clone(),
            pieces: Vec::new(),
            bytes: 0,
            bytes_max: limits.emit_bytes,
            count_max: limits.emit_count,
            is_open: false,
        }
    }

    /// Starts a call that may emit.
    pub(crate) fn open(&mut self) {
        self.take();
        self.is_open = true;
    }

    /// Ends the call, and hands over what it emitted.
    pub(crate) fn take(&mut self) -> Vec<Emitted> {
        self.is_open = false;
        self.bytes = 0;
        std::mem::take(&mut self.pieces)
    }

    /// Whether the piece may be kept, and if so how many bytes there will be of all.
    fn check(&self, piece: &Emitted) -> Result<usize, EmitError> {
        if !self.is_open {
            return Err(EmitError::Other("only process and close may emit".to_owned()));
        }
        if !self.destinations.contains(&piece.destination) {
            return Err(EmitError::UnknownDestination(self.destinations.join(",")));
        }
        if piece.key.len() > KEY_BYTES_MAX {
            return Err(EmitError::Other(format!("the key is longer than {KEY_BYTES_MAX} bytes")));
        }
        let bytes = self.bytes + piece.key.len() + piece.data.len();
        if bytes > self.bytes_max {
            return Err(EmitError::TooMuch(format!("{} bytes a batch", self.bytes_max)));
        }
        if self.pieces.len() >= self.count_max {
            return Err(EmitError::TooMuch(format!("{} pieces a batch", self.count_max)));
        }
        Ok(bytes)
    }

    fn push(&mut self, piece: Emitted, bytes: usize) {
        self.bytes = bytes;
        self.pieces.push(piece);
    }
}

impl Host for InstanceState {
    fn put(&mut self, destination: String, key: String, data: Vec<u8>) -> Result<(), EmitError> {
        let piece = Emitted { destination, key, data: data.into() };
        let bytes = self.emit.check(&piece)?;
        if !self.limiter.hold_output(piece.key.len() + piece.data.len() + PIECE_BYTES) {
            return Err(EmitError::Other("the host's memory is spent; this call will be repeated".to_owned()));
        }
        self.emit.push(piece, bytes);
        Ok(())
    }
}

impl InstanceState {
    /// Starts a call that may emit. What the last one emitted has been stored since, or given up.
    pub(crate) fn open_output(&mut self) {
        self.limiter.release_output();
        self.emit.open();
    }
}
