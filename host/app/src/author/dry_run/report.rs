//! What a dry run reports, and whether that is what was expected.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use indicatif::HumanCount;
use serde::Serialize;
use shardmill_core::ports::DeadLetter;
use shardmill_core::stream::ShardId;
use shardmill_sinks::LineFormat;
use similar::{ChangeTag, TextDiff};

use super::collector::Kept;
use super::run::DryRunOutcome;

/// Differences and failures that are printed: what is wrong shows in the first few.
const SHOWN_MAX: usize = 20;
/// How much of a record's data is shown.
const DATA_CHARS_MAX: usize = 100;
/// Digits of a sequence number of the embedded Kinesis, as of most of the real one.
const SEQUENCE_DIGITS: usize = 56;
/// Lines on either side up to which the least difference is worth its time.
const DIFF_LINES_MAX: usize = 50_000;

/// What `test` shows.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct DryRunReport {
    /// Records that were put.
    pub(crate) records: u64,
    /// Those of them that the plugin's filter kept from it.
    pub(crate) filtered: u64,
    /// Batches that were settled.
    pub(crate) batches: u64,
    /// Pieces of output.
    pub(crate) output: u64,
    /// Records that failed for good.
    pub(crate) failures: Vec<Failure>,
    /// Seconds from when delivery could begin to the last checkpoint.
    pub(crate) seconds: f64,
    /// Digests of the versions that ran.
    pub(crate) digests: Vec<String>,
    /// Fuel that a record took, on average; `None` if it was not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fuel_per_record: Option<u64>,
    /// Whether output is as expected; `None` if nothing was expected.
    pub(crate) comparison: Option<Comparison>,
}

/// A record that failed for good.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Failure {
    /// Its data, the start of it.
    pub(crate) data: String,
    /// Its partition key.
    pub(crate) partition_key: String,
    /// Its sequence number, and its place in an aggregate.
    pub(crate) position: String,
    /// How often it was delivered.
    pub(crate) attempts: u32,
    /// Why it failed the last time.
    pub(crate) reason: String,
}

/// The output, compared with what was expected.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Comparison {
    /// Lines that were expected and did not come.
    pub(crate) missing: usize,
    /// Lines that came and were not expected.
    pub(crate) unexpected: usize,
    /// The first of both, in order, `-` before what is missing, `+` before what is unexpected, with
    /// the line's number.
    pub(crate) differences: Vec<String>,
}

impl DryRunReport {
    /// The report on `records` that were delivered.
    pub(crate) fn new(
        records: u64,
        outcome: &DryRunOutcome,
        comparison: Option<Comparison>,
    ) -> Self {
        Self {
            records,
            filtered: outcome.filtered,
            batches: outcome.batches,
            output: outcome.kept.output.len() as u64,
            failures: outcome.kept.failed.iter().map(Failure::from).collect(),
            seconds: outcome.took.as_secs_f64(),
            digests: outcome.digests.clone(),
            fuel_per_record: outcome.fuel.map(|fuel| fuel / records.max(1)),
            comparison,
        }
    }

    /// Whether the plugin passed.
    pub(crate) fn is_good(&self, allows_failures: bool) -> bool {
        (allows_failures || self.failures.is_empty())
            && self.comparison.as_ref().is_none_or(Comparison::is_equal)
    }
}

impl Comparison {
    /// Whether nothing differs.
    pub(crate) fn is_equal(&self) -> bool {
        self.missing == 0 && self.unexpected == 0
    }
}

impl From<&DeadLetter> for Failure {
    fn from(letter: &DeadLetter) -> Self {
        let text = String::from_utf8_lossy(&letter.record.data);
        let mut data: String = text.chars().take(DATA_CHARS_MAX).collect();
        if data.len() < text.len() {
            data.push('…');
        }
        Self {
            data,
            partition_key: letter.record.partition_key.clone(),
            position: letter.record.position.to_string(),
            attempts: letter.attempts,
            reason: letter.reason.clone(),
        }
    }
}

/// Output as lines, as a sink would write it.
pub(crate) fn lines(kept: &Kept, format: LineFormat) -> Vec<u8> {
    let mut lines = Vec::new();
    for (origin, piece) in &kept.output {
        format.append(&mut lines, origin, piece);
    }
    lines
}

