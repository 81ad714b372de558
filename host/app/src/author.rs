//! What a plugin's author asks for: a project, a host on the embedded stack, tests, measurements,
//! records.

pub(crate) mod bench;
pub(crate) mod capture;
pub(crate) mod captured;
pub(crate) mod check;
#[cfg(feature = "local")]
pub(crate) mod dev;
#[cfg(feature = "local")]
mod dry_run;
pub(crate) mod feed;
pub(crate) mod new;
mod pump;
pub(crate) mod put;
pub(crate) mod scaffold;
#[cfg(feature = "local")]
pub(crate) mod summary;
#[cfg(feature = "local")]
pub(crate) mod test;
