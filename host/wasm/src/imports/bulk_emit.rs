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
        if let Some(refused) = self.emit.refused() {
            return Err(EmitError::Other(refused.to_owned()));
        }
        let put = self.put_pieces(&Bytes::from(pieces));
        put.inspect_err(|error| self.emit.refuse_all(&error.to_string()))
    }
}

impl InstanceState {
    fn put_pieces(&mut self, frame: &Bytes) -> Result<(), EmitError> {
        let mut pieces = Pieces::read(frame).map_err(malformed)?;
        while let Some(piece) = pieces.next_piece().map_err(malformed)? {
            self.put_piece(frame, &piece)?;
        }
        Ok(())
    }

    /// A piece of the frame, which is not copied.
    fn put_piece(&mut self, frame: &Bytes, piece: &Piece<'_>) -> Result<(), EmitError> {
        let Some(destination) = self.emit.destination(piece.destination) else {
            let name = format!("number {}", piece.destination);
            return self.keep(name, piece.key.to_owned(), Bytes::new(), 0);
        };
        // A slice keeps its key alive too, in the frame.
        let key = piece.key.to_owned();
        let besides = key.len();
        self.keep(destination, key, frame.slice_ref(piece.data), besides)
    }
}

fn malformed(problem: Malformed) -> EmitError {
    EmitError::Other(format!("the frame of the pieces {problem}"))
}
