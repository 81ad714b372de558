//! What can be read of a configuration that has mistakes: enough to look for more of them.

use super::config::Config;
use super::gather::LeftOut;

/// A configuration without what is wrong in it. No host runs on it.
#[derive(Debug)]
pub struct Rest {
    pub(super) config: Config,
    pub(super) left_out: LeftOut,
}

impl Rest {
    /// Names of the variables of the environment that set something in it.
    pub fn environment(&self) -> &[String] {
        &self.config.environment
    }
}
