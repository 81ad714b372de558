//! Documentation of public items: it must say what the name does not.

use std::fs;

/// Words of the shortest documentation that can do so: fewer only repeat the name.
const WORDS_MIN: usize = 4;

/// A public item, and how many words its documentation has.
#[derive(Debug, PartialEq, Eq)]
struct Documented {
    /// Counted from 1.
    line: usize,
    words: usize,
}

#[test]
fn the_documentation_of_a_public_item_says_more_than_its_name() {
    let mut short = Vec::new();
    for path in super::files_with("rs") {
        let own = super::own_path(&path);
        let is_ours = own.starts_with("host/") || own.starts_with("wit/");
        if !is_ours || super::is_of_tests(&path) {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let found = public_items(&text);
        let found = found.iter().filter(|item| item.words < WORDS_MIN);
        short.extend(found.map(|item| format!("{own}:{}", item.line)));
    }
    assert!(
        short.is_empty(),
        "say what the name does not (meaning, unit, bounds, what `None` means): {short:#?}"
    );
}

#[test]
fn items_with_short_documentation_are_found() {
    let text = "
/// Where.
#[serde(
    rename = \"seconds\",
)]
pub place: String,
/// The name of the table in DynamoDB.
pub name: String,
/// Private.
count: u32,
/// What an operator asks of a host.
pub trait Listener {
    /// Hears.
    fn hear(&self);
}
#[cfg(test)]
/// Not looked at.
pub struct Fake;
";
    let expected = [(6, 1), (8, 7), (12, 7), (14, 1)];
    let expected = expected.map(|(line, words)| Documented { line, words });
    assert_eq!(public_items(text), expected);
}

/// Public items of a file before its tests: those that are marked so, and what a public trait
/// declares. Cases of an enum are exempt: there, the name often says it all.
fn public_items(text: &str) -> Vec<Documented> {
    let mut found = Vec::new();
    let mut words = 0;
    let mut is_in_attribute = false;
    let mut is_in_trait = false;
    for (at, line) in text.lines().enumerate() {
        let code = line.trim();
        if code == "#[cfg(test)]" {
            break;
        }
        if let Some(docs) = code.strip_prefix("///") {
            words += docs.split_whitespace().count();
            continue;
        }
        if is_in_attribute || code.starts_with("#[") {
            is_in_attribute = !code.ends_with(']');
            continue;
        }
        let is_declared = is_in_trait && (code.starts_with("fn ") || code.starts_with("async fn "));
        let is_public = code.starts_with("pub ") && !code.starts_with("pub use ");
        // What has no documentation at all is for the compiler to refuse.
        if words > 0 && (is_public || is_declared) {
            let line = at + 1;
            found.push(Documented { line, words });
        }
        words = 0;
        is_in_trait = code.starts_with("pub trait ") || (is_in_trait && line != "}");
    }
    found
}
