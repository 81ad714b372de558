//! With parallel keys: a call of one strand, which runs beside those of others.

use std::sync::Arc;

use shardmill_core::pipeline::Strand;
use shardmill_core::plugin::ProcessorError;
use shardmill_core::ports::Processed;
use shardmill_core::stream::Record;

use super::Delivery;
use crate::holding::Stopped;
use crate::pipeline::call::{Call, CallNotes, Called, Ended, Flight, Landed};
use crate::pipeline::traces::TracedCall;
use crate::timer::Stopwatch;

impl Delivery {
    /// What waits for a call of this instance.
    pub(in crate::pipeline) fn strand(&self) -> &Strand {
        &self.strand
    }

    pub(in crate::pipeline) fn strand_mut(&mut self) -> &mut Strand {
        &mut self.strand
    }

    /// Since when a call is under way, if one is.
    pub(in crate::pipeline) fn called_since(&self) -> Option<Stopwatch> {
        Some(self.flight.as_ref()?.started)
    }

    /// Begins a call of the live instance. `None` if there is none.
    pub(in crate::pipeline) fn begin(
        &mut self,
        records: Vec<Record>,
        millis_behind_latest: Option<u64>,
        traced: Option<Box<TracedCall>>,
    ) -> Option<Call> {
        let records = Arc::new(records);
        let trace = traced.as_ref().map(|call| call.context());
        let batch = self.batch_of(&records, millis_behind_latest, trace);
        let call = Call {
            processor: self.instance.lend()?,
            batch: batch.clone(),
            deadline: self.context.options().leases.plugin_deadline,
        };
        self.flight = Some(Flight {
            batch,
            started: Stopwatch::start(),
            is_overtaken: false,
            traced,
        });
        Some(call)
    }

    /// The call that was begun has ended: its records, and what came of it. `None` if none was.
    pub(in crate::pipeline) fn end(&mut self, landed: Landed) -> Result<Option<Ended>, Stopped> {
        let Some(mut flight) = self.flight.take() else {
            return Ok(None);
        };
        let result = match landed.back {
            Some((processor, result)) => {
                self.hangs = 0;
                let result = result.and_then(|processed| none_held_back(processed, &flight));
                self.instance.take_back(Some(processor), result)
            }
            None => Err(self.hung()?),
        };
        self.observe(landed.took);
        self.note_call(flight.batch.clone(), &result, landed.took);
        let notes = CallNotes {
            took: landed.took,
            is_overtaken: flight.is_overtaken,
        };
        Ok(Some(Ended {
            traced: flight.traced.take(),
            records: flight.batch.records,
            called: Called { result, notes },
        }))
    }

    /// Another call was held against the version that the call under way is of.
    pub(in crate::pipeline) fn overtake(&mut self) {
        if let Some(flight) = &mut self.flight {
            flight.is_overtaken = true;
        }
    }
}

/// Refuses an outcome that holds records back: a later commit could not tell which of several
/// instances has them.
fn none_held_back(processed: Processed, flight: &Flight) -> Result<Processed, ProcessorError> {
    if processed.outcome.holds_back(flight.batch.records.len()) {
        return Err(ProcessorError::HoldsBack);
    }
    Ok(processed)
}