/// The same, with the lines of each shard together: which of several shards comes first is chance,
/// even if nothing else is.
pub(crate) fn lines_by_shard(kept: &Kept, format: LineFormat) -> Vec<Vec<u8>> {
    let mut shards: BTreeMap<&ShardId, Vec<u8>> = BTreeMap::new();
    for (origin, piece) in &kept.output {
        format.append(shards.entry(&origin.shard).or_default(), origin, piece);
    }
    shards.into_values().collect()
}

/// Replaces each sequence number by its rank among those that came out, from 1: the numbers that
/// Kinesis assigns differ in each run.
pub(crate) fn rank_sequence_numbers(text: &[u8]) -> Vec<u8> {
    let is_number = |run: &&[u8]| run.len() == SEQUENCE_DIGITS && run[0].is_ascii_digit();
    let runs: Vec<&[u8]> = text
        .chunk_by(|a, b| a.is_ascii_digit() == b.is_ascii_digit())
        .collect();
    // Of equal length, so they sort as numbers do.
    let numbers: BTreeSet<&[u8]> = runs.iter().copied().filter(is_number).collect();
    let ranks: HashMap<&[u8], usize> = numbers.into_iter().zip(1..).collect();
    let mut ranked = Vec::with_capacity(text.len());
    for run in runs {
        match ranks.get(run) {
            Some(rank) => ranked.extend_from_slice(rank.to_string().as_bytes()),
            None => ranked.extend_from_slice(run),
        }
    }
    ranked
}

/// Compares lines; in any order, if `is_unordered`. A line's end may be written as on Windows.
pub(crate) fn compare(expected: &[u8], output: &[u8], is_unordered: bool) -> Comparison {
    let (expected, output) = (
        String::from_utf8_lossy(expected),
        String::from_utf8_lossy(output),
    );
    let mut expected: Vec<&str> = expected.lines().collect();
    let mut output: Vec<&str> = output.lines().collect();
    if is_unordered {
        expected.sort_unstable();
        output.sort_unstable();
    }
    let mut comparison = Comparison::default();
    if expected == output {
        return comparison;
    }
    if expected.len().max(output.len()) > DIFF_LINES_MAX {
        compare_in_step(&expected, &output, &mut comparison);
    } else {
        compare_by_least_difference(&expected, &output, &mut comparison);
    }
    comparison
}

/// In time that may grow with the square of the lines.
fn compare_by_least_difference(expected: &[&str], output: &[&str], comparison: &mut Comparison) {
    for change in TextDiff::from_slices(expected, output).iter_all_changes() {
        match (change.tag(), change.old_index(), change.new_index()) {
            (ChangeTag::Delete, Some(at), _) => comparison.missing(at, change.value()),
            (ChangeTag::Insert, _, Some(at)) => comparison.unexpected(at, change.value()),
            _ => {}
        }
    }
}

/// Line by line: shows where the output first differs, in time that grows only with the lines.
fn compare_in_step(expected: &[&str], output: &[&str], comparison: &mut Comparison) {
    for at in 0..expected.len().max(output.len()) {
        match (expected.get(at), output.get(at)) {
            (Some(expected), Some(output)) if expected == output => {}
            (expected, output) => {
                expected.inspect(|line| comparison.missing(at, line));
                output.inspect(|line| comparison.unexpected(at, line));
            }
        }
    }
}

impl Comparison {
    fn missing(&mut self, at: usize, line: &str) {
        self.missing += 1;
        self.show('-', at, line);
    }

    fn unexpected(&mut self, at: usize, line: &str) {
        self.unexpected += 1;
        self.show('+', at, line);
    }

    fn show(&mut self, sign: char, at: usize, line: &str) {
        if self.differences.len() < SHOWN_MAX {
            self.differences.push(format!("{sign} {}: {line}", at + 1));
        }
    }
}

