//! Which worker of a fleet that shares a KCL 2.x table repairs the table.
//!
//! KCL 2.x workers do not vote: each computes the same shuffle of the owners it sees in the table,
//! with a fixed seed, and the first one is the leader (KCL
//! `DeterministicShuffleShardSyncLeaderDecider`). If the rule elects one of our hosts and that host
//! does not audit, no worker does; so we compute the same.

use super::WorkerId;

/// Seed of the KCL's shuffle (`DETERMINISTIC_SHUFFLE_SEED`).
const SEED: u64 = 1947;

/// The worker that a KCL 2.x fleet considers its leader, given the owners of all rows; `None` if no
/// row has an owner.
pub fn kcl_leader<'a>(owners: impl IntoIterator<Item = &'a WorkerId>) -> Option<&'a WorkerId> {
    kcl_leader_order(owners).first().copied()
}

/// All distinct `owners` in the KCL's order; the first is the leader. Owners may come in any order
/// and repeat.
pub(crate) fn kcl_leader_order<'a>(
    owners: impl IntoIterator<Item = &'a WorkerId>,
) -> Vec<&'a WorkerId> {
    let mut order: Vec<&WorkerId> = owners.into_iter().collect();
    // Java strings compare by UTF-16 code unit, which differs from our order (by code point) above
    // U+FFFF.
    order.sort_by(|a, b| a.as_str().encode_utf16().cmp(b.as_str().encode_utf16()));
    order.dedup();
    let mut random = JavaRandom::new(SEED);
    for last in (1..order.len()).rev() {
        let other = random.next_index(last + 1);
        order.swap(last, other);
    }
    order
}

/// `java.util.Random`: a linear congruential generator of 48 bits, which the specification of the
/// Java class library fixes for ever.
struct JavaRandom {
    state: u64,
}

impl JavaRandom {
    const MULTIPLIER: u64 = 0x5_DEEC_E66D;
    const ADDEND: u64 = 0xB;
    const MASK: u64 = (1 << 48) - 1;

    fn new(seed: u64) -> Self {
        Self {
            state: (seed ^ Self::MULTIPLIER) & Self::MASK,
        }
    }

    /// `next(31)`: 31 random bits.
    fn next_31_bits(&mut self) -> u32 {
        self.state = self
            .state
            .wrapping_mul(Self::MULTIPLIER)
            .wrapping_add(Self::ADDEND)
            & Self::MASK;
        u32::try_from(self.state >> (48 - 31)).unwrap_or_default()
    }

    /// `nextInt(bound)`, for a bound from 1 to 2^31-1.
    fn next_index(&mut self, bound: usize) -> usize {
        let bound = u32::try_from(bound).unwrap_or(i32::MAX.cast_unsigned());
        let mut bits = self.next_31_bits();
        let index = if bound.is_power_of_two() {
            (u64::from(bound) * u64::from(bits)) >> 31
        } else {
            // Java draws again if the 31 bits fall into the incomplete last round of `bound`
            // numbers; it detects that by an overflow of its signed arithmetic.
            while bits - bits % bound > i32::MAX.cast_unsigned() - (bound - 1) {
                bits = self.next_31_bits();
            }
            u64::from(bits % bound)
        };
        usize::try_from(index).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workers(names: &[&str]) -> Vec<WorkerId> {
        names
            .iter()
            .map(|name| WorkerId::new(name).unwrap())
            .collect()
    }

    fn numbered(count: usize) -> Vec<WorkerId> {
        (0..count)
            .map(|index| WorkerId::new(&format!("w{index}")).unwrap())
            .collect()
    }

    fn names(order: &[&WorkerId]) -> Vec<String> {
        order.iter().map(ToString::to_string).collect()
    }

    /// Computed with JDK 17's `Collections.shuffle(list, new Random(1947))`.
    #[test]
    fn the_leader_is_the_one_that_java_shuffles_to_the_front() {
        let expected = ["w0", "w0", "w2", "w3", "w4", "w2", "w2", "w2", "w3", "w8"];
        for (count, leader) in (1..).zip(expected) {
            assert_eq!(
                kcl_leader(&numbered(count)).unwrap().as_str(),
                leader,
                "{count} workers"
            );
        }
        assert_eq!(kcl_leader(&[]), None);
    }

    #[test]
    fn the_whole_order_is_javas() {
        let ten = numbered(10);
        assert_eq!(
            names(&kcl_leader_order(&ten)).join(" "),
            "w8 w5 w1 w6 w9 w4 w2 w0 w7 w3"
        );
    }

    #[test]
    fn large_fleets_shuffle_as_javas_do() {
        for (count, first_four, last) in [
            (16, "w5 w11 w3 w10", "w4"),
            (33, "w28 w10 w21 w23", "w26"),
            (100, "w95 w39 w84 w70", "w66"),
            (1000, "w772 w316 w671 w489", "w425"),
        ] {
            let owners = numbered(count);
            let order = names(&kcl_leader_order(&owners));
            assert_eq!(
                (order[..4].join(" ").as_str(), order[count - 1].as_str()),
                (first_four, last),
                "{count} workers"
            );
        }
    }

    #[test]
    fn neither_the_order_of_rows_nor_how_many_one_worker_owns_changes_the_leader() {
        let rows = workers(&["w2", "w0", "w2", "w3", "w1", "w0", "w2"]);
        assert_eq!(kcl_leader(&rows).unwrap().as_str(), "w3");
    }

    #[test]
    fn names_sort_by_utf_16_code_unit_as_java_strings_do() {
        // U+1F600 is written with surrogates (D83D DE00), which sort below U+FF5E.
        let owners = workers(&[
            "z",
            "\u{FF5E}",
            "\u{1F600}",
            "host-1.example.com:1234",
            "\u{E9}",
        ]);
        let expected = [
            "\u{FF5E}",
            "host-1.example.com:1234",
            "\u{E9}",
            "z",
            "\u{1F600}",
        ];
        assert_eq!(names(&kcl_leader_order(&owners)), expected);
    }

    #[test]
    fn a_bound_that_does_not_divide_2_to_the_31_draws_again_where_java_does() {
        let mut random = JavaRandom::new(SEED);
        let drawn: Vec<_> = (0..4).map(|_| random.next_index((1 << 30) + 1)).collect();
        assert_eq!(drawn, [719_977_525, 63_954_995, 552_873_169, 1_046_619_502]);
        assert_eq!(random.next_index((1 << 31) - 1), 1_033_571_118);
        assert_eq!(random.next_index(1 << 20), 730_355);
    }
}
