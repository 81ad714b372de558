//! What names a version: the beginning of its digest.

/// Digits of a digest that name a version well enough to be typed.
pub(super) const PREFIX_MIN: usize = 8;

/// Whether it is enough of a digest to name a version.
pub(super) fn is_prefix(wanted: &str) -> bool {
    wanted.len() >= PREFIX_MIN && wanted.bytes().all(|digit| digit.is_ascii_hexdigit())
}
