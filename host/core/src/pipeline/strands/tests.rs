use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use super::*;
use crate::pipeline::{Headway, Tried};
use crate::stream::{Position, SequenceNumber};

const LIMITS: BatchLimits = BatchLimits {
    records: 5,
    bytes: 1 << 20,
    window: Duration::ZERO,
};

fn at(ms: u64) -> Moment {
    Moment::from_origin(Duration::from_millis(ms))
}

fn position(number: u64) -> Position {
    Position::plain(SequenceNumber::parse(&(number + 1).to_string()).unwrap())
}

fn record(number: u64, key: &str) -> Record {
    Record {
        data: "x".into(),
        partition_key: key.to_owned(),
        explicit_hash_key: None,
        position: position(number),
        arrival_ms: 0,
    }
}

fn spread(instances: u32) -> Spread {
    Spread::new(Parallelism::new(instances).unwrap())
}

#[test]
fn there_is_at_least_one_instance_and_at_most_64() {
    assert_eq!(Parallelism::new(0), None);
    assert_eq!(Parallelism::new(65), None);
    assert_eq!(Parallelism::new(257), None);
    assert_eq!(Parallelism::new(1), Some(Parallelism::default()));
    assert!(!Parallelism::ONE.is_parallel());
    let most = Parallelism::new(64).unwrap();
    assert!(most.is_parallel() && most.get() == 64 && most.to_string() == "64");
}

#[test]
fn a_key_has_its_strand_for_ever_and_records_without_one_take_turns() {
    let mut spread = spread(8);
    let strands: Vec<usize> = ["a", "b", "customer-17", "AS1234"]
        .iter()
        .map(|key| spread.strand_of(&record(0, key)))
        .collect();
    assert_eq!(strands, [3, 0, 1, 3], "hosts of other builds agree");
    let turns: Vec<usize> = (0..9)
        .map(|number| spread.strand_of(&record(number, "")))
        .collect();
    assert_eq!(turns, [1, 2, 3, 4, 5, 6, 7, 0, 1]);
}

#[test]
fn keys_are_spread_evenly() {
    let mut spread = spread(16);
    let mut counts = [0_u32; 16];
    for number in 0..16_000 {
        counts[spread.strand_of(&record(number, &format!("customer-{number}")))] += 1;
    }
    let is_even = |count: &u32| (900..1_100).contains(count);
    assert!(counts.iter().all(is_even), "{counts:?}");
}

#[test]
fn strands_hold_as_many_records_as_one_reply_has() {
    let mut strands = [Strand::default(), Strand::default()];
    for number in 0..RECORDS_MAX as u64 {
        assert!(Spread::has_room(&strands));
        strands[usize::from(number % 3 == 0)].add(record(number, "a"), at(0));
    }
    assert!(!Spread::has_room(&strands));
    let _ = strands[0].next_batch(Beyond::More, &LIMITS, at(0)).unwrap();
    assert!(Spread::has_room(&strands));
    let mut large = record(0, "a");
    large.data = vec![0; BYTES_MAX].into();
    let mut strand = Strand::default();
    strand.add(large, at(0));
    assert!(!Spread::has_room([&strand]));
}

#[test]
fn a_window_holds_for_each_strand_and_ends_with_the_shard() {
    let limits = BatchLimits {
        window: Duration::from_millis(100),
        ..LIMITS
    };
    let mut strand = Strand::default();
    assert!(strand.is_empty() && !strand.has_turn(Beyond::Nothing, &limits, at(0)));
    strand.add(record(0, "a"), at(50));
    assert!(!strand.is_empty() && !strand.has_nothing_new());
    assert_eq!(
        strand.batch_due_in(&limits, at(60)),
        Some(Duration::from_millis(90))
    );
    assert!(!strand.has_turn(Beyond::Nothing, &limits, at(149)));
    assert!(strand.has_turn(Beyond::End, &limits, at(149)));
    assert!(strand.has_turn(Beyond::More, &limits, at(150)));
    let batch = strand.next_batch(Beyond::More, &limits, at(150)).unwrap();
    assert_eq!(batch.len(), 1);
    assert!(strand.is_empty());
}

