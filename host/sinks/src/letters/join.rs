//! Joins the parts of dead letters, in any order, repeated or not.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};

use bytes::{Bytes, BytesMut};
use shardmill_core::ports::DeadLetter;
use shardmill_core::stream::{Position, ShardId, StreamName};

use super::envelope::{Fragment, Piece};
use super::seen::Seen;

/// Bytes of parts that wait for others, each with everything else of its letter. Twenty of the
/// largest records: parts of one letter are stored together.
const WAITING_BYTES_MAX: usize = 200 << 20;
/// Missing parts of a letter that are listed.
const MISSING_MAX: usize = 100;

/// Identifies a letter: one record, given up once.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Identity {
    application: String,
    stream: StreamName,
    shard: ShardId,
    position: Position,
    failed_at_ms: u64,
    parts: u32,
    data_bytes: u64,
}

/// Parts of letters that are not complete yet.
#[derive(Default)]
pub(crate) struct Joiner {
    waiting: HashMap<Identity, Waiting>,
    /// Letters that were complete. A part of one that comes once more was stored twice, by a target
    /// that was slow to answer.
    done: Seen,
    bytes: usize,
}

struct Waiting {
    letter: DeadLetter,
    /// What its parts take of `WAITING_BYTES_MAX`.
    bytes: usize,
    /// Data by part, counted from 1.
    parts: BTreeMap<u32, Bytes>,
}

/// A letter with parts missing at the end of the input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incomplete {
    /// The letter, without data.
    pub letter: DeadLetter,
    /// How many parts it has.
    pub parts: u32,
    /// Which parts are missing, the first hundred; empty if all were there and do not fit together.
    pub missing: Vec<u32>,
    /// The parts that were there, to be kept.
    pub found: Vec<Fragment>,
}

/// Why parts cannot be put together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JoinError {
    /// Too many letters have parts missing so far.
    #[error(
        "{letters} letters with missing parts take more than {} MiB: put the parts of one letter \
            near each other",
        WAITING_BYTES_MAX >> 20
    )]
    TooMuch {
        /// How many.
        letters: usize,
    },
    /// All parts are there, and are not what was written.
    #[error("the parts of {place} have {found} bytes in total, but {expected} were written")]
    Length {
        /// Which letter.
        place: String,
        /// Bytes found.
        found: usize,
        /// Bytes written.
        expected: u64,
    },
}

impl Joiner {
    /// Takes a line; returns the letter when it is complete.
    pub(crate) fn push(&mut self, fragment: Fragment) -> Result<Option<DeadLetter>, JoinError> {
        let Some(piece) = fragment.piece else {
            return Ok(Some(fragment.letter));
        };
        let identity = identity(&fragment.letter, piece);
        if self.done.contains(&identity) {
            return Ok(None);
        }
        self.hold(&identity, piece.part, fragment.letter)?;
        let Entry::Occupied(waiting) = self.waiting.entry(identity) else {
            return Ok(None);
        };
        if waiting.get().parts.len() < piece.parts as usize {
            return Ok(None);
        }
        waiting.get().check_length(piece.data_bytes)?;
        let (identity, whole) = waiting.remove_entry();
        self.bytes -= whole.bytes;
        self.done.insert(&identity);
        Ok(Some(whole.into_letter()))
    }

    /// Keeps a part until the others are there.
    fn hold(
        &mut self,
        identity: &Identity,
        part: u32,
        mut letter: DeadLetter,
    ) -> Result<(), JoinError> {
        let bytes = held_bytes(&letter);
        if self.bytes + bytes > WAITING_BYTES_MAX {
            return Err(JoinError::TooMuch {
                letters: self.waiting.len(),
            });
        }
        let data = std::mem::take(&mut letter.record.data);
        let new = || Waiting {
            letter,
            bytes: 0,
            parts: BTreeMap::new(),
        };
        let waiting = self.waiting.entry(identity.clone()).or_insert_with(new);
        // A part that comes twice was stored twice: it is the same.
        if waiting.parts.insert(part, data).is_none() {
            waiting.bytes += bytes;
            self.bytes += bytes;
        }
        Ok(())
    }

    /// The letters that are not complete, sorted by where they failed.
    pub(crate) fn finish(self) -> Vec<Incomplete> {
        let mut waiting: Vec<_> = self.waiting.into_iter().collect();
        waiting.sort_by(|(one, _), (other, _)| one.cmp(other));
        waiting
            .into_iter()
            .map(|(identity, waiting)| waiting.into_incomplete(&identity))
            .collect()
    }
}

impl Waiting {
    fn data_bytes(&self) -> usize {
        self.parts.values().map(Bytes::len).sum()
    }

    fn check_length(&self, expected: u64) -> Result<(), JoinError> {
        let found = self.data_bytes();
        if found as u64 == expected {
            return Ok(());
        }
        let DeadLetter {
            stream,
            shard,
            record,
            ..
        } = &self.letter;
        Err(JoinError::Length {
            place: format!("{stream} {shard} {}", record.position),
            found,
            expected,
        })
    }

    /// The letter with the data of all parts.
    fn into_letter(self) -> DeadLetter {
        let mut data = BytesMut::with_capacity(self.data_bytes());
        for part in self.parts.values() {
            data.extend_from_slice(part);
        }
        let mut letter = self.letter;
        letter.record.data = data.freeze();
        letter
    }

