//! What a plugin's author asks for: a project, a host on the embedded stack, tests, measurements,
//! records.

pub(crate) mod bench;
pub(crate) mod capture;
pub(crate) mod captured;
pub(crate) mod check;
#[cfg(feature = "local")]
pub(crate) mod dev;
pub(crate) mod feed;
pub(crate) mod new;
mod pump;
pub(crate) mod put;
pub(crate) mod scaffold;
#[cfg(feature = "local")]
pub(crate) mod summary;
#[cfg(feature = "local")]
pub(crate) mod test;
#[cfg(feature = "local")]
mod trial;
