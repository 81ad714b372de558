//! `docs/findings.md` names the tests, or the decision, that keep each finding of early reviews
//! fixed: all of them have to be there.

use std::collections::BTreeSet;
use std::fs;

use super::attacks::wrong_in;
use super::{root, rows_of};

/// How each review numbered its findings, and up to where.
const REVIEWS: [(&str, u32); 3] = [("security ", 13), ("U", 12), ("S", 9)];
/// What a row says as long as nothing keeps its finding fixed.
const NO_TEST: &str = "no test yet";

/// The finding that a row is of: its parts have a letter, or a number after a dot.
fn finding_of(number: &str) -> &str {
    let (finding, _) = number.split_once('.').unwrap_or((number, ""));
    finding.trim_end_matches(|letter: char| letter.is_ascii_lowercase())
}

/// What a text links to.
fn links_in(text: &str) -> Vec<&str> {
    let links = text.split("](").skip(1);
    links
        .filter_map(|rest| rest.split_once(')'))
        .map(|(link, _)| link)
        .collect()
}

/// What is wrong with the tests and decisions of a row.
fn wrong_with(kept_by: &str) -> Vec<String> {
    if kept_by.contains(NO_TEST) {
        return vec![NO_TEST.to_owned()];
    }
    let decisions = links_in(kept_by);
    let mut wrong = Vec::new();
    if decisions.is_empty() || kept_by.contains('`') {
        wrong.extend(wrong_in(kept_by));
    }
    let is_there = |decision: &&&str| {
        decision.starts_with("decisions/") && root().join("docs").join(decision).is_file()
    };
    let gone = decisions.iter().filter(|decision| !is_there(decision));
    wrong.extend(gone.map(|decision| format!("{decision} is no decision")));
    wrong
}

#[test]
fn every_finding_has_tests_or_a_decision_that_are_where_it_says() {
    let page = fs::read_to_string(root().join("docs/findings.md")).unwrap();
    let mut wrong = Vec::new();
    for cells in rows_of(&page, "No.") {
        let [number, found, kept_by] = cells[..] else {
            panic!("{cells:?} has not three cells")
        };
        assert!(!found.is_empty(), "{number} does not say what was found");
        let what = wrong_with(kept_by).into_iter();
        wrong.extend(what.map(|what| format!("{number}: {what}")));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn no_finding_of_a_review_is_missing_and_none_has_two_rows_of_one_number() {
    let page = fs::read_to_string(root().join("docs/findings.md")).unwrap();
    let rows = rows_of(&page, "No.");
    let numbers: BTreeSet<_> = rows.iter().map(|cells| cells[0]).collect();
    assert_eq!(numbers.len(), rows.len(), "a number comes twice");
    let found: BTreeSet<_> = numbers
        .iter()
        .map(|number| finding_of(number).to_owned())
        .collect();
    let reviewed: BTreeSet<_> = REVIEWS
        .iter()
        .flat_map(|(review, last)| (1..=*last).map(move |number| format!("{review}{number}")))
        .collect();
    assert_eq!(found, reviewed);
}

#[test]
fn a_row_without_a_test_or_with_one_that_is_not_there_is_found() {
    for bad in [
        "",
        NO_TEST,
        "`tests/tidy/findings.rs` `no_such_test`",
        "[decision 0](decisions/0000-none.md)",
        "[a page](attacks.md)",
    ] {
        assert_eq!(wrong_with(bad).len(), 1, "{bad}");
    }
    let decided = "[decision 13](decisions/0013-grants.md)";
    assert_eq!(wrong_with(decided), Vec::<String>::new());
    assert_eq!(finding_of("security 13h.1"), "security 13");
    assert_eq!(finding_of("U2.2a"), "U2");
    assert_eq!(finding_of("S4"), "S4");
}
