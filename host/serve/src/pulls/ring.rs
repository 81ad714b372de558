use shardmill_core::control::DeployAsked;
use shardmill_worker::Ring;

/// Something to be pulled at once, because an operator wants it.
pub(crate) struct DeployRing {
    /// Which version it is.
    pub(crate) deploy: DeployAsked,
    /// The version of the row that says so.
    pub(crate) control: u64,
    /// Is to be answered once it is in the folder, or cannot be.
    pub(crate) ring: Ring,
}
