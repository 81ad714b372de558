//! What a file of Rust names, as far as the rules on modules need to know: read word by word,
//! without a grammar.

use std::collections::BTreeSet;

/// What one file names.
#[derive(Debug, Default)]
pub(super) struct Source {
    pub(super) uses: Vec<Use>,
    /// Paths of two parts or more outside of `use`.
    pub(super) paths: Vec<Vec<String>>,
    /// Types that it defines.
    pub(super) types: BTreeSet<String>,
    /// Types that it has an `impl` of.
    pub(super) implements: BTreeSet<String>,
    /// Modules that it declares for tests only.
    pub(super) tests: Vec<String>,
}

/// One name that is brought in.
#[derive(Debug)]
pub(super) struct Use {
    pub(super) path: Vec<String>,
    /// The name that it has here.
    pub(super) called: String,
    /// Whether it is passed on.
    pub(super) is_public: bool,
}

/// Reads a file, all of it but comments, strings and tests.
pub(super) fn parse(text: &str) -> Source {
    let mut source = Source::default();
    let words = without_tests(&words(text), &mut source.tests);
    let mut at = 0;
    while at < words.len() {
        match words[at].as_str() {
            // Not the bounds of a return type, `use<'a>`.
            "use" if words.get(at + 1).is_some_and(|next| next != "<") => {
                at = read_use(&words, at, &mut source.uses);
            }
            "struct" | "enum" | "union" | "trait" => {
                source.types.extend(words.get(at + 1).cloned());
                at += 1;
            }
            // Not in the place of a type, `impl Iterator`.
            "impl" if at == 0 || ["}", ";", "]", "unsafe"].contains(&words[at - 1].as_str()) => {
                source.implements.extend(implementing(&words[at + 1..]));
                at += 1;
            }
            _ => at = read_path(&words, at, &mut source.paths),
        }
    }
    source
}

/// Habits that hide what a function does: a filter in the place of an `if`, and several values in
/// one parameter. Comments, strings and tests are left out.
pub(super) fn habits(text: &str) -> Vec<String> {
    let words = without_tests(&words(text), &mut Vec::new());
    let has_filter = words
        .windows(5)
        .any(|next| next == ["filter", "(", "|", "_", "|"]);
    let filter = has_filter.then(|| "`.filter(|_| ..)`: write an `if`".to_owned());
    let functions = words.iter().enumerate().filter(|(_, word)| *word == "fn");
    let with_tuples = functions.filter(|(at, _)| has_tuple_parameter(&words[*at..]));
    let named = with_tuples.filter_map(|(at, _)| words.get(at + 1));
    filter
        .into_iter()
        .chain(named.map(|name| format!("`{name}` takes a tuple apart: give it two parameters")))
        .collect()
}

/// Of a function, from its `fn`: whether a parameter is a list of names in parentheses.
fn has_tuple_parameter(function: &[String]) -> bool {
    let mut depth = 0_usize;
    let mut before = "";
    for (at, word) in function.iter().enumerate() {
        match word.as_str() {
            "{" | ";" if depth == 0 => return false,
            "(" => {
                let is_first = depth == 1 && ["(", ","].contains(&before);
                if is_first && is_pattern(&function[at..]) {
                    return true;
                }
                depth += 1;
            }
            ")" if depth == 1 => return false,
            ")" => depth = depth.saturating_sub(1),
            _ => {}
        }
        before = word;
    }
    false
}

/// Whether the parenthesis that begins here has a type behind it, so that it is no type itself.
fn is_pattern(words: &[String]) -> bool {
    let mut depth = 0_usize;
    let end = words.iter().position(|word| {
        match word.as_str() {
            "(" => depth += 1,
            ")" => depth -= 1,
            _ => {}
        }
        depth == 0
    });
    end.and_then(|end| words.get(end + 1))
        .is_some_and(|next| next == ":")
}

/// Names, `::`, and other signs one by one. Comments, strings, characters and lifetimes are left
/// out.
fn words(text: &str) -> Vec<String> {
    let signs: Vec<char> = text.chars().collect();
    let starts = |at: usize, start: &str| {
        start
            .chars()
            .enumerate()
            .all(|(i, c)| signs.get(at + i) == Some(&c))
    };
    let mut words = Vec::new();
    let mut at = 0;
    while at < signs.len() {
        if starts(at, "//") {
            at += signs[at..].iter().take_while(|sign| **sign != '\n').count();
        } else if signs[at] == '"' {
            at = end_of_string(&signs, at);
        } else if signs[at] == '\'' {
            at = end_of_quote(&signs, at);
        } else if is_of_name(signs[at]) {
            let name: String = signs[at..]
                .iter()
                .take_while(|sign| is_of_name(**sign))
                .collect();
            at += name.len();
            let hashes = signs[at..].iter().take_while(|sign| **sign == '#').count();
            if ["r", "br"].contains(&name.as_str()) && signs.get(at + hashes) == Some(&'"') {
                at = end_of_raw_string(&signs, at + hashes + 1, hashes);
            } else {
                words.push(name);
            }
        } else if starts(at, "::") {
            words.push("::".to_owned());
            at += 2;
        } else {
            if !signs[at].is_whitespace() {
                words.push(signs[at].to_string());
            }
            at += 1;
        }
    }
    words
}

fn is_of_name(sign: char) -> bool {
    sign == '_' || sign.is_ascii_alphanumeric()
}

fn end_of_string(signs: &[char], start: usize) -> usize {
    let mut at = start + 1;
    while at < signs.len() && signs[at] != '"' {
        at += if signs[at] == '\\' { 2 } else { 1 };
    }
    at + 1
}

