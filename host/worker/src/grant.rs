//! One held lease: its keeper and its pipeline, from take to release, end or loss.

mod handle;
mod keeper;
mod rate;
mod standing;
mod supervisor;
mod trouble;

pub(crate) use handle::{KeeperHandle, Refused};
pub(crate) use keeper::{Keeper, Overseer, Taken};
pub(crate) use standing::{Gate, Stopped};
pub(crate) use supervisor::{Grant, GrantEnd};
pub(crate) use trouble::Troubles;
