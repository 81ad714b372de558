/// From which part of its limit on a state counts as nearly full: early enough to act, since a
/// state over its limit stops its shard.
const NEARLY_FULL_PERCENT: u8 = 80;

/// How much of its limit a plugin's state takes, in whole percent, rounded down; at most 255.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct StateFill(pub u8);

impl StateFill {
    /// That of a state of so many bytes. A limit of 0 is always full.
    pub fn of(bytes: usize, bytes_max: usize) -> Self {
        let percent = bytes.saturating_mul(100).checked_div(bytes_max);
        Self(percent.map_or(100, |percent| u8::try_from(percent).unwrap_or(u8::MAX)))
    }

    /// Whether somebody should see to it.
    pub fn is_nearly_full(self) -> bool {
        self.0 >= NEARLY_FULL_PERCENT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_nearly_full_from_four_fifths_of_its_limit_on() {
        for (bytes, bytes_max, percent, is_nearly_full) in [
            (0, 1_000, 0, false),
            (799, 1_000, 79, false),
            (800, 1_000, 80, true),
            (1_000, 1_000, 100, true),
            (usize::MAX, 1, 255, true),
            (0, 0, 100, true),
        ] {
            let fill = StateFill::of(bytes, bytes_max);
            assert_eq!(fill, StateFill(percent), "{bytes} of {bytes_max}");
            assert_eq!(fill.is_nearly_full(), is_nearly_full, "{bytes}");
        }
    }
}
