//! Keeps state, and misbehaves with it in the way that the configuration key `misbehave` names.

use std::hint::black_box;

use shardmill_processor::{Batch, Context, Error, Outcome, Processor, Stateful, config, emit};

struct EvilState {
    misbehave: String,
}

impl Processor for EvilState {
    fn init(_context: Context) -> Result<Self, Error> {
        Ok(Self {
            misbehave: config::get("misbehave").unwrap_or_default(),
        })
    }

    fn process(&mut self, _batch: Batch) -> Result<Outcome, Error> {
        Ok(Outcome::default())
    }
}

impl Stateful for EvilState {
    fn save(&mut self) -> Result<Vec<u8>, Error> {
        match self.misbehave.as_str() {
            "state-too-large" => return Ok(vec![7; 300 << 10]),
            "state-giant" => return Ok(vec![7; 48 << 20]),
            "loop-in-save" => loop_for_ever(),
            "trap-in-save" => panic!("save panics as asked"),
            "error-in-save" => return Err("save fails as asked".into()),
            "memory-in-save" => drop(black_box(vec![1_u8; 1 << 30])),
            "emit-in-save" => emit("stdout", "", b"x")?,
            _ => {}
        }
        Ok(b"kept".to_vec())
    }

    fn load(&mut self, _state: Vec<u8>) -> Result<(), Error> {
        match self.misbehave.as_str() {
            "loop-in-load" => loop_for_ever(),
            "trap-in-load" => panic!("load panics as asked"),
            "error-in-load" => return Err("load fails as asked".into()),
            _ => {}
        }
        Ok(())
    }
}

fn loop_for_ever() {
    let mut turns = 0_u64;
    loop {
        turns = black_box(turns.wrapping_add(1));
    }
}

shardmill_processor::plugin!(EvilState, state);
