//! Any stream behind the sharing of reads, so that it must keep the contract of a stream too.

use std::sync::Arc;
use std::time::Duration;

use shardmill_core::ports::{PortFuture, StreamReader};
use shardmill_core::stream::{SequenceNumber, ShardId, StreamRef};
use shardmill_worker::{ByteBudget, ReadLimits, RingBudget, SharedReader, SharedStream};

use crate::contract::stream::StreamControl;
use crate::fleet::TokioClock;

/// A stream, and one of two plugins that share its reads; the other one never reads, so that
/// replies are kept for it.
pub struct SharedControl<C> {
    control: Arc<C>,
    reader: SharedReader,
    _other: SharedReader,
}

impl<C: StreamControl> SharedControl<C> {
    /// Shares `reader`, which reads what `control` puts. It has no rates to keep.
    ///
    /// # Panics
    ///
    /// Never: its name and budget are valid.
    pub fn new(control: Arc<C>, reader: Arc<dyn StreamReader>) -> Self {
        const BUFFER_BYTES: usize = 64 << 20;
        let limits = ReadLimits {
            calls_per_second: 10_000.0,
            bytes_per_second: 1e12,
            // The suite does not wait for its turn: an answer that is fresh by the rates would be
            // old to it.
            idle_every: Duration::ZERO,
            idle_max: Duration::ZERO,
            ..ReadLimits::default()
        };
        let ring = RingBudget::of(
            &ByteBudget::new(BUFFER_BYTES).expect("large enough"),
            BUFFER_BYTES,
        );
        let shared = SharedStream::new(
            &StreamRef::parse("stream").expect("valid"),
            reader,
            Arc::new(TokioClock::default()),
            limits,
            ring,
        );
        Self {
            control,
            reader: shared.reader(),
            _other: shared.reader(),
        }
    }
}

impl<C: StreamControl> StreamControl for SharedControl<C> {
    fn reader(&self) -> &dyn StreamReader {
        &self.reader
    }

    fn put<'a>(
        &'a self,
        hash_key: u128,
        key: &'a str,
        data: &'a str,
    ) -> PortFuture<'a, (ShardId, SequenceNumber)> {
        self.control.put(hash_key, key, data)
    }

    fn split<'a>(&'a self, shard: &'a ShardId, at: u128) -> PortFuture<'a, ()> {
        self.control.split(shard, at)
    }

    fn merge<'a>(&'a self, left: &'a ShardId, right: &'a ShardId) -> PortFuture<'a, ()> {
        self.control.merge(left, right)
    }

    fn timestamp(&self) -> PortFuture<'_, u64> {
        self.control.timestamp()
    }
}
