//! How a shard's shadow runs, whichever version it is.

use crate::pipeline::terms::Terms;
use crate::shadow::SharedShadow;
use crate::tap::Tap;

/// See the module's description.
#[derive(Clone)]
pub(in crate::pipeline) struct ShadowSettings {
    pub(in crate::pipeline) shadow: SharedShadow,
    pub(in crate::pipeline) tap: Tap,
    pub(in crate::pipeline) terms: Terms,
}
