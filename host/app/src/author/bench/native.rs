//! Native code behind a plugin's ports that does nothing. Its figures are the cost of measuring.

use shardmill_core::plugin::ProcessorError;
use shardmill_core::ports::{CloseReason, LastOutput, PortFuture, Processed, RecordProcessor};
use shardmill_core::stream::Batch;

/// Handles everything, emits nothing.
pub(super) struct NativeNoOp;

impl RecordProcessor for NativeNoOp {
    fn process(&mut self, _batch: Batch) -> PortFuture<'_, Result<Processed, ProcessorError>> {
        Box::pin(async { Ok(Processed::default()) })
    }

    fn close(
        self: Box<Self>,
        _reason: CloseReason,
    ) -> PortFuture<'static, Result<LastOutput, ProcessorError>> {
        Box::pin(async { Ok(LastOutput::default()) })
    }
}
