use std::fmt;

/// A user and a password, which is never shown.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct LoginPassword {
    /// The name of the user.
    pub(crate) user: String,
    /// The password itself, or a token in its stead.
    pub(crate) password: String,
}

impl fmt::Debug for LoginPassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LoginPassword(..)")
    }
}
