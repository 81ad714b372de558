//! One held lease: its keeper and its pipeline, from take to release, end or loss.

mod keeper;
mod rate;
mod standing;
mod supervisor;

pub(crate) use keeper::{Keeper, KeeperHandle, Taken};
pub(crate) use standing::{Gate, Stopped};
pub(crate) use supervisor::{Grant, GrantEnd};
