//! The names of all plugins' measurements. On one page a name must have one kind, even across
//! plugins, or scrapers refuse the whole page. The host's own names never begin with this prefix.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// The prefix of every measurement of a plugin. No measurement of the host has it.
pub(crate) const PREFIX: &str = "shardmill_guest_";

/// The endings of the series of a histogram, besides its name.
const PARTS_OF_HISTOGRAM: [&str; 3] = ["_bucket", "_sum", "_count"];

/// How a name is used. A name has one kind: two would be a broken exposition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MeasurementKind {
    Counter,
    Gauge,
    Histogram,
}

/// The kind of every name in use, and the name that it belongs to. At most four entries for each
/// name that the plugins may have.
#[derive(Debug, Default)]
pub(crate) struct MeasurementNames(Mutex<HashMap<String, Use>>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Use {
    kind: MeasurementKind,
    /// The name as the plugin gave it.
    whole: String,
}

impl MeasurementNames {
    /// Whether the name may be used for this kind. The first use decides.
    pub(crate) fn admit(&self, name: &str, kind: MeasurementKind) -> bool {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let used = Use {
            kind,
            whole: name.to_owned(),
        };
        let shown = shown_as(name, kind);
        let is_free = shown
            .iter()
            .all(|name| names.get(name).is_none_or(|other| *other == used));
        if is_free {
            names.extend(shown.into_iter().map(|name| (name, used.clone())));
        }
        is_free
    }
}

fn shown_as(name: &str, kind: MeasurementKind) -> Vec<String> {
    let mut shown = vec![name.to_owned()];
    if kind == MeasurementKind::Histogram {
        shown.extend(
            PARTS_OF_HISTOGRAM
                .iter()
                .map(|part| format!("{name}{part}")),
        );
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_kind_on_the_page_whichever_plugins_use_it() {
        let names = MeasurementNames::default();
        assert!(
            names.admit("rows", MeasurementKind::Counter)
                && names.admit("rows", MeasurementKind::Counter)
        );
        assert!(!names.admit("rows", MeasurementKind::Gauge));
        assert!(
            names.admit("size", MeasurementKind::Histogram)
                && names.admit("size", MeasurementKind::Histogram)
        );
        assert!(
            !names.admit("size_count", MeasurementKind::Counter),
            "the histogram has it"
        );
        assert!(names.admit("wait_sum", MeasurementKind::Gauge));
        assert!(
            !names.admit("wait", MeasurementKind::Histogram),
            "it would have that"
        );
        assert!(
            names.admit("wait_count", MeasurementKind::Counter),
            "nothing was taken by what was refused"
        );
    }
}
