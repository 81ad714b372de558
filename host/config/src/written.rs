//! Which keys a configuration sets, and whether another one sets the same.

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use toml::Value;

/// Every key that is set, with a hash of its value: values may be secret.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Written(BTreeMap<String, u64>);

impl Written {
    pub(crate) fn of(table: &toml::Table) -> Self {
        let mut keys = BTreeMap::new();
        for (key, value) in table {
            collect(key, value, &mut keys);
        }
        Self(keys)
    }

    /// The keys that are not the same in both.
    pub(crate) fn differences(&self, other: &Self) -> Vec<String> {
        let mine = self.0.iter();
        let mine = mine.filter(|(key, value)| other.0.get(*key) != Some(value));
        let theirs = other.0.keys().filter(|key| !self.0.contains_key(*key));
        let mut keys: Vec<String> = mine.map(|(key, _)| key).chain(theirs).cloned().collect();
        keys.sort();
        keys
    }
}

fn collect(path: &str, value: &Value, keys: &mut BTreeMap<String, u64>) {
    match value {
        Value::Table(table) if !table.is_empty() => {
            for (key, value) in table {
                collect(&format!("{path}.{key}"), value, keys);
            }
        }
        value => {
            let mut hasher = DefaultHasher::new();
            value.to_string().hash(&mut hasher);
            keys.insert(path.to_owned(), hasher.finish());
        }
    }
}
