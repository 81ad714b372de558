//! What an operator asks for: a host, and what the hosts of an application do and why.

pub(crate) mod consumers;
pub(crate) mod cost;
pub(crate) mod doctor;
pub(crate) mod explain;
pub(crate) mod export;
pub(crate) mod iam;
pub(crate) mod import;
pub(crate) mod leases;
mod old_fleet;
pub(crate) mod plan;
pub(crate) mod plugins;
mod reading;
pub(crate) mod replay;
pub(crate) mod run;
pub(crate) mod state;
