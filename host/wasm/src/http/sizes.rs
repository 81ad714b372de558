//! Lengths that the parts of a request line have.

/// Bytes of a method. The longest that is registered has 17; of a scheme, `http` takes 64.
pub(crate) const METHOD_BYTES_MAX: usize = 64;
/// Bytes of a host and its port. Names have 253 at most.
pub(crate) const AUTHORITY_BYTES_MAX: usize = 1 << 10;
/// Bytes of a path with its query. Servers commonly take 8 KiB of a line.
pub(crate) const PATH_BYTES_MAX: usize = 16 << 10;
/// Bytes of a URL and its method.
pub(crate) const URL_BYTES_MAX: usize = METHOD_BYTES_MAX * 2 + AUTHORITY_BYTES_MAX + PATH_BYTES_MAX;
