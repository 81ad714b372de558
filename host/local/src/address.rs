//! The region and the account in the embedded stack's ARNs.

/// The region that the stack claims to be in.
pub const LOCAL_REGION: &str = "us-east-1";
/// The account that the stack's names are in.
pub const LOCAL_ACCOUNT: &str = "000000000000";
