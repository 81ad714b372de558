//! What calls of a DynamoDB table cost: units, in all and by partition key and second.
//!
//! A read unit covers 4 KB read consistently, or 8 KB eventually consistent; a write unit covers 1
//! KB. An item that is not there, or a condition that fails, costs as the smallest or as the item
//! that was there.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

/// Read and write units.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Units {
    /// Of reading.
    pub read: f64,
    /// Of writing.
    pub written: f64,
}

/// How a read is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// Strongly consistent.
    Consistent,
    /// Eventually consistent, at half the price.
    Eventual,
}

/// Counts what one table's calls cost.
#[derive(Default)]
pub struct Meter {
    counted: Mutex<Counted>,
}

#[derive(Default)]
struct Counted {
    origin: Option<Instant>,
    total: Units,
    scanned: f64,
    /// What each partition key had in the second it was last used in.
    seconds: HashMap<String, (u64, Units)>,
    hottest_read: (f64, String),
    hottest_write: (f64, String),
    scan_second: (u64, f64),
    hottest_scan: f64,
}

/// The most that one partition key had in one second.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Hottest {
    /// Read units, and of which key.
    pub read: (f64, String),
    /// Write units, and of which key.
    pub written: (f64, String),
    /// Read units of scans in one second, over the whole table.
    pub scanned: f64,
}

impl Units {
    /// What these units cost in dollars, on demand in us-east-1 in 2026.
    pub fn dollars(self) -> f64 {
        self.read * 0.125e-6 + self.written * 0.625e-6
    }

    /// Units of both kinds.
    pub fn sum(self) -> f64 {
        self.read + self.written
    }
}

impl std::ops::Sub for Units {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            read: self.read - earlier.read,
            written: self.written - earlier.written,
        }
    }
}

impl std::ops::Add for Units {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            read: self.read + other.read,
            written: self.written + other.written,
        }
    }
}

impl Meter {
    /// All units so far, scans included.
    pub fn units(&self) -> Units {
        self.counted().total
    }

    /// Read units of scans so far.
    pub fn scanned(&self) -> f64 {
        self.counted().scanned
    }

    /// The hottest seconds since the last call.
    pub fn take_hottest(&self) -> Hottest {
        let mut counted = self.counted();
        counted.seconds.clear();
        Hottest {
            read: std::mem::take(&mut counted.hottest_read),
            written: std::mem::take(&mut counted.hottest_write),
            scanned: std::mem::take(&mut counted.hottest_scan),
        }
    }

    pub(crate) fn read(&self, partition: &str, bytes: usize, how: Read) {
        let units = read_units(bytes, how);
        self.counted().note(
            partition,
            Units {
                read: units,
                written: 0.0,
            },
        );
    }

    pub(crate) fn write(&self, partition: &str, bytes: usize) {
        let units = bytes.div_ceil(1_024).max(1) as f64;
        self.counted().note(
            partition,
            Units {
                read: 0.0,
                written: units,
            },
        );
    }

    /// A scan reads all partition keys, a little of each.
    pub(crate) fn scan(&self, bytes: usize, how: Read) {
        let units = read_units(bytes, how);
        let mut counted = self.counted();
        counted.total.read += units;
        counted.scanned += units;
        let second = counted.second();
        let (latest, so_far) = counted.scan_second;
        counted.scan_second = (
            second,
            if latest == second {
                so_far + units
            } else {
                units
            },
        );
        counted.hottest_scan = counted.hottest_scan.max(counted.scan_second.1);
    }

    fn counted(&self) -> MutexGuard<'_, Counted> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counted {
    fn second(&mut self) -> u64 {
        self.origin
            .get_or_insert_with(Instant::now)
            .elapsed()
            .as_secs()
    }

    fn note(&mut self, partition: &str, units: Units) {
        self.total = self.total + units;
        let second = self.second();
        if !self.seconds.contains_key(partition) {
            self.seconds
                .insert(partition.to_owned(), (second, Units::default()));
        }
        let Some((latest, so_far)) = self.seconds.get_mut(partition) else {
            return;
        };
        let before = if *latest == second {
            *so_far
        } else {
            Units::default()
        };
        (*latest, *so_far) = (second, before + units);
        let now = *so_far;
        if now.read > self.hottest_read.0 {
            self.hottest_read = (now.read, partition.to_owned());
        }
        if now.written > self.hottest_write.0 {
            self.hottest_write = (now.written, partition.to_owned());
        }
    }
}

fn read_units(bytes: usize, how: Read) -> f64 {
    let units = bytes.div_ceil(4_096).max(1) as f64;
    match how {
        Read::Consistent => units,
        Read::Eventual => units / 2.0,
    }
}
