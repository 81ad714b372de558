//! What a call emitted, kept until it succeeds.

use shardmill_core::plugin::{GuestLimits, InstanceFate, ProcessorError};
use shardmill_core::ports::InstanceContext;
use shardmill_core::stream::Emitted;

use crate::bindings::shardmill::processor::bulk_emit::Terms;
use crate::bindings::shardmill::processor::emit::EmitError;

/// Bytes that the host needs for a piece besides its key and its data.
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
    /// The first destination that the call emitted to and that does not exist.
    pub(crate) unknown: Option<String>,
    /// Why not all pieces of a frame were taken: the call has to fail.
    refused: Option<String>,
}

/// A destination that a call emitted to, and that does not exist.
pub(crate) struct UnknownDestination {
    name: String,
    known: String,
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
            unknown: None,
            refused: None,
        }
    }

    /// What is taken, for plugins that emit many pieces at once.
    pub(crate) fn terms(&self) -> Terms {
        Terms {
            destinations: self.destinations.clone(),
            bytes: self.bytes_max as u64,
            pieces: u32::try_from(self.count_max).unwrap_or(u32::MAX),
            key_bytes: u32::try_from(KEY_BYTES_MAX).unwrap_or(u32::MAX),
        }
    }

    /// A destination by its place in the terms.
    pub(crate) fn destination(&self, place: u32) -> Option<String> {
        self.destinations.get(usize::try_from(place).ok()?).cloned()
    }

    /// Starts a call that may emit.
    pub(crate) fn open(&mut self) {
        self.take();
        self.unknown = None;
        self.refused = None;
        self.is_open = true;
    }

    /// Drops what the call has emitted: a piece of a frame was refused, and those before it would
    /// keep all of it, though only they are charged for.
    pub(crate) fn refuse_all(&mut self, why: &str) {
        self.pieces.clear();
        self.refused = Some(why.to_owned());
    }

    /// Why the call has to fail, if it has to.
    pub(crate) fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    /// Whether the call emitted to a destination that does not exist.
    pub(crate) fn unknown_destination(&self) -> Option<UnknownDestination> {
        let name = self.unknown.clone()?;
        Some(UnknownDestination {
            name,
            known: self.destinations.join(", "),
        })
    }

    /// Ends the call, and hands over what it emitted.
    pub(crate) fn take(&mut self) -> Vec<Emitted> {
        self.is_open = false;
        self.bytes = 0;
        std::mem::take(&mut self.pieces)
    }

    /// Checks whether the piece may be kept. Returns the bytes of all pieces with it.
    pub(crate) fn check(&self, piece: &Emitted) -> Result<usize, EmitError> {
        if !self.is_open {
            return Err(EmitError::Other(
                "only process and close may emit".to_owned(),
            ));
        }
        if !self.destinations.contains(&piece.destination) {
            return Err(EmitError::UnknownDestination(self.destinations.join(",")));
        }
        if piece.key.len() > KEY_BYTES_MAX {
            return Err(EmitError::Other(format!(
                "the key is longer than {KEY_BYTES_MAX} bytes"
            )));
        }
        let bytes = self.bytes + piece.key.len() + piece.data.len();
        if bytes > self.bytes_max {
            return Err(EmitError::TooMuch(format!(
                "{} bytes a batch",
                self.bytes_max
            )));
        }
        if self.pieces.len() >= self.count_max {
            return Err(EmitError::TooMuch(format!(
                "{} pieces a batch",
                self.count_max
            )));
        }
        Ok(bytes)
    }

    pub(crate) fn push(&mut self, piece: Emitted, bytes: usize) {
        self.bytes = bytes;
        self.pieces.push(piece);
    }
}

impl UnknownDestination {
    /// Turns the call's failure into one about that destination.
    pub(crate) fn explains_error(self, error: ProcessorError) -> ProcessorError {
        error.after_unknown_destination(self.name, self.known)
    }

    /// Turns what a plugin said about a record's failure into a failure about that destination.
    pub(crate) fn explains(&self, said: &str) -> String {
        let Self { name, known } = self;
        let (name, known, said) = (name.clone(), known.clone(), said.to_owned());
        ProcessorError::UnknownDestination {
            name,
            known,
            said,
            fate: InstanceFate::Usable,
        }
        .to_string()
    }
}
