//! `shardmill:processor/emit`: output, kept while a call runs and handed to the pipeline when it
//! succeeds.

use bytes::Bytes;
use shardmill_core::stream::Emitted;

use crate::bindings::shardmill::processor::emit::{EmitError, Host};
use crate::instance::state::InstanceState;
use crate::output::PIECE_BYTES;

/// Bytes that are kept of the name of a destination that does not exist; sinks have shorter ones.
const NAME_BYTES_MAX: usize = 128;

impl Host for InstanceState {
    fn put(&mut self, destination: String, key: String, data: Vec<u8>) -> Result<(), EmitError> {
        self.keep(destination, key, data.into(), 0)
    }
}

impl InstanceState {
    /// Starts a call that may emit. What the last one emitted has been stored since, or given up.
    pub(crate) fn open_output(&mut self) {
        self.limiter.release_output();
        self.emit.open();
    }

    /// Keeps a piece, if it may be kept, which takes so many bytes `besides` its key and its data.
    pub(super) fn keep(
        &mut self,
        destination: String,
        key: String,
        data: Bytes,
        besides: usize,
    ) -> Result<(), EmitError> {
        let piece = Emitted {
            destination,
            key,
            data,
        };
        let checked = self.emit.check(&piece);
        if matches!(checked, Err(EmitError::UnknownDestination(_))) && self.emit.unknown.is_none() {
            self.emit.unknown = Some(
                self.log
                    .redactor()
                    .shown(&piece.destination, NAME_BYTES_MAX),
            );
        }
        let bytes = checked?;
        if !self
            .limiter
            .hold_output(piece.key.len() + piece.data.len() + besides + PIECE_BYTES)
        {
            return Err(EmitError::Other(
                "the host's memory is used up; this call will be repeated".to_owned(),
            ));
        }
        self.emit.push(piece, bytes);
        Ok(())
    }
}