#[test]
fn while_a_strand_waits_for_its_next_attempt_nothing_of_it_goes_out() {
    let mut strand = Strand::default();
    strand.add(record(0, "a"), at(0));
    strand.retries_mut().wait_until(at(100));
    assert_eq!(strand.next_batch(Beyond::More, &LIMITS, at(99)), None);
    assert_eq!(
        strand.next_retry(Beyond::More, &LIMITS, at(99)),
        Some(at(100))
    );
    assert_eq!(strand.batch_due_in(&LIMITS, at(99)), None);
    assert!(strand.next_batch(Beyond::More, &LIMITS, at(100)).is_some());
}

/// What happens next, drawn; numbers are taken modulo what there is.
#[derive(Debug, Clone)]
enum Step {
    /// So many records are read, with these keys; 0 is none.
    Read(Vec<u8>),
    /// Every strand that may be called is called.
    Begin,
    /// One of the calls ends well, but for some of its records.
    End(usize, Vec<Index>),
    /// One of the calls fails as a whole.
    Fail(usize),
    /// A record that failed is given up, of a call that ends.
    GiveUp(usize, Index),
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => vec(0..12_u8, 1..20).prop_map(Step::Read),
        4 => Just(Step::Begin),
        6 => (0..6_usize, vec(any::<Index>(), 0..2)).prop_map(|(at, bad)| Step::End(at, bad)),
        1 => (0..6_usize).prop_map(Step::Fail),
        1 => (0..6_usize, any::<Index>()).prop_map(|(at, bad)| Step::GiveUp(at, bad)),
        2 => (1..50_u64).prop_map(Step::Pass),
    ];
    vec(step, 1..80)
}

/// A shard with several strands, as a host drives it, and what it did.
struct Shard {
    spread: Spread,
    strands: Vec<Strand>,
    calls: BTreeMap<usize, Vec<Record>>,
    headway: Headway,
    read: u64,
    now: Moment,
    keys: BTreeMap<Position, String>,
    done: BTreeSet<Position>,
    settled: Option<Position>,
}

impl Shard {
    fn new(instances: u32) -> Self {
        let strands = (0..instances).map(|_| Strand::default()).collect();
        Self {
            spread: spread(instances),
            strands,
            calls: BTreeMap::new(),
            headway: Headway::new(false),
            read: 0,
            now: at(0),
            keys: BTreeMap::new(),
            done: BTreeSet::new(),
            settled: None,
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Read(keys) => self.read(&keys),
            Step::Begin => self.begin(),
            Step::End(which, bad) => self.end(which, &bad, false),
            Step::GiveUp(which, bad) => self.end(which, &[bad], true),
            Step::Fail(which) => self.fail(which),
            Step::Pass(ms) => self.now = self.now + Duration::from_millis(ms),
        }
        self.check_settled();
    }

    fn read(&mut self, keys: &[u8]) {
        let mut run = Vec::new();
        for key in keys {
            let key = if *key == 0 {
                String::new()
            } else {
                format!("key-{key}")
            };
            run.push(record(self.read, &key));
            self.keys.insert(position(self.read), key);
            self.read += 1;
        }
        self.headway.hand_out_run(&run);
        for record in run {
            let at = self.spread.strand_of(&record);
            self.strands[at].add(record, self.now);
        }
    }

    fn begin(&mut self) {
        for (at, strand) in self.strands.iter_mut().enumerate() {
            if self.calls.contains_key(&at) {
                continue;
            }
            if let Some(batch) = strand.next_batch(Beyond::More, &LIMITS, self.now) {
                self.calls.insert(at, batch);
            }
        }
        let calls: Vec<Vec<Record>> = self.calls.values().cloned().collect();
        for batch in &calls {
            self.check_call(batch);
        }
    }

    /// Nothing of a key is in a call before all that came earlier is done, or in the same call; and
    /// nothing that is done goes out again.
    fn check_call(&self, batch: &[Record]) {
        for record in batch {
            assert!(!self.done.contains(&record.position), "done twice");
            let of_key = |key: &String| !key.is_empty() && *key == record.partition_key;
            let earlier = self.keys.range(..&record.position);
            for (earlier, _) in earlier.filter(|(_, key)| of_key(key)) {
                let is_in_call = batch.iter().any(|one| one.position == *earlier);
                assert!(
                    is_in_call || self.done.contains(earlier),
                    "{earlier:?} waits"
                );
            }
        }
    }

