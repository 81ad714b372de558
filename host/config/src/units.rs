//! Units of the file, as numbers.

use bytesize::ByteSize;

pub(super) fn to_usize(size: ByteSize) -> usize {
    usize::try_from(size.as_u64()).unwrap_or(usize::MAX)
}
