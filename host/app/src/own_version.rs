//! What this program is, in one line: the command line shows it, and `shardmill version` begins
//! with it.

use std::sync::LazyLock;

/// With the embedded stack, `full`; without it, `lean`.
pub(crate) const VARIANT: &str = if cfg!(feature = "local") {
    "full"
} else {
    "lean"
};

/// The version, the variant and the commit, as `--version` shows them after the program's name.
pub(crate) fn in_short() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let version = env!("CARGO_PKG_VERSION");
        format!("{version} ({VARIANT}, commit {})", shardmill_serve::COMMIT)
    });
    &TEXT
}
