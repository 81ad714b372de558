//! Who knows of a version that a host died of, and whether somebody has released it.

use std::collections::BTreeSet;

/// Looks in a row that must miss every row before the version counts as released: one look may be
/// stale.
const MISSING_LOOKS: u32 = 3;

/// The rows that say of one version that it kills hosts, in the tables of all applications that run
/// it here.
#[derive(Debug, Clone, Default)]
pub struct Reports {
    /// Applications whose table got a row from this host, in this life or an earlier one.
    published: BTreeSet<String>,
    missing: u32,
}

/// What a look at the table of one application showed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Row {
    /// It is there, or was written just now.
    There,
    /// It is not there.
    Missing,
    /// The table could not be read, or the row could not be written.
    Unknown,
}

impl Reports {
    /// `published`: the applications whose table got a row from an earlier life of this host.
    pub fn new(published: BTreeSet<String>) -> Self {
        Self {
            published,
            missing: 0,
        }
    }

    /// Whether the row of this application was written once: only then it says something that it is
    /// missing.
    pub fn is_published(&self, application: &str) -> bool {
        self.published.contains(application)
    }

    /// The row of this application was written.
    pub fn publish(&mut self, application: &str) {
        self.published.insert(application.to_owned());
    }

    /// Takes in a look at all tables. Whether the version is released: by whoever removed the last
    /// row that said that it is bad.
    pub fn is_released(&mut self, rows: &[Row]) -> bool {
        if rows.contains(&Row::There) {
            self.missing = 0;
        } else if !rows.is_empty() && !rows.contains(&Row::Unknown) {
            self.missing += 1;
        }
        self.missing >= MISSING_LOOKS
    }
}

#[cfg(test)]
mod tests {
    use super::Row::{Missing, There, Unknown};
    use super::*;

    #[test]
    fn a_version_is_released_once_three_looks_in_a_row_find_it_in_no_table() {
        let mut reports = Reports::default();
        let looks: [&[Row]; 9] = [
            &[Missing, Missing],
            &[Missing, Missing],
            &[Missing, There],
            &[Missing, Missing],
            &[Unknown, There],
            &[Missing, Missing],
            &[Missing, Unknown],
            &[Missing, Missing],
            &[],
        ];
        for rows in looks {
            assert!(!reports.is_released(rows), "{rows:?}");
        }
        assert!(reports.is_released(&[Missing, Missing]));
    }

    #[test]
    fn a_row_that_was_never_written_is_not_one_that_somebody_removed() {
        let mut reports = Reports::new(BTreeSet::from(["first".to_owned()]));
        assert!(reports.is_published("first") && !reports.is_published("second"));
        reports.publish("second");
        assert!(reports.is_published("second"));
    }
}
