//! Output through the host.

use crate::EmitError;

/// Emits one piece to the sink named `destination`. The host stores it before the checkpoint that
/// covers the batch. `key` is for sinks that order or partition by key, and may be empty.
pub fn emit(destination: &str, key: &str, data: &[u8]) -> Result<(), EmitError> {
    #[cfg(target_arch = "wasm32")]
    return collector::emit(destination, key, data);
    #[cfg(not(target_arch = "wasm32"))]
    return crate::testing::keep(destination, key, data);
}

#[cfg(target_arch = "wasm32")]
pub(crate) use collector::{collect, hand_over};

/// Many pieces for one call of the host. A piece that the host would surely take is collected; any
/// other is given to the host at once, after those before it, so that its answer is the host's and
/// comes from the call of `emit` that it is about.
#[cfg(target_arch = "wasm32")]
mod collector {
    use std::cell::{Cell, RefCell};

    use shardmill_layout::{Piece, PieceWriter};

    use crate::EmitError;
    use crate::bindings::bulk::shardmill::processor::bulk_emit;
    use crate::bindings::shardmill::processor::emit::put;

    /// Bytes that are collected before they are handed over: many pieces a call, no more than every
    /// host takes in one call, and little of the memory that the plugin may have.
    const COLLECTED_BYTES: usize = 32 << 10;
    /// A larger piece costs more to copy once more than it costs to call the host for it.
    const SMALL_BYTES: usize = 4 << 10;
    /// Bytes that a piece takes besides its key and its data.
    const PIECE_BYTES: usize = 12;

    thread_local! {
        static COLLECTOR: RefCell<Collector> = RefCell::default();
        /// Set while pieces are collected. A plugin without the export `bulk` has nothing that sets
        /// it, so the linker leaves out the collector, and the import with it.
        static COLLECT: Cell<Option<Emit>> = const { Cell::new(None) };
    }

    type Emit = fn(&str, &str, &[u8]) -> Result<(), EmitError>;

    #[derive(Default)]
    struct Collector {
        terms: Option<bulk_emit::Terms>,
        pieces: PieceWriter,
        /// Of this call, collected or given to the host.
        taken_bytes: u64,
        taken_pieces: u32,
        /// Why what was collected was not taken. The call fails then, whatever it makes of it.
        refused: Option<EmitError>,
    }

    /// From here on, pieces are collected.
    pub(crate) fn collect() {
        COLLECTOR.with_borrow_mut(|collector| {
            collector.pieces.clear();
            collector.taken_bytes = 0;
            collector.taken_pieces = 0;
            collector.refused = None;
        });
        COLLECT.set(Some(|destination, key, data| {
            COLLECTOR.with_borrow_mut(|collector| collector.emit(destination, key, data))
        }));
    }

    /// Gives the host what is collected, and collects no more.
    pub(crate) fn hand_over() -> Result<(), EmitError> {
        COLLECT.set(None);
        COLLECTOR.with_borrow_mut(Collector::flush)
    }

    pub(super) fn emit(destination: &str, key: &str, data: &[u8]) -> Result<(), EmitError> {
        match COLLECT.get() {
            Some(collect) => collect(destination, key, data),
            None => put(destination, key, data),
        }
    }

    impl Collector {
        fn emit(&mut self, destination: &str, key: &str, data: &[u8]) -> Result<(), EmitError> {
            let bytes = key.len() + data.len();
            if self.pieces.len() + PIECE_BYTES + bytes > COLLECTED_BYTES {
                self.flush()?;
            }
            if let Some(destination) = self.place_of(destination, key, bytes) {
                let piece = Piece {
                    destination,
                    key,
                    data,
                };
                let pushed = self.pieces.push(piece);
                pushed.map_err(|problem| EmitError::Other(problem.to_string()))?;
            } else {
                self.flush()?;
                put(destination, key, data)?;
            }
            self.taken_bytes += bytes as u64;
            self.taken_pieces += 1;
            Ok(())
        }

        /// The destination's place, if the piece can be collected and the host would surely take
        /// it.
        fn place_of(&mut self, destination: &str, key: &str, bytes: usize) -> Option<u32> {
            let terms = self.terms.get_or_insert_with(bulk_emit::get_terms);
            let is_taken = key.len() <= terms.key_bytes as usize
                && self.taken_bytes + bytes as u64 <= terms.bytes
                && self.taken_pieces < terms.pieces;
            if !is_taken || bytes > SMALL_BYTES {
                return None;
            }
            let names = terms.destinations.iter();
            let place = names.into_iter().position(|name| name == destination)?;
            u32::try_from(place).ok()
        }

        fn flush(&mut self) -> Result<(), EmitError> {
            if self.refused.is_none() && !self.pieces.is_empty() {
                self.refused = bulk_emit::put_all(self.pieces.frame()).err();
            }
            self.pieces.clear();
            match &self.refused {
                None => Ok(()),
                Some(refused) => Err(refused.clone()),
            }
        }
    }
}
