//! The hash behind every order that all hosts must agree on.
//!
//! `std::hash::DefaultHasher` is unsuitable: its algorithm may change between Rust releases, and
//! during a rolling upgrade a fleet runs hosts of two builds.

/// A 64-bit hash that is the same whatever a host was built with: FNV-1a of `bytes`, then the
/// finalizer of `MurmurHash3` (`fmix64`). FNV-1a alone hardly carries the last bytes into the high
/// bits, so ids that differ only in their last digits would be neighbours in every host's order.
/// Not for input that an adversary chooses.
pub fn stable(bytes: impl IntoIterator<Item = u8>) -> u64 {
    fmix64(fnv1a(bytes))
}

/// <http://www.isthe.com/chongo/tech/comp/fnv/>
fn fnv1a(bytes: impl IntoIterator<Item = u8>) -> u64 {
    const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    bytes.into_iter().fold(OFFSET_BASIS, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(PRIME)
    })
}

/// <https://github.com/aappleby/smhasher/blob/master/src/MurmurHash3.cpp>
fn fmix64(mut hash: u64) -> u64 {
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ hash >> 33
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_published_values_of_fnv_1a_come_out() {
        for (text, hash) in [
            ("", 0xcbf2_9ce4_8422_2325),
            ("a", 0xaf63_dc4c_8601_ec8c),
            ("foo", 0xdcb2_7518_fed9_d577),
            ("foobar", 0x8594_4171_f739_67e8),
        ] {
            assert_eq!(fnv1a(text.bytes()), hash, "{text:?}");
        }
        assert_eq!(fmix64(1), 0xb456_bcfc_34c2_cb2c);
    }

    #[test]
    fn the_hash_never_changes_since_a_fleet_may_run_several_builds() {
        for (text, hash) in [
            ("", 0xefd0_1f60_ba99_2926),
            ("shardId-000000000000", 0x1edc_b636_2243_b92f),
            ("host-3", 0xac2e_8f71_7c96_7a48),
        ] {
            assert_eq!(stable(text.bytes()), hash, "{text:?}");
        }
    }

    #[test]
    fn ids_that_differ_in_their_last_digits_are_spread() {
        let first_of = |host: u32| {
            let rank =
                |shard: &u32| stable(format!("host-{host}\u{0}shardId-{shard:012}").into_bytes());
            (0..1_000).min_by_key(rank)
        };
        let firsts: BTreeSet<_> = (0..64).map(first_of).collect();
        // A perfect hash would give about 62; FNV-1a alone gives 37.
        assert!(firsts.len() >= 56, "{}", firsts.len());
    }
}
