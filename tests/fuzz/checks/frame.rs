//! What must hold whatever a plugin, or a host, puts into a frame.

use shardmill_layout::{Batch, Outcome, Piece, PieceWriter, Pieces, write_batch};

/// Reads the bytes as each kind of frame, and writes again what was read.
///
/// # Panics
///
/// If what was read is written otherwise than it was.
pub(super) fn check(bytes: &[u8]) {
    if let Ok(batch) = Batch::read(bytes) {
        let records = batch.records.iter().copied();
        let again = write_batch(records, batch.attempt, batch.millis_behind_latest);
        assert_eq!(again.as_deref(), Ok(bytes), "a batch");
    }
    if let Ok(outcome) = Outcome::read(bytes) {
        let again = outcome.write().expect("no longer than it was");
        // Nothing to say has two forms: an empty frame, and one that says so.
        assert!(
            again == bytes || outcome == Outcome::default(),
            "an outcome"
        );
    }
    if let Some(pieces) = pieces(bytes) {
        let mut writer = PieceWriter::default();
        for piece in &pieces {
            writer.push(*piece).expect("no longer than it was");
        }
        assert!(writer.frame() == bytes || pieces.is_empty(), "pieces");
    }
}

fn pieces(bytes: &[u8]) -> Option<Vec<Piece<'_>>> {
    let mut reading = Pieces::read(bytes).ok()?;
    let mut pieces = Vec::new();
    while let Some(piece) = reading.next_piece().ok()? {
        pieces.push(piece);
    }
    Some(pieces)
}
