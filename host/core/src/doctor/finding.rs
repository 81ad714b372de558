//! What is worth reporting, how bad it is, and how to fix it.

use std::fmt;

/// One thing that an operator should know, or repair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// What it is about; stable, for programs.
    pub topic: Topic,
    /// What was found, and where.
    pub what: String,
    /// What to do; empty if nothing.
    pub fix: String,
}

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Records would be lost or repeated, or nothing would work: fix it before a host uses the
    /// table.
    FixFirst,
    /// A host may use the table, but the operator should know this.
    Warning,
    /// For information; nothing is wrong.
    Note,
}

macro_rules! topics {
    ($($(#[$doc:meta])* $topic:ident = $code:literal,)*) => {
        /// What a finding is about.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Topic {
            $($(#[$doc])* $topic,)*
        }

        impl Topic {
            /// The topic's name for programs; never changes.
            pub fn code(self) -> &'static str {
                match self {
                    $(Self::$topic => $code,)*
                }
            }
        }
    };
}

topics! {
    /// There is no table yet.
    NoTable = "no-table",
    /// Another library keeps checkpoints under this name.
    OtherLibrary = "other-library",
    /// The table has a key that is not a lease table's.
    OtherKey = "other-key",
    /// The table cannot be used at this moment.
    TableNotActive = "table-not-active",
    /// The stream does not exist, or cannot be read at this moment.
    StreamNotActive = "stream-not-active",
    /// The rows belong to a stream other than the one named.
    OtherStream = "other-stream",
    /// Rows that cannot be read.
    BadRows = "bad-rows",
    /// Keys of the KCL's multi-stream mode.
    MultiStreamKeys = "multi-stream-keys",
    /// Two rows are for one shard.
    SameShardTwice = "same-shard-twice",
    /// Workers without shardmill's marks write to the table.
    OtherWorkers = "other-workers",
    /// Owners that were not seen to write.
    SilentOwners = "silent-owners",
    /// The table was read only once, so it is unknown which workers are alive.
    NotWatched = "not-watched",
    /// Traces that only KCL 3.x leaves.
    Kcl3Traces = "kcl3-traces",
    /// A fleet between KCL 2.x and 3.x.
    ClientVersion = "client-version",
    /// KCL 3.5 is moving its tables into one.
    TableMigration = "table-migration",
    /// Leases between two owners of a KCL 3.x fleet.
    HandOffs = "hand-offs",
    /// Two-phase checkpoints that were prepared and not completed.
    PendingCheckpoints = "pending-checkpoints",
    /// Where the application began, and the consequences for leases that were never read.
    Start = "start",
    /// Versions of the plugin that are quarantined.
    Quarantined = "quarantined",
    /// Versions of the plugin that hosts cannot load, or may not.
    RefusedFiles = "refused-files",
    /// Hash keys that no unfinished lease covers.
    Holes = "holes",
    /// Leases without hash keys.
    UnknownHashKeys = "unknown-hash-keys",
    /// Leases whose shard is gone.
    ShardsGone = "shards-gone",
    /// Open shards that are not read until a host makes a row.
    ShardsWithoutLease = "shards-without-lease",
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::FixFirst => "fix-first",
            Self::Warning => "warning",
            Self::Note => "note",
        })
    }
}

/// The findings so far.
#[derive(Debug, Default)]
pub(super) struct Findings(pub(super) Vec<Finding>);

impl Findings {
    pub(super) fn add(
        &mut self,
        severity: Severity,
        topic: Topic,
        what: impl Into<String>,
        fix: &str,
    ) {
        self.0.push(Finding {
            severity,
            topic,
            what: what.into(),
            fix: fix.to_owned(),
        });
    }
}

/// A list such as `7 rows (a, b, c and 4 more)`: enough to find them, on one line.
pub(super) fn some_of<T: fmt::Display>(noun: &str, all: impl IntoIterator<Item = T>) -> String {
    const SHOWN: usize = 3;
    let all: Vec<String> = all.into_iter().map(|one| one.to_string()).collect();
    let shown = all
        .iter()
        .take(SHOWN)
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(", ");
    let plural = if all.len() == 1 { "" } else { "s" };
    let more = match all.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{} {noun}{plural} ({shown}{more})", all.len())
}
