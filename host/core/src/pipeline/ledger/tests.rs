use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, subsequence};

use super::*;
use crate::stream::SequenceNumber;

fn position(n: usize) -> Position {
    Position::plain(SequenceNumber::parse(&(n + 1).to_string()).unwrap())
}

fn records(numbers: &[usize]) -> Vec<Record> {
    let record = |n: &usize| Record {
        data: Bytes::new(),
        partition_key: String::new(),
        explicit_hash_key: None,
        position: position(*n),
        arrival_ms: 0,
    };
    numbers.iter().map(record).collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    Held,
    Settled,
}

/// The same by keeping the state of every record.
#[derive(Default)]
struct Naive {
    states: Vec<State>,
    settled: usize,
}

impl Naive {
    fn hand_out(&mut self, number: usize) {
        assert_eq!(number, self.states.len(), "handed out in order");
        self.states.push(State::Open);
    }

    fn report(&mut self, batch: &[usize], failed: &[usize], committed: usize) {
        if let Some(last) = committed.checked_sub(1) {
            let before = &mut self.states[..=batch[last]];
            before
                .iter_mut()
                .filter(|state| **state == State::Held)
                .for_each(|state| *state = State::Settled);
        }
        for (index, number) in batch.iter().enumerate() {
            self.states[*number] = match (failed.contains(&index), index < committed) {
                (true, _) => State::Open,
                (false, true) => State::Settled,
                (false, false) => State::Held,
            };
        }
        self.advance();
    }

    fn advance(&mut self) {
        let settled = self
            .states
            .iter()
            .take_while(|state| **state == State::Settled)
            .count();
        self.settled = self.settled.max(settled);
    }

    /// How many records, from the first on, are settled.
    fn of(ledger: &Ledger) -> usize {
        ledger
            .settled()
            .map_or(0, |at| at.sequence.as_str().parse().unwrap())
    }
}

/// What happens next, drawn; numbers are taken modulo what there is.
#[derive(Debug, Clone)]
enum Step {
    /// New records; some of them wait behind others and are not delivered yet.
    Fresh {
        count: usize,
        waiting: Vec<Index>,
        end: End,
    },
    /// Some of the open records again.
    Again { which: Vec<Index>, end: End },
    /// An open record is given up.
    GiveUp { which: Index },
    /// An instance died that may have held records back.
    Rewind,
}

#[derive(Debug, Clone)]
struct End {
    failed: Vec<Index>,
    word: Word,
}

/// What the plugin says of the commit.
#[derive(Debug, Clone, Copy)]
enum Word {
    None,
    Nothing,
    Through(Index),
}

fn end() -> impl Strategy<Value = End> {
    let word = prop_oneof![3 => Just(Word::None), 1 => Just(Word::Nothing), 2 => any::<Index>().prop_map(Word::Through)];
    (vec(any::<Index>(), 0..4), word).prop_map(|(failed, word)| End { failed, word })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (1..12_usize, vec(any::<Index>(), 0..3), end())
            .prop_map(|(count, waiting, end)| Step::Fresh { count, waiting, end }),
        4 => (vec(any::<Index>(), 1..4), end()).prop_map(|(which, end)| Step::Again { which, end }),
        2 => any::<Index>().prop_map(|which| Step::GiveUp { which }),
        1 => Just(Step::Rewind),
    ];
    vec(step, 1..60)
}

fn picked(of: &[usize], which: &[Index]) -> Vec<usize> {
    let chosen: BTreeSet<usize> = which
        .iter()
        .filter(|_| !of.is_empty())
        .map(|at| *at.get(of))
        .collect();
    chosen.into_iter().collect()
}

struct Pair {
    ledger: Ledger,
    naive: Naive,
    given_up: BTreeSet<usize>,
}

impl Pair {
    fn open(&self) -> Vec<usize> {
        (0..self.naive.states.len())
            .filter(|number| self.naive.states[*number] == State::Open)
            .collect()
    }

