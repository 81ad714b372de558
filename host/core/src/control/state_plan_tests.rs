use super::*;
use crate::control::{Place, Seek, SeekState};
use crate::stream::{HashKeyRange, Position, SequenceNumber, Shard};

const BYTES_MAX: usize = 100;
const ID: u64 = 7;

fn id(number: u32) -> ShardId {
    ShardId::new(format!("shardId-{number:012}")).unwrap()
}

fn at(number: &str) -> Checkpoint {
    Checkpoint::At(Position::plain(SequenceNumber::parse(number).unwrap()))
}

fn row(number: u32, checkpoint: Checkpoint) -> Lease {
    let shard = Shard {
        id: id(number),
        parents: Vec::new(),
        hash_range: HashKeyRange::FULL,
        ending_sequence: None,
    };
    Lease::fresh(&shard, checkpoint)
}

fn asked() -> Asked {
    Asked {
        by: "me".to_owned(),
        why: "test".to_owned(),
        at_ms: 7,
    }
}

fn found(number: u32, checkpoint: Checkpoint, bytes: usize) -> FoundState {
    FoundState {
        shard: id(number),
        checkpoint,
        bytes,
    }
}

fn import(found: &[FoundState], rows: &[Lease], policy: ImportPolicy) -> Vec<StateStep> {
    let plan = plan_state_import(found, rows, policy, BYTES_MAX, ID, &asked());
    plan.into_iter().map(|edit| edit.step).collect()
}

fn place(step: &StateStep) -> &StateAt {
    match step {
        StateStep::Direct(edit) => &edit.at,
        StateStep::Refuse(refusal) => panic!("{refusal}"),
    }
}

fn codes(steps: &[StateStep]) -> Vec<&'static str> {
    let code = |step: &StateStep| match step {
        StateStep::Direct(_) => "direct",
        StateStep::Refuse(refusal) => refusal.code(),
    };
    steps.iter().map(code).collect()
}

#[test]
fn a_state_of_another_place_needs_somebody_who_says_what_becomes_of_the_shard() {
    let rows = [row(1, at("7")), row(2, at("9"))];
    let states = [found(1, at("7"), 10), found(2, at("7"), 10)];
    let matching = import(&states, &rows, ImportPolicy::Matching);
    assert_eq!(codes(&matching), ["direct", "elsewhere"]);
    assert_eq!(*place(&matching[0]), StateAt::Only(at("7")));
    let goes = import(&states, &rows, ImportPolicy::GoTo);
    assert_eq!(*place(&goes[1]), StateAt::GoTo(at("7")));
    let anywhere = import(&states, &rows, ImportPolicy::Anywhere);
    assert_eq!(*place(&anywhere[1]), StateAt::Anywhere);
}

#[test]
fn a_state_without_a_shard_to_take_it_or_too_large_a_one_is_refused() {
    let rows = [row(1, at("7")), row(2, Checkpoint::ShardEnd)];
    let states = [
        found(1, at("7"), BYTES_MAX),
        found(1, at("7"), 1),
        found(2, at("7"), 1),
        found(3, at("7"), 1),
    ];
    let steps = import(&states, &rows, ImportPolicy::Anywhere);
    assert_eq!(codes(&steps), ["direct", "twice", "finished", "unknown"]);
    let large = [found(1, at("7"), BYTES_MAX + 1)];
    let steps = import(&large, &rows, ImportPolicy::Anywhere);
    assert_eq!(codes(&steps), ["too-large"]);
}

#[test]
fn what_another_command_was_promised_is_not_overwritten_and_what_was_refused_is() {
    let mut sought = row(1, at("7"));
    sought.directives.seek = Some(Seek {
        to: Place::Horizon,
        only_forward: false,
        state: SeekState::Drop,
        asked: asked(),
    });
    let mut edited = row(2, at("7"));
    edited.directives.state = Some(StateEdit {
        to: NewState::None,
        at: StateAt::Anywhere,
        asked: asked(),
        refused: None,
    });
    let mut refused = edited.clone();
    refused.key = LeaseKey::of_shard(&id(3));
    refused.directives.state.as_mut().unwrap().refused = Some("too large".to_owned());
    let rows = [sought, edited, refused];
    let states: Vec<FoundState> = (1..=3).map(|n| found(n, at("7"), 1)).collect();
    let steps = import(&states, &rows, ImportPolicy::Matching);
    assert_eq!(codes(&steps), ["waiting", "waiting", "direct"]);
}

#[test]
fn a_reset_concerns_the_shards_that_have_a_state_or_those_that_are_named() {
    let rows = [row(1, at("7")), row(2, at("8")), row(3, at("9"))];
    let with_state = BTreeSet::from([rows[0].key.clone(), rows[2].key.clone()]);
    let shards = |only: Option<&BTreeSet<ShardId>>| {
        let plan = plan_state_reset(only, &rows, &with_state, &asked());
        let shards = plan.into_iter().map(|edit| {
            let step = codes(&[edit.step])[0];
            (edit.shard, step)
        });
        shards.collect::<Vec<_>>()
    };
    assert_eq!(shards(None), [(id(1), "direct"), (id(3), "direct")]);
    let named = BTreeSet::from([id(2), id(9)]);
    assert_eq!(
        shards(Some(&named)),
        [(id(2), "direct"), (id(9), "unknown")]
    );
}
