//! Where the embedded stack says that it is.

/// The region that the stack says it is in.
pub const LOCAL_REGION: &str = "us-east-1";
/// The account that the stack's names are in.
pub const LOCAL_ACCOUNT: &str = "000000000000";