    fn deliver(&mut self, batch: &[usize], end: &End) {
        if batch.is_empty() {
            return;
        }
        let indexes: Vec<usize> = (0..batch.len()).collect();
        let failed = picked(&indexes, &end.failed);
        let (commit, committed) = match end.word {
            Word::None => (None, batch.len()),
            Word::Nothing => (Some(Commit::Nothing), 0),
            Word::Through(at) => {
                let index = at.index(batch.len());
                (
                    Some(Commit::Through(u32::try_from(index).unwrap())),
                    index + 1,
                )
            }
        };
        self.ledger.report(&records(batch), &failed, commit);
        self.naive.report(batch, &failed, committed);
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Fresh {
                count,
                waiting,
                end,
            } => {
                let first = self.naive.states.len();
                let fresh: Vec<usize> = (first..first + count).collect();
                let waiting = picked(&fresh, waiting);
                // As the pipeline does: one by one only if it must.
                let one_by_one = self.ledger.is_busy() || !waiting.is_empty();
                let mut batch = Vec::new();
                for number in fresh {
                    self.naive.hand_out(number);
                    if one_by_one && !self.ledger.hand_out(&position(number)) {
                        assert!(self.given_up.contains(&number));
                        self.naive.states[number] = State::Settled;
                        self.naive.advance();
                    } else if !waiting.contains(&number) {
                        batch.push(number);
                    }
                }
                self.deliver(&batch, end);
            }
            Step::Again { which, end } => self.deliver(&picked(&self.open(), which), end),
            Step::GiveUp { which } => {
                for number in picked(&self.open(), &[*which]) {
                    self.ledger.give_up(&position(number));
                    self.given_up.insert(number);
                    self.naive.states[number] = State::Settled;
                    self.naive.advance();
                }
            }
            Step::Rewind => {
                self.ledger.rewind();
                self.naive.states.truncate(self.naive.settled);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_checkpoint_is_below_the_lowest_unsettled_record_and_no_lower(steps in steps()) {
        let mut pair = Pair { ledger: Ledger::default(), naive: Naive::default(), given_up: BTreeSet::new() };
        for step in &steps {
            pair.take(step);
            prop_assert_eq!(Naive::of(&pair.ledger), pair.naive.settled, "after {:?}", step);
            let holds_back = pair.naive.states.contains(&State::Held);
            prop_assert_eq!(pair.ledger.holds_back(), holds_back, "after {:?}", step);
        }
    }

}

proptest! {
    #![proptest_config(ProptestConfig { cases: 50, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_open_is_all_that_takes_space(failed in subsequence((0..100_usize).collect::<Vec<_>>(), 1..20)) {
        let mut ledger = Ledger::default();
        ledger.report(&records(&(0..100).collect::<Vec<_>>()), &failed, None);
        for batch in 1..50 {
            let numbers: Vec<usize> = (batch * 100..batch * 100 + 100).collect();
            for number in &numbers {
                prop_assert!(ledger.hand_out(&position(*number)));
            }
            ledger.report(&records(&numbers), &[], None);
        }
        prop_assert_eq!(ledger.open.len(), failed.len());
        prop_assert_eq!(Naive::of(&ledger), failed[0]);
        for number in &failed {
            ledger.give_up(&position(*number));
        }
        prop_assert_eq!(Naive::of(&ledger), 5_000);
        prop_assert!(!ledger.is_busy());
    }
}

#[test]
fn what_was_given_up_above_the_checkpoint_is_not_delivered_again_after_a_rewind() {
    let mut ledger = Ledger::default();
    ledger.report(&records(&[0, 1, 2, 3]), &[2], Some(Commit::Nothing));
    ledger.give_up(&position(2));
    assert_eq!(ledger.settled(), None, "the plugin holds back 0, 1 and 3");
    ledger.rewind();
    let delivered: Vec<bool> = (0..4)
        .map(|number| ledger.hand_out(&position(number)))
        .collect();
    assert_eq!(delivered, [true, true, false, true]);
    ledger.report(&records(&[0, 1, 3]), &[], None);
    assert_eq!(ledger.settled(), Some(&position(3)));
    assert!(!ledger.is_busy());
}

#[test]
fn runs_beyond_the_bound_are_joined_and_only_commit_later() {
    let mut ledger = Ledger::default();
    let count = RUNS_MAX * 2 + 10;
    let numbers: Vec<usize> = (0..count).collect();
    let even: Vec<usize> = numbers
        .iter()
        .copied()
        .filter(|number| number % 2 == 0)
        .collect();
    ledger.report(&records(&numbers), &even, Some(Commit::Nothing));
    assert_eq!(ledger.held.len(), RUNS_MAX);
    ledger.report(&records(&even), &[], None);
    assert_eq!(
        ledger.settled(),
        Some(&position(count - 2)),
        "the last one is still held back"
    );
    ledger.report(&records(&[count]), &[], None);
    assert_eq!(ledger.settled(), Some(&position(count)));
}

#[test]
fn what_was_handled_since_the_state_was_saved_counts_as_held_back() {
    let mut ledger = Ledger::with_state();
    assert!(!ledger.may_save() && !ledger.holds_back());
    ledger.report(&records(&[0, 1, 2, 3]), &[2], None);
    assert!(
        ledger.holds_back() && !ledger.may_save(),
        "2 is open: the state holds 3, which comes after it"
    );
    ledger.report(&records(&[2]), &[], None);
    assert_eq!((ledger.may_save(), ledger.settled()), (true, None));
    ledger.saved();
    assert_eq!(
        (ledger.may_save(), ledger.holds_back(), ledger.settled()),
        (false, false, Some(&position(3)))
    );
    // The instance dies with what it had not saved, and what was given up stays given up.
    ledger.report(&records(&[4, 5, 6]), &[5], None);
    ledger.give_up(&position(5));
    assert!(ledger.may_save());
    ledger.rewind();
    assert!(!ledger.holds_back());
    let delivered: Vec<bool> = (4..7)
        .map(|number| ledger.hand_out(&position(number)))
        .collect();
    assert_eq!(delivered, [true, false, true]);
}

#[test]
fn a_failed_call_leaves_the_state_as_it_was_saved() {
    let mut ledger = Ledger::with_state();
    ledger.report(&records(&[0, 1]), &[0, 1], None);
    assert!(
        !ledger.holds_back(),
        "nothing was handled, so nothing must come again but what failed"
    );
    ledger.give_up(&position(0));
    ledger.give_up(&position(1));
    assert!(
        ledger.may_save(),
        "the checkpoint moves, with the state as it was"
    );
    ledger.saved();
    assert_eq!(ledger.settled(), Some(&position(1)));
}

#[test]
fn a_plugin_that_holds_back_is_not_asked_to_save() {
    let mut ledger = Ledger::with_state();
    ledger.report(&records(&[0, 1]), &[], Some(Commit::Through(0)));
    assert!(!ledger.may_save());
    ledger.report(&records(&[2]), &[], None);
    assert!(ledger.may_save());
}

#[test]
fn records_go_out_one_by_one_while_one_before_them_is_open_or_was_given_up_before_a_rewind() {
    let mut ledger = Ledger::default();
    ledger.report(&records(&[0, 1, 2]), &[1], None);
    assert!(ledger.is_busy(), "1 is open");
    ledger.give_up(&position(1));
    assert!(!ledger.is_busy(), "all are settled");
    ledger.report(&records(&[3, 4, 5]), &[0, 1], None);
    ledger.give_up(&position(4));
    ledger.rewind();
    assert!(ledger.is_busy(), "4 comes again, and must not be delivered");
    assert_eq!(ledger.handed_out(), Some(&position(2)));
    assert!(ledger.hand_out(&position(3)) && !ledger.hand_out(&position(4)));
    assert_eq!(ledger.handed_out(), Some(&position(4)));
    ledger.report(&records(&[3]), &[], None);
    assert!(!ledger.is_busy());
}

#[test]
fn what_was_given_up_is_remembered_until_the_checkpoint_passes_it() {
    let mut ledger = Ledger::default();
    ledger.report(&records(&[0, 1, 2, 3, 4]), &[0, 1, 2, 4], None);
    ledger.give_up(&position(1));
    ledger.give_up(&position(4));
    ledger.report(&records(&[0]), &[], None);
    assert_eq!(ledger.settled(), Some(&position(1)), "2 is open");
    ledger.rewind();
    let delivered: Vec<bool> = (2..5)
        .map(|number| ledger.hand_out(&position(number)))
        .collect();
    assert_eq!(delivered, [true, true, false]);
}

#[test]
fn of_more_given_up_records_than_are_remembered_the_first_comes_twice() {
    let mut ledger = Ledger::default();
    let numbers: Vec<usize> = (0..=GIVEN_UP_MAX + 1).collect();
    ledger.report(&records(&numbers), &numbers, None);
    let comes_again = |ledger: &Ledger| {
        let mut ledger = ledger.clone();
        ledger.rewind();
        numbers[1..]
            .iter()
            .copied()
            .filter(|number| ledger.hand_out(&position(*number)))
            .collect::<Vec<_>>()
    };
    for number in &numbers[1..=GIVEN_UP_MAX] {
        ledger.give_up(&position(*number));
    }
    assert_eq!(
        comes_again(&ledger),
        [GIVEN_UP_MAX + 1],
        "that many are remembered"
    );
    ledger.give_up(&position(GIVEN_UP_MAX + 1));
    assert_eq!(comes_again(&ledger), [1]);
}

#[test]
fn a_commit_inside_joined_runs_settles_what_comes_before_it() {
    let mut ledger = Ledger::default();
    let numbers: Vec<usize> = (0..RUNS_MAX * 2 + 10).collect();
    let even: Vec<usize> = numbers
        .iter()
        .copied()
        .filter(|number| number % 2 == 0)
        .collect();
    ledger.report(&records(&numbers), &even, Some(Commit::Nothing));
    ledger.report(&records(&[0, 2, 4]), &[], None);
    assert_eq!(
        ledger.settled(),
        Some(&position(4)),
        "5 is held back, in one run with 1 and 3"
    );
}

#[test]
fn a_tick_commits_all_that_is_held_back_and_nothing_that_failed() {
    let mut ledger = Ledger::default();
    ledger.report(&records(&[0, 1, 2, 3, 4]), &[3], Some(Commit::Through(0)));
    assert_eq!(ledger.settled(), Some(&position(0)));
    ledger.ticked();
    assert_eq!(ledger.settled(), Some(&position(0)), "it keeps them");
    ledger.commit_held_back();
    assert_eq!(ledger.settled(), Some(&position(2)), "3 failed");
    assert!(!ledger.holds_back());
    ledger.report(&records(&[3]), &[], None);
    assert_eq!(ledger.settled(), Some(&position(4)));
}

#[test]
fn a_tick_changes_a_state_that_is_to_be_saved_even_without_any_record() {
    let mut ledger = Ledger::with_state();
    assert!(!ledger.may_save());
    ledger.ticked();
    assert!(ledger.may_save() && ledger.holds_back());
    ledger.saved();
    assert_eq!((ledger.may_save(), ledger.settled()), (false, None));
    ledger.report(&records(&[0, 1]), &[], Some(Commit::Nothing));
    ledger.ticked();
    assert!(!ledger.may_save(), "what is held back is in no state");
    ledger.commit_held_back();
    assert!(ledger.may_save());
    ledger.rewind();
    assert!(
        !ledger.may_save(),
        "what the tick had changed is gone with the instance"
    );
}

#[test]
fn a_tick_of_a_plugin_without_state_asks_for_no_save() {
    let mut ledger = Ledger::default();
    ledger.report(&records(&[0]), &[], None);
    ledger.ticked();
    assert!(!ledger.may_save() && !ledger.holds_back());
}
