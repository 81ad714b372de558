//! `shardmill:processor/bulk-emit`: many pieces of output in one call.

use bytes::Bytes;
use shardmill_layout::{Malformed, Piece, Pieces};

use crate::bindings::shardmill::processor::bulk_emit::{Host, Terms};
use crate::bindings::shardmill::processor::emit::EmitError;
use crate::instance::state::InstanceState;

impl Host for InstanceState {
    fn get_terms(&mut self) -> Terms {
        self.emit.terms()
    }

    fn put_all(&mut self, pieces: Vec<u8>) -> Result<(), EmitError> {
        let frame = Bytes::from(pieces);
        let mut pieces = Pieces::read(&frame).map_err(malformed)?;
        while let Some(piece) = pieces.next_piece().map_err(malformed)? {
            self.put_piece(&frame, &piece)?;
        }
        Ok(())
    }
}

impl InstanceState {
    /// A piece of the frame, which is not copied.
    fn put_piece(&mut self, frame: &Bytes, piece: &Piece<'_>) -> Result<(), EmitError> {
        let Some(destination) = self.emit.destination(piece.destination) else {
            let message = format!("there is no destination {}", piece.destination);
            return Err(EmitError::Other(message));
        };
        self.keep(
            destination,
            piece.key.to_owned(),
            frame.slice_ref(piece.data),
        )
    }
}

fn malformed(problem: Malformed) -> EmitError {
    EmitError::Other(format!("the frame of the pieces {problem}"))
}