fn end_of_raw_string(signs: &[char], start: usize, hashes: usize) -> usize {
    let is_end =
        |at: usize| signs[at] == '"' && (1..=hashes).all(|i| signs.get(at + i) == Some(&'#'));
    (start..signs.len())
        .find(|at| is_end(*at))
        .map_or(signs.len(), |at| at + 1 + hashes)
}

/// Of a character, or of a lifetime, which has no end.
fn end_of_quote(signs: &[char], start: usize) -> usize {
    if signs.get(start + 1) == Some(&'\\') {
        let end = (start + 3..signs.len()).find(|at| signs[*at] == '\'');
        return end.map_or(signs.len(), |at| at + 1);
    }
    if signs.get(start + 2) == Some(&'\'') {
        start + 3
    } else {
        start + 1
    }
}

/// Leaves out each item after `#[cfg(test)]`; modules in other files that are declared so come into
/// `tests`.
fn without_tests(words: &[String], tests: &mut Vec<String>) -> Vec<String> {
    const MARK: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let mut kept = Vec::new();
    let mut at = 0;
    while at < words.len() {
        let is_marked = words[at..].len() > MARK.len()
            && MARK
                .iter()
                .zip(&words[at..])
                .all(|(mark, word)| mark == word);
        if !is_marked {
            kept.push(words[at].clone());
            at += 1;
            continue;
        }
        let start = at + MARK.len();
        at = end_of_item(words, start);
        if let Some(declared) = words[start..at].iter().position(|word| word == "mod")
            && words[at - 1] == ";"
        {
            tests.extend(words.get(start + declared + 1).cloned());
        }
    }
    kept
}

/// Behind the `;` or the `}` that ends the item.
fn end_of_item(words: &[String], start: usize) -> usize {
    let is_use = words[start..].iter().take(6).any(|word| word == "use");
    let mut depth = 0_usize;
    for (at, word) in words.iter().enumerate().skip(start) {
        match word.as_str() {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => {
                depth = depth.saturating_sub(1);
                if word == "}" && depth == 0 && !is_use {
                    return at + 1;
                }
            }
            ";" if depth == 0 => return at + 1,
            _ => {}
        }
    }
    words.len()
}

/// Reads `use` and all that it names; returns where it ends.
fn read_use(words: &[String], start: usize, uses: &mut Vec<Use>) -> usize {
    let end = words[start..]
        .iter()
        .position(|word| word == ";")
        .map_or(words.len(), |length| start + length);
    let is_public = start > 0 && (words[start - 1] == "pub" || words[start - 1] == ")");
    read_tree(&words[start + 1..end], &[], is_public, uses);
    end
}

fn read_tree(words: &[String], before: &[String], is_public: bool, uses: &mut Vec<Use>) {
    for branch in branches(words) {
        if let Some(brace) = branch.iter().position(|word| word == "{") {
            let names = branch[..brace].iter().filter(|word| *word != "::").cloned();
            let before: Vec<_> = before.iter().cloned().chain(names).collect();
            read_tree(
                &branch[brace + 1..branch.len() - 1],
                &before,
                is_public,
                uses,
            );
            continue;
        }
        let (names, alias) = match branch.iter().position(|word| word == "as") {
            Some(at) => (&branch[..at], branch.get(at + 1)),
            None => (branch, None),
        };
        let names = names.iter().filter(|word| *word != "::").cloned();
        let mut path: Vec<_> = before.iter().cloned().chain(names).collect();
        if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
            path.pop();
        }
        if let Some(called) = alias.or(path.last()).cloned() {
            uses.push(Use {
                path,
                called,
                is_public,
            });
        }
    }
}

/// What stands between the commas outside of braces.
fn branches(words: &[String]) -> Vec<&[String]> {
    let (mut depth, mut start) = (0_usize, 0);
    let mut found = Vec::new();
    for (at, word) in words.iter().enumerate() {
        match word.as_str() {
            "{" => depth += 1,
            "}" => depth = depth.saturating_sub(1),
            "," if depth == 0 => {
                found.push(&words[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    found.push(&words[start..]);
    found.retain(|branch| !branch.is_empty());
    found
}

/// Reads a path, or goes on by one word if there is none; returns where it ends.
fn read_path(words: &[String], start: usize, paths: &mut Vec<Vec<String>>) -> usize {
    let is_name = |at: usize| {
        words
            .get(at)
            .is_some_and(|word| word.chars().all(is_of_name))
    };
    let is_within = start > 0 && words[start - 1] == "::";
    if !is_name(start) || is_within {
        return start + 1;
    }
    let mut path = vec![words[start].clone()];
    let mut at = start + 1;
    while words.get(at).is_some_and(|word| word == "::") && is_name(at + 1) {
        path.push(words[at + 1].clone());
        at += 2;
    }
    if path.len() > 1 {
        paths.push(path);
    }
    at
}

/// The type of an `impl`, by the last part of its name.
fn implementing(header: &[String]) -> Option<String> {
    let end = header
        .iter()
        .position(|word| word == "{" || word == "where")?;
    let mut outside = Vec::new();
    let mut depth = 0_usize;
    for word in &header[..end] {
        match word.as_str() {
            "<" => depth += 1,
            ">" => depth = depth.saturating_sub(1),
            _ if depth == 0 => outside.push(word),
            _ => {}
        }
    }
    let target = outside
        .iter()
        .position(|word| *word == "for")
        .map_or(0, |at| at + 1);
    outside[target..]
        .iter()
        .rfind(|word| word.chars().all(is_of_name))
        .map(|word| (*word).clone())
}
