//! Each warning and error of the host's log has a code, and `docs/log-messages.md` has each code.

use std::collections::BTreeSet;
use std::fs;

use super::{files_with, own_path, root, rows_of};

/// What is between the parentheses that begin at the start of `text`, strings and all.
fn within_parentheses(text: &str) -> &str {
    let mut depth = 0;
    let mut is_in_string = false;
    let mut is_escaped = false;
    for (at, sign) in text.char_indices() {
        match sign {
            _ if is_escaped => is_escaped = false,
            '\\' if is_in_string => is_escaped = true,
            '"' => is_in_string = !is_in_string,
            '(' if !is_in_string => depth += 1,
            ')' if !is_in_string => {
                depth -= 1;
                if depth == 0 {
                    return &text[..=at];
                }
            }
            _ => {}
        }
    }
    panic!("no end of {text}")
}

/// The arguments of each line of a level that people act on.
fn lines_of(code: &str) -> Vec<&str> {
    let mut lines = Vec::new();
    for level in ["warn!(", "error!("] {
        for (at, _) in code.match_indices(level) {
            lines.push(within_parentheses(&code[at + level.len() - 1..]));
        }
    }
    lines
}

/// The value of the field `code`, if it is written as it is.
fn code_in(line: &str) -> Option<&str> {
    let (_, from) = line.split_once("code = \"")?;
    from.split_once('"').map(|(code, _)| code)
}

#[test]
fn every_warning_and_error_has_a_code_and_every_code_is_explained() {
    let mut in_code = BTreeSet::new();
    let mut without = Vec::new();
    for path in files_with("rs") {
        let place = own_path(&path);
        let is_test = place.contains("/tests/") || place.ends_with("/tests.rs");
        if !place.starts_with("host/") || is_test {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        for line in lines_of(code) {
            match code_in(line) {
                Some(code) => {
                    in_code.insert(code.to_owned());
                }
                None => without.push(format!("{place}: {line}")),
            }
        }
    }
    assert!(without.is_empty(), "without a code: {without:#?}");
    let page = fs::read_to_string(root().join("docs/log-messages.md")).unwrap();
    let rows = rows_of(&page, "Code");
    let explained: Vec<_> = rows
        .iter()
        .map(|cells| cells[0].trim_matches('`').to_owned())
        .collect();
    let explained_once: BTreeSet<_> = explained.iter().cloned().collect();
    assert_eq!(explained.len(), explained_once.len(), "explained twice");
    let unexplained: Vec<_> = in_code.difference(&explained_once).collect();
    let gone: Vec<_> = explained_once.difference(&in_code).collect();
    assert!(
        unexplained.is_empty() && gone.is_empty(),
        "not explained: {unexplained:?}, explained and gone: {gone:?}"
    );
}
