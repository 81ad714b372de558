//! Does nothing, so that what is measured is the host.

use shardmill_processor::{Batch, Context, Error, Outcome, Processor};

/// See the module.
pub struct Noop;

impl Processor for Noop {
    fn init(_context: Context) -> Result<Self, Error> {
        Ok(Self)
    }

    fn process(&mut self, _batch: Batch) -> Result<Outcome, Error> {
        Ok(Outcome::default())
    }
}