    fn into_incomplete(self, identity: &Identity) -> Incomplete {
        let mut found = Vec::new();
        for (&part, data) in &self.parts {
            let mut letter = self.letter.clone();
            letter.record.data = data.clone();
            let piece = Some(Piece {
                part,
                parts: identity.parts,
                data_bytes: identity.data_bytes,
            });
            found.push(Fragment { letter, piece });
        }
        let missing = (1..=identity.parts)
            .filter(|part| !self.parts.contains_key(part))
            .take(MISSING_MAX)
            .collect();
        Incomplete {
            letter: self.letter,
            parts: identity.parts,
            missing,
            found,
        }
    }
}

/// What a part takes while it waits, and when it is returned with the rest of its letter.
fn held_bytes(letter: &DeadLetter) -> usize {
    /// Its names, its position, and what allocations cost.
    const REST_BYTES: usize = 1 << 10;
    letter.record.cost_bytes() + letter.application.len() + letter.reason.len() + REST_BYTES
}

fn identity(letter: &DeadLetter, piece: Piece) -> Identity {
    Identity {
        application: letter.application.clone(),
        stream: letter.stream.clone(),
        shard: letter.shard.clone(),
        position: letter.record.position.clone(),
        failed_at_ms: letter.failed_at_ms,
        parts: piece.parts,
        data_bytes: piece.data_bytes,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::encode;
    use super::super::envelope::tests::letter;
    use super::*;

    fn fragments(letter: &DeadLetter) -> Vec<Fragment> {
        encode(letter, Some(64 << 10))
            .iter()
            .map(|line| Fragment::decode(line).unwrap())
            .collect()
    }

    fn large(byte: u8, failed_at_ms: u64) -> DeadLetter {
        DeadLetter {
            failed_at_ms,
            ..letter(vec![byte; 150_000])
        }
    }

    #[test]
    fn a_whole_letter_passes_at_once() {
        let mut joiner = Joiner::default();
        let fragment = Fragment {
            letter: letter("x"),
            piece: None,
        };
        assert_eq!(joiner.push(fragment), Ok(Some(letter("x"))));
        assert_eq!(joiner.finish(), []);
    }

    #[test]
    fn missing_parts_are_named_and_what_was_found_is_given_back() {
        let mut joiner = Joiner::default();
        let mut all = fragments(&large(1, 1));
        let lost = all.remove(2);
        for fragment in all.clone() {
            assert_eq!(joiner.push(fragment), Ok(None));
        }
        let incomplete = joiner.finish();
        assert_eq!(
            (incomplete.len(), &incomplete[0].missing),
            (1, &vec![lost.piece.unwrap().part])
        );
        assert_eq!(incomplete[0].found, all);
    }

    #[test]
    fn parts_of_another_length_are_an_error_and_not_a_record() {
        let mut joiner = Joiner::default();
        let mut all = fragments(&large(1, 1));
        all[1].letter.record.data = Bytes::from_static(b"short");
        let last = all.pop().unwrap();
        for fragment in all {
            assert_eq!(joiner.push(fragment), Ok(None));
        }
        assert!(matches!(
            joiner.push(last),
            Err(JoinError::Length {
                expected: 150_000,
                ..
            })
        ));
    }

    #[test]
    fn parts_that_never_become_a_letter_do_not_fill_the_memory() {
        let mut joiner = Joiner::default();
        let part = |n: u64| {
            let letter = DeadLetter {
                failed_at_ms: n,
                ..letter(vec![0; 1 << 20])
            };
            Fragment {
                letter,
                piece: Some(Piece {
                    part: 1,
                    parts: 2,
                    data_bytes: 2 << 20,
                }),
            }
        };
        let error = (0..1_000).find_map(|n| joiner.push(part(n)).err());
        assert_eq!(error, Some(JoinError::TooMuch { letters: 199 }));
    }

    #[test]
    fn parts_without_data_take_room_too() {
        let mut joiner = Joiner::default();
        let part = |n: u32| {
            let reason = "r".repeat(4_000);
            Fragment {
                letter: DeadLetter {
                    reason,
                    ..letter("")
                },
                piece: Some(Piece {
                    part: n,
                    parts: u32::MAX,
                    data_bytes: 0,
                }),
            }
        };
        let held = (1..u32::MAX)
            .take_while(|n| joiner.push(part(*n)).is_ok())
            .count();
        assert!(
            held * 4_000 < WAITING_BYTES_MAX,
            "{held} parts, each of which is given back with its reason"
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        /// Parts of two letters in any order, each as often as it likes: both come back once, as
        /// they were.
        #[test]
        fn any_order_and_any_repeats_give_the_letters_back(seed in any::<u64>()) {
            let letters = [large(1, 1), large(2, 2)];
            let mut random = fastrand::Rng::with_seed(seed);
            let mut all: Vec<_> = letters.iter().flat_map(fragments).collect();
            let repeats: Vec<_> = all.iter().filter(|_| random.bool()).cloned().collect();
            all.extend(repeats);
            random.shuffle(&mut all);
            let mut joiner = Joiner::default();
            let mut joined: Vec<_> = all.into_iter().filter_map(|fragment| joiner.push(fragment).unwrap()).collect();
            joined.sort_by_key(|letter| letter.failed_at_ms);
            prop_assert_eq!(joined, letters);
            prop_assert_eq!(joiner.finish(), []);
        }
    }
}
