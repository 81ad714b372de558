//! All problems of a file at once. A check ends at its first problem; here the key of that problem
//! is taken out and the rest is checked again, so that only the check itself decides what is wrong.

use serde::de::DeserializeOwned;
use serde_path_to_error::{Path, Segment};

use super::key::{last_name, split_first};
use super::problem::{Problem, TOLD_MAX};

/// Most problems to look for. Some of them follow from others and are not reported.
const LOOKED_FOR_MAX: usize = 4 * TOLD_MAX;

/// Keys of a section that are tried one by one: twice as many as any that has a `type`, and few
/// enough that a hostile manifest costs little.
const SECTION_KEYS_MAX: usize = 32;

/// What was found so far.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Gathered {
    problems: Vec<Problem>,
    /// Keys that are wrong, and were taken out, and those that were meant.
    taken: Vec<String>,
}

/// Keys that are wrong, or were meant, and that the rest was read without.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct LeftOut(Vec<String>);

// === impl Gathered ===

impl Gathered {
    /// Nothing found yet. The settings lack the keys `meant`, because of mistakes elsewhere.
    pub(super) fn without(meant: impl Iterator<Item = String>) -> Self {
        Self {
            problems: Vec::new(),
            taken: meant.collect(),
        }
    }

    /// The settings in `table`, without the keys that are unknown or have values of another type,
    /// which are taken out of it. `None` if there is a problem that goes away with no key, or if
    /// there are too many.
    pub(super) fn typed<S: DeserializeOwned>(&mut self, table: &mut toml::Table) -> Option<S> {
        loop {
            match typed(table) {
                Ok(settings) => return Some(settings),
                Err(problem) => self.leave_out(problem, table)?,
            }
        }
    }

    /// What `check` makes of `settings`, which were read from `table`, without the keys that it
    /// refuses. `None` as for [`Self::typed`].
    pub(super) fn checked<S: DeserializeOwned, T>(
        &mut self,
        mut settings: S,
        table: &mut toml::Table,
        check: impl Fn(S) -> Result<T, Problem>,
    ) -> Option<T> {
        loop {
            match check(settings) {
                Ok(checked) => return Some(checked),
                Err(problem) => self.leave_out(problem, table)?,
            }
            settings = self.typed(table)?;
        }
    }

    /// Takes the key of `problem` out of `table`. The problem counts unless it may follow from an
    /// earlier one. `None` if nothing can be taken out, or if there are enough problems.
    fn leave_out(&mut self, problem: Problem, table: &mut toml::Table) -> Option<()> {
        let taken = take_out(table, problem.key());
        // The key that was meant is missing, which is not a second mistake.
        self.taken.extend(problem.meant());
        if !self.taken.iter().any(|key| problem.may_follow_from(key)) {
            self.problems.push(problem);
        }
        if self.problems.len() > TOLD_MAX || self.taken.len() >= LOOKED_FOR_MAX {
            return None;
        }
        self.taken.push(taken?);
        Some(())
    }

    pub(super) fn into_problems(self) -> Vec<Problem> {
        self.problems
    }

    pub(super) fn problems(&self) -> &[Problem] {
        &self.problems
    }

    pub(super) fn left_out(self) -> LeftOut {
        LeftOut(self.taken)
    }
}

// === impl LeftOut ===

impl LeftOut {
    /// Whether a key of this name is among them, in any section.
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|key| last_name(key) == name)
    }

    /// Whether `problem`, of a manifest, may be there only because one of them is missing.
    pub(super) fn explains(&self, problem: &Problem) -> bool {
        self.0.iter().any(|key| problem.speaks_of(last_name(key)))
    }
}

/// Takes `key` out of `table`, or else the section that it would be in. Returns the key of what it
/// took out.
fn take_out(table: &mut toml::Table, key: &str) -> Option<String> {
    let (name, within) = split_first(key, table.keys().map(String::as_str))?;
    let name = name.to_owned();
    let section = table.get_mut(&name).and_then(toml::Value::as_table_mut);
    if let Some(taken) = section.and_then(|section| take_out(section, within)) {
        return Some(format!("{name}.{taken}"));
    }
    table.remove(&name);
    Some(name)
}

/// The table as settings, if every key is known and every value of its type.
fn typed<T: DeserializeOwned>(table: &toml::Table) -> Result<T, Problem> {
    let error = match deserialized::<T>(table) {
        Ok(settings) => return Ok(settings),
        Err(error) => error,
    };
    let mut key = key_of(error.path());
    while let Some(within) = culprit::<T>(table, &key, error.inner()) {
        key = within;
    }
    let value = value_at(table, &key);
    Err(Problem::of_type(key, value, error.inner()))
}

/// The key of a place, or the one whose value it is in.
fn key_of(path: &Path) -> String {
    let names = path.iter().map_while(|segment| match segment {
        Segment::Map { key } => Some(key.as_str()),
        _ => None,
    });
    names.collect::<Vec<_>>().join(".")
}

fn value_at<'t>(table: &'t toml::Table, key: &str) -> Option<&'t toml::Value> {
    let (name, within) = split_first(key, table.keys().map(String::as_str))?;
    let value = table.get(name)?;
    if within.is_empty() {
        return Some(value);
    }
    value_at(value.as_table()?, within)
}

type TypeError = serde_path_to_error::Error<toml::de::Error>;

fn deserialized<T: DeserializeOwned>(table: &toml::Table) -> Result<T, TypeError> {
    serde_path_to_error::deserialize(table.clone())
}

/// The key in the section `key` that brings `error` about, where only the section is known: without
/// it, there is another error or none. (serde reads a section that has a `type` in two steps, and
/// forgets keys in between.)
fn culprit<T: DeserializeOwned>(
    table: &toml::Table,
    key: &str,
    error: &toml::de::Error,
) -> Option<String> {
    if error.message().starts_with("missing field") {
        return None;
    }
    let within = value_at(table, key)?.as_table()?;
    if within.len() > SECTION_KEYS_MAX {
        return None;
    }
    let is_due_to = |key: &String| {
        let mut without = table.clone();
        take_out(&mut without, key);
        let other = deserialized::<T>(&without).err();
        other.is_none_or(|other| other.inner().message() != error.message())
    };
    // Without its type, a section always has another error.
    let (of_type, others): (Vec<_>, Vec<_>) = within.keys().partition(|name| *name == "type");
    let keys = others.into_iter().chain(of_type);
    keys.map(|name| format!("{key}.{name}")).find(is_due_to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_taken_out_and_nothing_beside_it() {
        let mut table: toml::Table =
            toml::from_str("[sinks.\"a.b\"]\nurl = 1\npath = 2\n[leases]\n").unwrap();
        assert_eq!(
            take_out(&mut table, "sinks.a.b.url").as_deref(),
            Some("sinks.a.b.url")
        );
        assert_eq!(
            take_out(&mut table, "sinks.a.b.body").as_deref(),
            Some("sinks.a.b"),
            "a key that is missing takes its section with it"
        );
        assert_eq!(take_out(&mut table, "host.buffer"), None);
        assert_eq!(table.keys().collect::<Vec<_>>(), ["leases", "sinks"]);
    }
}
