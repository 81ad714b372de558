//! What is put into the stream: plain records, and aggregates as the KPL makes them, whole or
//! damaged.

use md5::{Digest, Md5};
use prost::Message;
use shardmill_core::pipeline::{FailurePolicy, Order};

use crate::poison::{Poison, Poisons};

/// User records of an aggregate at most: some batches hold several aggregates, some end inside one.
const INSIDE_MAX: usize = 12;

/// Keys of a run that has few.
const FEW_KEYS: u32 = 8;

/// Bytes of a large record: as many as one reply may have records still fit into one.
const LARGE_MAX: usize = 50_000;

/// What the records of a run are like.
#[derive(Debug, Clone, Default)]
pub struct Producer {
    /// Records that fail, whichever host gets them.
    pub poisons: Poisons,
    /// Chance that a Kinesis record is an aggregate.
    pub aggregated: f64,
    /// Chance that a plain record is large.
    pub large: f64,
    /// Whether there are so few keys that records of one follow each other closely.
    pub has_few_keys: bool,
    /// How many of the few keys have nothing but records that fail slowly.
    pub failing_keys: u32,
}

/// A Kinesis record.
#[derive(Debug)]
pub struct Entry {
    /// Its own partition key.
    pub key: String,
    /// What it holds.
    pub data: Vec<u8>,
    /// The keys of the user records that come out of it: its own, if it is no aggregate, or one
    /// that cannot be opened.
    pub inside: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
struct Aggregate {
    #[prost(string, repeated, tag = "1")]
    partition_keys: Vec<String>,
    #[prost(message, repeated, tag = "3")]
    records: Vec<UserRecord>,
}

#[derive(Clone, PartialEq, Message)]
struct UserRecord {
    #[prost(uint64, required, tag = "1")]
    partition_key_index: u64,
    #[prost(bytes = "vec", required, tag = "3")]
    data: Vec<u8>,
}

impl Producer {
    /// Whose records are large, and nothing else.
    pub fn of_large_records() -> Self {
        Self {
            large: 1.0,
            ..Self::default()
        }
    }

    /// Draws what was added after failure policies, from its own dice.
    pub fn draw_aggregates(&mut self, dice: &mut fastrand::Rng) {
        if dice.u32(0..5) < 2 {
            self.aggregated = 0.05 * 14_f64.powf(dice.f64());
        }
    }

    /// Takes account of what is done about records that fail.
    pub fn suit(&mut self, policy: &FailurePolicy) {
        self.has_few_keys = policy.order == Order::Key;
    }

    /// The next Kinesis record; `key` is its key, unless there are few.
    pub fn next(&self, key: String, dice: &mut fastrand::Rng) -> Entry {
        let key = if self.has_few_keys {
            any_key(dice)
        } else {
            key
        };
        if self.aggregated == 0.0 || dice.f64() >= self.aggregated {
            let mut data = self.poisons.next_data(dice).to_vec();
            if (0..self.failing_keys).any(|failing| key == few_key(failing)) {
                data = Poison::Slow.data().to_vec();
            }
            if self.large > 0.0 && Poison::of(&data).is_none() && dice.f64() < self.large {
                data.resize(dice.usize(1_000..LARGE_MAX), b' ');
            }
            return Entry {
                inside: vec![key.clone()],
                key,
                data,
            };
        }
        let count = if dice.u32(0..20) == 0 {
            0
        } else {
            dice.usize(1..=INSIDE_MAX)
        };
        let mut aggregate = Aggregate::default();
        let mut inside = Vec::new();
        if count == 0 {
            // Some producers send aggregates that hold nothing but keys.
            aggregate.partition_keys.push(key.clone());
        }
        for index in 0..count {
            let key = any_key(dice);
            inside.push(key.clone());
            aggregate.partition_keys.push(key);
            let data = self.poisons.next_data(dice).to_vec();
            aggregate.records.push(UserRecord {
                partition_key_index: index as u64,
                data,
            });
        }
        let damage = dice.u32(0..30);
        if damage == 0
            && let Some(last) = aggregate.records.last_mut()
        {
            last.partition_key_index = count as u64;
            inside = vec![key.clone()];
        }
        let mut data = sealed(&aggregate.encode_to_vec());
        if damage == 1
            && let Some(last) = data.last_mut()
        {
            *last ^= 1;
            inside = vec![key.clone()];
        }
        Entry { key, data, inside }
    }
}

fn any_key(dice: &mut fastrand::Rng) -> String {
    few_key(dice.u32(0..FEW_KEYS))
}

fn few_key(number: u32) -> String {
    format!("key-{number}")
}

fn sealed(body: &[u8]) -> Vec<u8> {
    [&[0xf3, 0x89, 0x9a, 0xc2], body, &Md5::digest(body)[..]].concat()
}
