//! Rows that cannot be read: reported once, although they are read again and again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use shardmill_core::text::{one_line, shortened};

/// Rows that are remembered. Beyond these, a row is reported each time it is read; a fleet has some
/// hundred rows.
const ROWS_MAX: usize = 1_000;
/// The length of a report: a value may have 400 KB (DynamoDB limit).
const CHARS_MAX: usize = 200;

/// The last report about each row of a table; shared by all that read it.
#[derive(Debug, Clone, Default)]
pub(super) struct Unreadable {
    // Locked for a look-up, never across an await.
    reported: Arc<Mutex<BTreeMap<String, String>>>,
}

impl Unreadable {
    /// The report to make about row `id`, which was just read, with `problem` or without. `None` if
    /// it was made before and the row has not been readable since.
    pub(super) fn news(&self, id: &str, problem: Option<String>) -> Option<String> {
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(problem) = problem else {
            reported.remove(id);
            return None;
        };
        // Any program may have written it.
        let problem = one_line(&shortened(&problem, CHARS_MAX)).into_owned();
        if reported.get(id) == Some(&problem) {
            return None;
        }
        if reported.len() < ROWS_MAX || reported.contains_key(id) {
            reported.insert(id.to_owned(), problem.clone());
        }
        Some(problem)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_cannot_be_read_is_reported_once_and_again_after_it_could_be_read() {
        let rows = Unreadable::default();
        let bad = || Some("version is missing".to_owned());
        assert_eq!(rows.news("bulletin", None), None);
        assert_eq!(rows.news("bulletin", bad()), bad());
        assert_eq!(rows.clone().news("bulletin", bad()), None);
        assert_eq!(rows.news("leader", bad()), bad(), "another row");
        let other = Some("version is not a number".to_owned());
        assert_eq!(rows.news("bulletin", other.clone()), other);
        assert_eq!(rows.news("bulletin", None), None);
        assert_eq!(rows.news("bulletin", bad()), bad());
    }

    #[test]
    fn a_table_full_of_such_rows_fills_no_memory() {
        let rows = Unreadable::default();
        for n in 0..3 * ROWS_MAX {
            rows.news(&format!("worker#{n}"), Some("beat is missing".to_owned()));
        }
        assert_eq!(rows.reported.lock().unwrap().len(), ROWS_MAX);
        let long = rows.news("start", Some("9".repeat(400_000)));
        assert_eq!(long.map(|told| told.chars().count()), Some(CHARS_MAX));
    }
}
