//! One held lease: its keeper and its pipeline, from take to release, end or loss.

mod gate;
mod handle;
mod keeper;
mod rate;
mod row_write;
mod supervisor;
mod trouble;

pub(crate) use gate::{Gate, Stopped};
pub(crate) use handle::{KeeperHandle, Refused};
pub(crate) use keeper::{Keeper, KeeperPorts, Taken};
pub(crate) use supervisor::{Holding, HoldingEnd};
pub(crate) use trouble::Troubles;
