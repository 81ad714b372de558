//! What becomes of a batch in which some records are to be skipped.

use super::{Blame, Cause, Failure, Fate, Ruling, Tried, Verdict};
use crate::control::Skip;
use crate::ports::Commit;
use crate::seeded_bug::SeededBug;
use crate::stream::{Position, Record};

/// Gives up those of `records` that are to be skipped; the others are delivered as they were to be,
/// and nothing counts against them. `tried` counts earlier deliveries.
pub fn skip_records(
    records: &[Record],
    skip: &Skip,
    tried: &dyn Fn(&Position) -> Tried,
) -> Verdict {
    let message = skip.asked.to_string();
    let mut rulings = Vec::with_capacity(records.len());
    for (index, record) in records.iter().enumerate() {
        let fate = if is_skipped(records, index, skip) {
            Fate::GivenUp(Cause::Skipped)
        } else {
            Fate::Again
        };
        rulings.push(Ruling {
            index,
            tried: tried(&record.position),
            fate,
            message: message.clone(),
        });
    }
    Verdict {
        commit: Some(Commit::Nothing),
        rulings,
        split_at: None,
        failure: Some(Failure {
            kind: "skipped",
            reason: message,
            in_a_row: 1,
            retry_after: None,
            of: Blame::Host,
        }),
    }
}

fn is_skipped(records: &[Record], index: usize, skip: &Skip) -> bool {
    let is_in = |index: usize| {
        let record = records.get(index);
        record.is_some_and(|record| skip.records.contains(&record.position))
    };
    is_in(index) || SeededBug::SkipsOneMore.is_on() && index > 0 && is_in(index - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{Asked, RecordRange};
    use crate::stream::SequenceNumber;

    fn number(number: u64) -> SequenceNumber {
        SequenceNumber::parse(&number.to_string()).unwrap()
    }

    fn record(sequence: u64) -> Record {
        Record {
            data: "x".into(),
            partition_key: "k".to_owned(),
            explicit_hash_key: None,
            position: Position::plain(number(sequence)),
            arrival_ms: 0,
        }
    }

    #[test]
    fn only_the_records_that_were_named_are_given_up_and_nothing_counts_against_the_others() {
        let skip = Skip {
            records: RecordRange::new(number(2), number(3)).unwrap(),
            dead_letters: None,
            asked: Asked {
                by: "ops".to_owned(),
                why: "poison".to_owned(),
                at_ms: 0,
            },
        };
        let records: Vec<Record> = (1..5).map(record).collect();
        let before = Tried {
            deliveries: 7,
            attempts: 3,
            ..Tried::default()
        };
        let verdict = skip_records(&records, &skip, &|_| before);
        let fates: Vec<Fate> = verdict.rulings.iter().map(|ruling| ruling.fate).collect();
        let skipped = Fate::GivenUp(Cause::Skipped);
        assert_eq!(fates, [Fate::Again, skipped, skipped, Fate::Again]);
        assert!(verdict.rulings.iter().all(|ruling| ruling.tried == before));
        let reason = verdict.rulings[1].reason(Cause::Skipped);
        assert!(
            reason.starts_with("skipped by command: by ops at"),
            "{reason}"
        );
        assert!(reason.ends_with(": poison"), "{reason}");
    }
}