    fn end(&mut self, which: usize, bad: &[Index], gives_up: bool) {
        let Some((at, batch)) = self.take_call(which) else {
            return;
        };
        let failed: BTreeSet<usize> = bad.iter().map(|one| one.index(batch.len())).collect();
        // A plugin that keeps the order of keys reports what follows of a failed one's.
        let follows = |index: &usize| {
            let earlier = failed.range(..index);
            let key = &batch[*index].partition_key;
            !key.is_empty() && earlier.clone().any(|one| batch[*one].partition_key == *key)
        };
        let failed: Vec<usize> = (0..batch.len())
            .filter(|index| failed.contains(index) || follows(index))
            .collect();
        self.headway.report(&batch, &failed, None);
        self.note(at, &batch, &failed);
        let mut again: Vec<Record> = failed.iter().map(|index| batch[*index].clone()).collect();
        if gives_up && !again.is_empty() {
            let record = again.remove(0);
            self.headway.give_up(&record, self.now);
            self.done.insert(record.position.clone());
            self.strands[at].retries_mut().forget(&record.position);
        }
        let strand = &mut self.strands[at];
        let lane = strand.retries().lane_of(&batch);
        strand
            .retries_mut()
            .park(again, self.now + Duration::from_millis(20));
        if let Some(lane) = lane {
            let behind = strand.retries_mut().leave(&lane);
            strand.put_back(behind);
        }
        self.settle();
    }

    /// The shard waits, and the records go again in two halves.
    fn fail(&mut self, which: usize) {
        let Some((at, batch)) = self.take_call(which) else {
            return;
        };
        let all: Vec<usize> = (0..batch.len()).collect();
        self.headway.report(&batch, &all, None);
        self.note(at, &batch, &all);
        let strand = &mut self.strands[at];
        let retry_at = self.now + Duration::from_millis(20);
        let lane = strand.retries().lane_of(&batch);
        if let Some(lane) = lane {
            strand.retries_mut().park(batch, retry_at);
            let behind = strand.retries_mut().leave(&lane);
            strand.put_back(behind);
        } else {
            strand.retries_mut().end_at(&batch[batch.len() / 2]);
            strand.retries_mut().wait_until(retry_at);
            strand.put_back(batch);
        }
        self.settle();
    }

    fn take_call(&mut self, which: usize) -> Option<(usize, Vec<Record>)> {
        let called: Vec<usize> = self.calls.keys().copied().collect();
        let at = *called.get(which % called.len().max(1))?;
        Some((at, self.calls.remove(&at)?))
    }

    fn note(&mut self, at: usize, batch: &[Record], failed: &[usize]) {
        for (index, record) in batch.iter().enumerate() {
            let retries = self.strands[at].retries_mut();
            if failed.contains(&index) {
                let deliveries = retries.tried(&record.position).deliveries + 1;
                let tried = Tried {
                    deliveries,
                    ..Tried::default()
                };
                retries.note(&record.position, tried);
            } else {
                retries.forget(&record.position);
                assert!(self.done.insert(record.position.clone()), "done twice");
            }
        }
    }

    fn settle(&mut self) {
        if let Some(settled) = self.headway.settle(self.now) {
            for strand in &mut self.strands {
                strand.retries_mut().settled(settled);
            }
        }
    }

    /// The checkpoint is the last record such that all up to it are done.
    fn check_settled(&mut self) {
        let settled = self.headway.settled().cloned();
        assert!(settled >= self.settled, "it never goes back");
        let mut all = (0..self.read).map(position);
        let through = all.by_ref().take_while(|at| self.done.contains(at)).last();
        assert_eq!(settled, through);
        self.settled = settled;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn keys_keep_their_order_and_the_checkpoint_is_the_watermark(
        instances in 1..6_u32,
        steps in steps(),
    ) {
        let mut shard = Shard::new(instances);
        for step in steps {
            shard.step(step);
        }
        // Whatever happened, all of it gets through once nothing fails any more.
        for _ in 0..2_000 {
            if shard.done.len() as u64 == shard.read {
                break;
            }
            shard.step(Step::Pass(30));
            shard.step(Step::Begin);
            while !shard.calls.is_empty() {
                shard.step(Step::End(0, Vec::new()));
            }
        }
        prop_assert_eq!(shard.done.len() as u64, shard.read);
        prop_assert!(shard.strands.iter().all(Strand::is_empty));
    }
}
