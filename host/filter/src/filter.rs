//! A filter, and what it says of a record.

use std::fmt;

use crate::judge::judge;
use crate::level::Level;
use crate::pattern;
use crate::problem::Problem;
use crate::verdict::Verdict;

/// Most patterns of a filter, as in Lambda: each field of a record is compared with all of them.
const PATTERNS_MAX: usize = 10;
/// Longest pattern in bytes, as in Lambda.
const PATTERN_BYTES_MAX: usize = 4_096;
/// Longest partition key (AWS limit: 256 characters, of four bytes at most).
const KEY_BYTES_MAX: usize = 1_024;

/// Which records of a stream a plugin gets.
#[derive(Debug, Clone, PartialEq)]
pub struct Filter {
    key_prefix: Option<String>,
    patterns: Vec<String>,
    /// All patterns together; `None` if there are none.
    level: Option<Level>,
}

impl Filter {
    /// A filter that passes records whose partition key begins with `key_prefix` and whose data
    /// matches one of `patterns`, or any data if there are none.
    ///
    /// # Errors
    ///
    /// If it would pass every record, is beyond a bound, or if a pattern is not one of Lambda's or
    /// uses what is not supported, which the problem names.
    pub fn new(key_prefix: Option<String>, patterns: Vec<String>) -> Result<Self, Problem> {
        let refuse = |key, message: String| Err(Problem { key, message });
        match &key_prefix {
            Some(prefix) if prefix.is_empty() => {
                return refuse(
                    "key-prefix",
                    "every key begins with \"\": leave it out".to_owned(),
                );
            }
            Some(prefix) if prefix.len() > KEY_BYTES_MAX => {
                let message = format!("no partition key is longer than {KEY_BYTES_MAX} bytes");
                return refuse("key-prefix", message);
            }
            None if patterns.is_empty() => {
                let message = "is empty: list a pattern, or set key-prefix".to_owned();
                return refuse("patterns", message);
            }
            Some(_) | None => {}
        }
        if patterns.len() > PATTERNS_MAX {
            let message = format!("are {}, at most are {PATTERNS_MAX}", patterns.len());
            return refuse("patterns", message);
        }
        for pattern in &patterns {
            if pattern.len() > PATTERN_BYTES_MAX {
                let bytes = pattern.len();
                let message = format!("one has {bytes} bytes, at most are {PATTERN_BYTES_MAX}");
                return refuse("patterns", message);
            }
        }
        let level = if patterns.is_empty() {
            None
        } else {
            let parsed = pattern::read_all(&patterns);
            let level = parsed.map_err(|message| Problem {
                key: "patterns",
                message,
            })?;
            Some(level)
        };
        Ok(Self {
            key_prefix,
            patterns,
            level,
        })
    }

    /// The prefix that partition keys must have.
    pub fn key_prefix(&self) -> Option<&str> {
        self.key_prefix.as_deref()
    }

    /// The patterns of which one must match, as they were written.
    pub fn patterns(&self) -> &[String] {
        &self.patterns
    }

    /// Whether the plugin gets a record.
    pub fn passes(&self, partition_key: &str, data: &[u8]) -> bool {
        self.judge(partition_key, data) == Verdict::Passes
    }

    /// What becomes of a record.
    pub fn judge(&self, partition_key: &str, data: &[u8]) -> Verdict {
        let has_prefix = |prefix: &String| partition_key.starts_with(prefix.as_str());
        if !self.key_prefix.as_ref().is_none_or(has_prefix) {
            return Verdict::NoMatch;
        }
        match &self.level {
            Some(level) => judge(level, data),
            None => Verdict::Passes,
        }
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = self.key_prefix.as_ref();
        let prefix = prefix.map(|prefix| format!("key-prefix {prefix:?}"));
        let patterns = (!self.patterns.is_empty()).then(|| self.patterns.join(" or "));
        let parts: Vec<String> = prefix.into_iter().chain(patterns).collect();
        f.write_str(&parts.join(", "))
    }
}
