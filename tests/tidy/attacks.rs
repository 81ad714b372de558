//! `docs/attacks.md` names the tests that do each attack, and the file that each is in: all of them
//! have to be there.

use std::fs;

use super::{root, rows_of};

/// What is wrong with the tests of a row: files, and after each the tests, or the entries of the
/// corpus, that are in it.
pub(super) fn wrong_in(tests: &str) -> Vec<String> {
    let (mut file, mut code) = ("", String::new());
    let (mut wrong, mut named) = (Vec::new(), 0);
    for name in tests.split('`').skip(1).step_by(2) {
        if name.contains('/') {
            file = name;
            // Of a file that is not there, no test is found.
            code = fs::read_to_string(root().join(file)).unwrap_or_default();
            continue;
        }
        named += 1;
        if !code.contains(&declared(name)) {
            wrong.push(format!("{name} is not in {file:?}"));
        }
    }
    if named == 0 {
        wrong.push("there is no test".to_owned());
    }
    wrong
}

/// How a test is declared, or an entry of the corpus. Those of guests get their first word where
/// they are made.
fn declared(name: &str) -> String {
    if name.contains('_') {
        format!("fn {name}(")
    } else {
        format!("\"{}\"", name.strip_prefix("evil-").unwrap_or(name))
    }
}

#[test]
fn every_attack_has_an_answer_and_tests_that_are_where_it_says() {
    let page = fs::read_to_string(root().join("docs/attacks.md")).unwrap();
    let (attacks, _) = page.split_once("\n## New since\n").unwrap();
    let rows = rows_of(attacks, "Attack");
    assert!(rows.len() > 80, "{} rows", rows.len());
    let mut wrong = Vec::new();
    for cells in rows {
        let [attack, answer, tests] = cells[..] else {
            panic!("{cells:?} has not three cells")
        };
        assert!(
            !attack.is_empty() && !answer.is_empty(),
            "{cells:?} does not say what the host does"
        );
        let told = wrong_in(tests);
        wrong.extend(told.iter().map(|what| format!("{attack}: {what}")));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn each_attack_of_the_review_has_its_outcome_and_tests_once() {
    let page = fs::read_to_string(root().join("docs/attacks.md")).unwrap();
    let (_, numbered) = page
        .split_once("\n## The review's attacks, by number\n")
        .unwrap();
    let (numbered, _) = numbered.split_once("\n## ").unwrap();
    let (mut next, mut wrong) = (1, Vec::new());
    for cells in rows_of(numbered, "Number") {
        let [numbers, done, then, now, tests] = cells[..] else {
            panic!("{cells:?} has not five cells")
        };
        let (first, last) = numbers.split_once('-').unwrap_or((numbers, numbers));
        assert_eq!(first, next.to_string(), "the numbers have a gap");
        next = last.parse::<u32>().unwrap() + 1;
        assert!(
            [done, then, now].iter().all(|cell| !cell.is_empty()),
            "{cells:?} does not say what the host does"
        );
        let told = wrong_in(tests);
        wrong.extend(told.iter().map(|what| format!("{numbers}: {what}")));
    }
    assert_eq!(next, 129);
    assert!(wrong.is_empty(), "{wrong:#?}");
}
