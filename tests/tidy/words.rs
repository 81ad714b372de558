//! Which words names may use: the field's, and each with one meaning. `docs/glossary.md` has them.

use std::fs;
use std::path::Path;

/// Names that say nothing, or that mean something else in this field.
const BANNED_WORDS: [&str; 10] = [
    "manager",
    "helper",
    "utils",
    "proxy",
    "assigned_to",
    "depleted",
    "consumer_group",
    "uppificator",
    "handler2",
    "standing",
];
/// Verbs for functions that do not say what happens to the text: is it logged, shown, returned?
const VAGUE_VERBS: [&str; 3] = ["tell", "tells", "told"];
/// Words with one meaning, and where types and modules of the host may have them in their names.
const RESERVED_WORDS: [Reserved; 3] = [
    Reserved {
        word: "grant",
        meaning: "the section of a manifest that asks for permissions; a lease is held",
        only_in: &["host/config/src/"],
    },
    Reserved {
        word: "trial",
        meaning: "a new version's way to `active`; `shardmill test` is a dry run",
        only_in: &["host/core/src/rollout"],
    },
    Reserved {
        word: "place",
        meaning: "where reading is, or may begin",
        only_in: &[
            "host/core/src/backup",
            "host/core/src/control",
            "host/core/src/shared_read",
            "host/app/src/operate/control",
            "host/worker/src/pipeline/fetch",
        ],
    },
];

/// A word with one meaning.
struct Reserved {
    word: &'static str,
    meaning: &'static str,
    /// Beginnings of paths.
    only_in: &'static [&'static str],
}

impl Reserved {
    fn is_misused(&self, name: &str, path: &str) -> bool {
        let is_here = self.only_in.iter().any(|folder| path.starts_with(folder));
        !is_here && has_part(name, self.word)
    }
}

#[test]
fn names_use_the_fields_words() {
    let mut wrong = Vec::new();
    for path in super::files_with("rs")
        .into_iter()
        .filter(|path| !path.ends_with("tests/tidy/words.rs"))
    {
        let text = fs::read_to_string(&path).unwrap();
        let keywords = ["struct", "enum", "trait", "mod", "fn", "type"];
        for name in names(&path, &text, &keywords) {
            let name = name.to_lowercase();
            wrong.extend(
                BANNED_WORDS
                    .iter()
                    .filter(|banned| name.contains(*banned))
                    .map(|banned| (super::own_path(&path), *banned)),
            );
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn a_word_with_one_meaning_names_nothing_else() {
    let mut wrong = Vec::new();
    for path in super::files_with("rs") {
        let own = super::own_path(&path);
        if !own.starts_with("host/") || super::is_of_tests(&path) {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        for name in names(&path, &text, &["struct", "enum", "trait", "mod", "type"]) {
            let misused = RESERVED_WORDS
                .iter()
                .filter(|reserved| reserved.is_misused(&name, &own));
            wrong.extend(misused.map(|Reserved { word, meaning, .. }| {
                format!("{own}: {name}: choose another name, {word:?} means: {meaning}")
            }));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn functions_are_not_named_by_a_vague_verb() {
    let mut wrong = Vec::new();
    for path in super::files_with("rs") {
        let text = fs::read_to_string(&path).unwrap();
        let lines = text.lines().filter(|line| is_vague(line));
        wrong.extend(lines.map(|line| (super::own_path(&path), line.trim().to_owned())));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_reserved_word_is_found_as_a_part_of_a_name_and_not_within_another_word() {
    assert!(has_part("AwsPlace", "place"));
    assert!(has_part("place_of", "place"));
    assert!(has_part("GrantsFile", "grant"));
    assert!(!has_part("Replace", "place"));
    assert!(!has_part("Placed", "place"));
}

/// The name of a file, and what it declares by these keywords.
fn names(path: &Path, text: &str, keywords: &[&str]) -> Vec<String> {
    let file = path.file_stem().unwrap().to_string_lossy().into_owned();
    let declared = text.lines().filter_map(|line| declared(line, keywords));
    declared.map(str::to_owned).chain([file]).collect()
}

fn declared<'a>(line: &'a str, keywords: &[&str]) -> Option<&'a str> {
    let mut words = line.split_whitespace();
    words.find(|word| keywords.contains(word))?;
    let is_of_name = |c: char| c.is_alphanumeric() || c == '_';
    words.next()?.split(|c| !is_of_name(c)).next()
}

/// Whether one of the words that a name consists of is this one, or its plural.
fn has_part(name: &str, word: &str) -> bool {
    let mut parts = vec![String::new()];
    for c in name.chars() {
        if c.is_uppercase() || c == '_' {
            parts.push(String::new());
        }
        if let Some(part) = parts.last_mut() {
            part.extend(c.to_lowercase().filter(|c| *c != '_'));
        }
    }
    parts
        .iter()
        .any(|part| part == word || part.strip_suffix('s') == Some(word))
}

fn is_vague(line: &str) -> bool {
    let name = line.split("fn ").nth(1).unwrap_or_default();
    let verb = name.split(['_', '(', '<']).next().unwrap_or_default();
    line.trim_start().starts_with(['f', 'p', 'a']) && VAGUE_VERBS.contains(&verb)
}
