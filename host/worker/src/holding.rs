//! One held lease: its keeper and its pipeline, from take to release, end or loss.

mod gate;
mod handle;
mod held;
mod keeper;
mod rate;
mod row_write;
mod supervisor;
mod trouble;

pub(crate) use gate::{Gate, Stopped};
pub(crate) use handle::{KeeperHandle, Obeyed, Refused};
pub(crate) use held::{Shown, Taken};
pub(crate) use keeper::{Keeper, KeeperPorts};
pub(crate) use supervisor::{Holding, HoldingEnd};
pub(crate) use trouble::Troubles;
