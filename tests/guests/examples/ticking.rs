//! Does at each tick what `[config] tick` says: `emit`, `commit`, `error`, `panic`, `loop` or
//! `unknown`. Holds back all records.

use shardmill_processor::{
    Batch, Commit, Context, Error, HeldBack, Outcome, Processor, StartPosition, Tick, Ticking,
    config, emit, start,
};

struct AtTicks {
    what: String,
    start: StartPosition,
}

impl Processor for AtTicks {
    fn init(_context: Context) -> Result<Self, Error> {
        Ok(Self {
            what: config::get("tick").unwrap_or_default(),
            start: start(),
        })
    }

    fn process(&mut self, _batch: Batch) -> Result<Outcome, Error> {
        Ok(Outcome {
            commit: Commit::Nothing,
            ..Outcome::default()
        })
    }
}

impl Ticking for AtTicks {
    fn tick(&mut self, tick: Tick) -> Result<HeldBack, Error> {
        let time = format!("{} {:?}", tick.now_ms, tick.delivered_until_ms);
        match self.what.as_str() {
            "emit" => emit("stdout", "", time.as_bytes())?,
            "start" => emit("stdout", "", format!("{:?}", self.start).as_bytes())?,
            "commit" => return Ok(HeldBack::Commit),
            "unknown" => emit("nowhere", "", time.as_bytes())?,
            "panic" => panic!("at {time}"),
            "loop" => loop {
                std::hint::black_box(&time);
            },
            "error" => {
                emit("stdout", "", time.as_bytes())?;
                return Err(Error::Unavailable(time));
            }
            _ => {}
        }
        Ok(HeldBack::Keep)
    }
}

shardmill_processor::plugin!(AtTicks, ticks);
