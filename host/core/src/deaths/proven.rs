use std::collections::VecDeque;

use crate::plugin::PluginDigest;

/// Versions that are remembered as proven; the oldest are forgotten first. 512: five versions for
/// each of the plugins that a host may have. A forgotten version is marked again, which costs a
/// file for a minute.
pub const PROVEN_MAX: usize = 512;

/// Versions that worked well on this build of the host; on another build they may fail.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Proven {
    digests: VecDeque<PluginDigest>,
}

impl Proven {
    /// Reads what [`Self::to_text`] wrote. Lines of other builds, and lines that it cannot read,
    /// are skipped.
    pub fn of_text(text: &str, build: &str) -> Self {
        let mut proven = Self::default();
        for line in text.lines() {
            if let Some((digest, by)) = line.split_once(' ')
                && by == build
                && let Some(digest) = PluginDigest::from_hex(digest)
            {
                proven.add(digest);
            }
        }
        proven
    }

    /// One line for each version, with the build that it worked on.
    pub fn to_text(&self, build: &str) -> String {
        let lines: Vec<String> = self
            .digests
            .iter()
            .map(|digest| format!("{} {build}", digest.as_str()))
            .collect();
        lines.join("\n")
    }

    /// Adds a version, as the newest.
    pub fn add(&mut self, digest: PluginDigest) {
        self.digests.retain(|known| *known != digest);
        self.digests.push_back(digest);
        if self.digests.len() > PROVEN_MAX {
            self.digests.pop_front();
        }
    }

    /// Whether a version is remembered as proven.
    pub fn contains(&self, digest: &PluginDigest) -> bool {
        self.digests.contains(digest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(version: usize) -> PluginDigest {
        PluginDigest::from_hex(&format!("{version:064x}")).unwrap()
    }

    #[test]
    fn the_newest_proven_versions_of_a_build_are_remembered_and_a_bounded_number_of_them() {
        let mut proven = Proven::default();
        for version in 0..PROVEN_MAX {
            proven.add(digest(version));
        }
        proven.add(digest(0));
        proven.add(digest(PROVEN_MAX));
        assert!(proven.contains(&digest(0)) && proven.contains(&digest(PROVEN_MAX)));
        assert!(
            !proven.contains(&digest(1)),
            "the oldest, since the first was proven anew"
        );
        assert_eq!(Proven::of_text(&proven.to_text("1.0"), "1.0"), proven);
        assert_eq!(
            Proven::of_text(&proven.to_text("1.0"), "1.1"),
            Proven::default()
        );
    }

    #[test]
    fn what_is_no_line_of_ours_is_passed_over() {
        let text = format!(
            "\u{0}\n{} 1.0\nxyz 1.0\n{}\n{}1.0",
            digest(3).as_str(),
            digest(4).as_str(),
            "0".repeat(70)
        );
        let proven = Proven::of_text(&text, "1.0");
        assert!(proven.contains(&digest(3)) && !proven.contains(&digest(4)));
    }
}
