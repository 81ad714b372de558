//! Emits each record's data, keyed `shard/sequence-number/sub-sequence-number`, so that a test can
//! tell what was delivered, how often and in which order. The configuration key `destination` names
//! the sink.

use shardmill_processor::{
    Batch, CloseReason, Context, Error, Outcome, Processor, config, emit, log,
};

/// See the module.
pub struct Echo {
    shard: String,
    destination: String,
}

impl Processor for Echo {
    fn init(context: Context) -> Result<Self, Error> {
        let destination = config::get("destination").unwrap_or_else(|| "stdout".to_owned());
        Ok(Self {
            shard: context.shard,
            destination,
        })
    }

    fn process(&mut self, batch: Batch) -> Result<Outcome, Error> {
        for record in &batch.records {
            let key = format!(
                "{}/{}/{}",
                self.shard, record.sequence_number, record.sub_sequence_number
            );
            emit(&self.destination, &key, record.data)?;
        }
        Ok(Outcome::default())
    }

    fn close(&mut self, reason: CloseReason) -> Result<(), Error> {
        log::info(format!("closed: {reason:?}"));
        if reason == CloseReason::ShardEnded {
            emit(
                &self.destination,
                &format!("{}/closed", self.shard),
                b"shard-ended",
            )?;
        }
        Ok(())
    }
}