impl fmt::Display for DryRunReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (records, batches) = (HumanCount(self.records), HumanCount(self.batches));
        let (output, failures) = (HumanCount(self.output), self.failures.len());
        write!(f, "{records} records ")?;
        if self.filtered > 0 {
            write!(f, "({} of them filtered) ", HumanCount(self.filtered))?;
        }
        write!(f, "in {batches} batches, {output} pieces of output, ")?;
        write!(f, "{failures} failures, {:.2} s", self.seconds)?;
        if let Some(fuel) = self.fuel_per_record {
            write!(f, ", {} fuel a record", HumanCount(fuel))?;
        }
        for failure in self.failures.iter().take(SHOWN_MAX) {
            write!(f, "\nfailed: {failure}")?;
        }
        let more = failures.saturating_sub(SHOWN_MAX);
        if more > 0 {
            write!(f, "\nand {more} more that failed")?;
        }
        match &self.comparison {
            Some(comparison) => write!(f, "\n{comparison}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (data, attempts, reason) = (&self.data, self.attempts, &self.reason);
        write!(f, "{data:?} after {attempts} deliveries: {reason}")
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_equal() {
            return f.write_str("the output is as expected");
        }
        let (missing, unexpected) = (self.missing, self.unexpected);
        write!(
            f,
            "the output differs: {missing} lines are missing, {unexpected} were not expected"
        )?;
        for difference in &self.differences {
            write!(f, "\n{difference}")?;
        }
        let more = (missing + unexpected).saturating_sub(self.differences.len());
        if more > 0 {
            write!(f, "\nand {more} more")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use shardmill_core::plugin::PluginName;
    use shardmill_core::ports::Origin;
    use shardmill_core::stream::Emitted;

    use super::*;

    #[test]
    fn sequence_numbers_stand_as_ranks_and_other_numbers_as_they_are() {
        let number =
            |last: u32| format!("4968044142404979081918284751484978512910726336575{last:07}");
        let text = format!(
            "{{\"at\":\"{}\",\"n\":2013}}\n{}\n{}/0\n",
            number(9),
            number(3),
            number(9)
        );
        let ranked = String::from_utf8(rank_sequence_numbers(text.as_bytes())).unwrap();
        assert_eq!(ranked, "{\"at\":\"2\",\"n\":2013}\n1\n2/0\n");
    }

    #[test]
    fn lines_of_several_shards_are_the_same_whichever_comes_first() {
        let of = |shards: &[(&str, &'static str)]| {
            let mut kept = Kept::default();
            for (shard, data) in shards {
                let plugin = PluginName::new("alerts").unwrap();
                let origin = Origin {
                    plugin,
                    shard: ShardId::new(shard).unwrap(),
                    through: None,
                    trace: None,
                };
                let data = bytes::Bytes::from_static(data.as_bytes());
                let emitted = Emitted {
                    destination: "stdout".to_owned(),
                    key: String::new(),
                    data,
                };
                kept.output.push((Arc::new(origin), emitted));
            }
            lines_by_shard(&kept, LineFormat::Data)
        };
        let one = of(&[
            ("shardId-1", "b1"),
            ("shardId-0", "a1"),
            ("shardId-1", "b2"),
        ]);
        assert_eq!(one, [b"a1\n".to_vec(), b"b1\nb2\n".to_vec()]);
        assert_eq!(
            of(&[
                ("shardId-0", "a1"),
                ("shardId-1", "b1"),
                ("shardId-1", "b2")
            ]),
            one
        );
        assert_ne!(
            of(&[
                ("shardId-0", "a1"),
                ("shardId-1", "b2"),
                ("shardId-1", "b1")
            ]),
            one,
            "within a shard order counts"
        );
    }

    #[test]
    fn equal_lines_are_equal_whatever_their_ends() {
        assert!(compare(b"a\r\nb\n", b"a\nb", false).is_equal());
        assert!(compare(b"", b"", false).is_equal());
    }

    #[test]
    fn a_line_that_is_missing_does_not_make_all_after_it_differ() {
        let differs = compare(b"a\nb\nc\nd\n", b"a\nc\nd\ne\n", false);
        assert_eq!(differs.differences, ["- 2: b", "+ 4: e"]);
        assert_eq!((differs.missing, differs.unexpected), (1, 1));
    }

    #[test]
    fn order_counts_unless_it_is_said_not_to() {
        assert!(!compare(b"a\nb\n", b"b\na\n", false).is_equal());
        assert!(compare(b"a\nb\n", b"b\na\n", true).is_equal());
        assert!(
            !compare(b"a\na\nb\n", b"a\nb\nb\n", true).is_equal(),
            "how often counts in any order"
        );
    }

    #[test]
    fn very_long_output_is_compared_line_by_line() {
        let long = (0..=DIFF_LINES_MAX)
            .map(|n| n.to_string())
            .collect::<Vec<_>>()
            .join("\n");
        let other = long.replacen("\n7\n", "\nseven\n", 1);
        let differs = compare(long.as_bytes(), other.as_bytes(), false);
        assert_eq!(differs.differences, ["- 8: 7", "+ 8: seven"]);
    }
}
