//! Who this instance is, beyond what `init` is given.

use crate::StartPosition;

/// Where the records of this instance begin: the checkpoint as it was when the instance was made.
/// Some of the records after it may have been settled before, and do not come again then. A
/// component that asks needs a host that knows the answer: one of this version or later.
pub fn start() -> StartPosition {
    #[cfg(target_arch = "wasm32")]
    return crate::bindings::shardmill::processor::context::start();
    #[cfg(not(target_arch = "wasm32"))]
    return crate::testing::start_position();
}
