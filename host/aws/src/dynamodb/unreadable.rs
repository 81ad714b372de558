//! Rows that cannot be read: told once, although they are read again and again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use shardmill_core::text::one_line;

/// Rows that are remembered. Who fills a table with more has them told each time once the first are
/// told; a fleet has some hundred rows.
const ROWS_MAX: usize = 1_000;
/// What is said of one: a value may have 400 KB (DynamoDB limit).
const CHARS_MAX: usize = 200;

/// What was told of which row of a table; shared by all that read it.
#[derive(Debug, Clone, Default)]
pub(super) struct Unreadable {
    // Locked for a look-up, never across an await.
    told: Arc<Mutex<BTreeMap<String, String>>>,
}

impl Unreadable {
    /// What is to be told of row `id`, which was just read, with `problem` or without: nothing
    /// that was told before, until the row could be read meanwhile.
    pub(super) fn news(&self, id: &str, problem: Option<String>) -> Option<String> {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(problem) = problem else {
            told.remove(id);
            return None;
        };
        // Anybody may have written it.
        let short: String = problem.chars().take(CHARS_MAX).collect();
        let problem = one_line(&short).into_owned();
        if told.get(id) == Some(&problem) {
            return None;
        }
        if told.len() < ROWS_MAX || told.contains_key(id) {
            told.insert(id.to_owned(), problem.clone());
        }
        Some(problem)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_cannot_be_read_is_told_once_and_again_after_it_could_be_read() {
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
        assert_eq!(rows.told.lock().unwrap().len(), ROWS_MAX);
        let long = rows.news("start", Some("9".repeat(400_000)));
        assert_eq!(long.map(|told| told.len()), Some(CHARS_MAX));
    }
}
