use super::*;
use crate::control::{NewState, StateAt, StateEdit};
use crate::stream::{HashKeyRange, Position, SequenceNumber};

fn id(number: u32) -> ShardId {
    ShardId::new(format!("shardId-{number:012}")).unwrap()
}

fn shard(number: u32, parents: &[u32]) -> Shard {
    Shard {
        id: id(number),
        parents: parents.iter().copied().map(id).collect(),
        hash_range: HashKeyRange::FULL,
        ending_sequence: None,
    }
}

fn at(number: &str) -> Checkpoint {
    Checkpoint::At(Position::plain(SequenceNumber::parse(number).unwrap()))
}

fn row(number: u32, parents: &[u32], checkpoint: Checkpoint) -> Lease {
    Lease::fresh(&shard(number, parents), checkpoint)
}

fn asked() -> Asked {
    Asked {
        by: "me".to_owned(),
        why: "test".to_owned(),
        at_ms: 7,
    }
}

/// Each shard's number, where it goes, and the kind of its step.
fn rows(plan: &[ShardSeek]) -> Vec<(String, String, &'static str)> {
    let tell = |seek: &ShardSeek| {
        let kind = match &seek.step {
            SeekStep::Direct { .. } => "direct",
            SeekStep::Reopen(_) => "reopen",
            SeekStep::Create(_) => "create",
            SeekStep::Refuse(refusal) => refusal.code(),
        };
        let number = seek
            .shard
            .as_str()
            .trim_start_matches("shardId-00000000000");
        (number.to_owned(), seek.to.to_string(), kind)
    };
    plan.iter().map(tell).collect()
}

fn expected(told: &[(&str, &str, &'static str)]) -> Vec<(String, String, &'static str)> {
    let tell = |(number, to, kind): &(&str, &str, &'static str)| {
        ((*number).to_owned(), (*to).to_owned(), *kind)
    };
    told.iter().map(tell).collect()
}

struct Scene {
    rows: Vec<Lease>,
    listed: Vec<Shard>,
    with_state: BTreeSet<LeaseKey>,
}

/// 0 was split into 1 and 2; 3 came of 1 and 2. The row of 0 was removed, 1 and 2 are finished.
fn resharded() -> Scene {
    Scene {
        rows: vec![
            row(1, &[0], Checkpoint::ShardEnd),
            row(2, &[0], Checkpoint::ShardEnd),
            row(3, &[1, 2], at("500")),
        ],
        listed: vec![
            shard(0, &[]),
            shard(1, &[0]),
            shard(2, &[0]),
            shard(3, &[1, 2]),
        ],
        with_state: BTreeSet::new(),
    }
}

impl Scene {
    fn plan(
        &self,
        to: &Place,
        only: Option<&BTreeSet<ShardId>>,
        reopens_finished: bool,
        state: Option<SeekState>,
    ) -> Vec<ShardSeek> {
        plan_seek(&SeekRequest {
            to,
            is_ahead: false,
            only,
            reopens_finished,
            state,
            asked: &asked(),
            rows: &self.rows,
            listed: &self.listed,
            with_state: &self.with_state,
        })
    }
}

#[test]
fn without_a_shard_named_all_that_are_not_finished_go_there() {
    let scene = Scene {
        rows: vec![row(0, &[], at("9")), row(1, &[], Checkpoint::TrimHorizon)],
        listed: vec![shard(0, &[]), shard(1, &[])],
        with_state: BTreeSet::new(),
    };
    let plan = scene.plan(&Place::Time(1_767_225_600_000), None, false, None);
    let place = "2026-01-01T00:00:00Z";
    assert_eq!(
        rows(&plan),
        expected(&[("0", place, "direct"), ("1", place, "direct")])
    );
    let SeekStep::Direct { seen, next } = &plan[0].step else {
        panic!("{plan:?}");
    };
    assert_eq!((seen.directives.version, next.version), (0, 1));
    let seek = next.seek.as_ref().unwrap();
    assert_eq!((&seek.to, seek.asked.why.as_str()), (&plan[0].to, "test"));
}

#[test]
fn finished_shards_stay_finished_unless_they_are_opened_again_and_one_that_is_named_says_so() {
    let scene = resharded();
    let plan = scene.plan(&Place::Horizon, None, false, None);
    assert_eq!(rows(&plan), expected(&[("3", "horizon", "direct")]));
    let only = BTreeSet::from([id(0), id(1), id(9)]);
    let plan = scene.plan(&Place::Horizon, Some(&only), false, None);
    assert_eq!(
        rows(&plan),
        expected(&[
            ("0", "horizon", "finished"),
            ("9", "horizon", "unknown"),
            ("1", "horizon", "finished"),
        ])
    );
}

#[test]
fn what_comes_after_a_shard_that_is_opened_again_is_read_from_its_beginning_parents_first() {
    let scene = resharded();
    let time = Place::Time(1_767_225_600_000);
    let plan = scene.plan(&time, None, true, None);
    assert_eq!(
        rows(&plan),
        expected(&[
            ("0", "2026-01-01T00:00:00Z", "create"),
            ("1", "horizon", "reopen"),
            ("2", "horizon", "reopen"),
            ("3", "horizon", "direct"),
        ])
    );
    let only = BTreeSet::from([id(1)]);
    let plan = scene.plan(&time, Some(&only), true, None);
    assert_eq!(
        rows(&plan),
        expected(&[
            ("1", "2026-01-01T00:00:00Z", "reopen"),
            ("3", "horizon", "direct"),
        ]),
        "2 is not concerned, and stays finished"
    );
}

#[test]
fn a_plugin_with_state_is_asked_about_it() {
    let mut scene = resharded();
    scene.with_state.insert(LeaseKey::of_shard(&id(3)));
    let plan = scene.plan(&Place::Horizon, None, false, None);
    assert_eq!(rows(&plan), expected(&[("3", "horizon", "has-state")]));
    let plan = scene.plan(&Place::Horizon, None, false, Some(SeekState::Keep));
    let SeekStep::Direct { next, .. } = &plan[0].step else {
        panic!("{plan:?}");
    };
    assert_eq!(next.seek.as_ref().unwrap().state, SeekState::Keep);
}

#[test]
fn rows_that_name_each_other_as_parents_end_the_plan_all_the_same() {
    let scene = Scene {
        rows: vec![row(0, &[1], at("9")), row(1, &[0], at("9"))],
        listed: Vec::new(),
        with_state: BTreeSet::new(),
    };
    let plan = scene.plan(&Place::Horizon, None, true, None);
    assert_eq!(plan.len(), 2);
}

#[test]
fn only_a_seek_that_is_known_to_leave_records_out_is_forward_and_never_one_to_the_oldest() {
    let sought = |to: Place, checkpoint, arrival_ms| {
        let mut row = row(0, &[], checkpoint);
        row.settled_arrival_ms = arrival_ms;
        let scene = Scene {
            rows: vec![row],
            listed: vec![shard(0, &[])],
            with_state: BTreeSet::new(),
        };
        match &scene.plan(&to, None, false, None)[0].step {
            SeekStep::Direct { next, .. } => next.seek.as_ref().unwrap().only_forward,
            step => panic!("{step:?}"),
        }
    };
    let number = |text| Place::Sequence(SequenceNumber::parse(text).unwrap());
    for (to, checkpoint, arrival_ms, is_forward) in [
        (number("10"), at("9"), None, true),
        (number("9"), at("9"), None, false),
        (number("8"), at("9"), None, false),
        (Place::Time(70), at("9"), Some(69), true),
        (Place::Time(70), at("9"), Some(70), false),
        (Place::Time(70), at("9"), None, false),
        (Place::Time(70), Checkpoint::TrimHorizon, None, true),
        (Place::Time(70), number("9").checkpoint(), None, false),
        (Place::Time(70), Place::Time(60).checkpoint(), None, true),
        (Place::Time(60), Place::Time(70).checkpoint(), None, false),
        (Place::Horizon, at("9"), None, false),
        (Place::Horizon, Checkpoint::TrimHorizon, None, false),
        (Place::Horizon, Place::Horizon.checkpoint(), None, false),
    ] {
        let shown = format!("{checkpoint} to {to}");
        assert_eq!(sought(to, checkpoint, arrival_ms), is_forward, "{shown}");
    }
}

#[test]
fn a_place_that_was_asked_for_as_ahead_is_never_gone_back_to_but_a_child_begins_at_its_oldest_record()
 {
    let parent = row(0, &[], Checkpoint::ShardEnd);
    let child = row(1, &[0], at("9"));
    let alone = row(2, &[], at("9"));
    let request = SeekRequest {
        to: &Place::Time(70),
        is_ahead: true,
        only: None,
        reopens_finished: true,
        state: None,
        asked: &asked(),
        rows: &[parent, child, alone],
        listed: &[shard(0, &[]), shard(1, &[0]), shard(2, &[])],
        with_state: &BTreeSet::new(),
    };
    let mut directed = BTreeMap::new();
    for seek in plan_seek(&request) {
        if let SeekStep::Direct { next, .. } = seek.step {
            let seek_of_shard = next.seek.unwrap();
            directed.insert(seek.shard, (seek_of_shard.to, seek_of_shard.only_forward));
        }
    }
    assert_eq!(directed[&id(1)], (Place::Horizon, false));
    assert_eq!(directed[&id(2)], (Place::Time(70), true));
}

#[test]
fn a_shard_of_which_somebody_wants_something_else_that_waits_to_be_done_is_refused() {
    let edit = StateEdit {
        to: NewState::None,
        at: StateAt::Anywhere,
        asked: asked(),
        refused: None,
    };
    let seek = Seek {
        to: Place::Time(5),
        only_forward: false,
        state: SeekState::Drop,
        asked: asked(),
    };
    let mut over = edit.clone();
    over.refused = Some("no".to_owned());
    let changes: [&dyn Fn(&mut Directives); 3] = [
        &|next| next.state = Some(edit.clone()),
        &|next| next.seek = Some(seek.clone()),
        &|next| next.state = Some(over.clone()),
    ];
    for (change, expected) in changes.into_iter().zip(["waiting", "waiting", "direct"]) {
        let mut scene = resharded();
        for row in &mut scene.rows {
            row.directives = row.directives.changed(change);
        }
        let plan = scene.plan(&Place::Horizon, None, false, Some(SeekState::Drop));
        assert_eq!(rows(&plan)[0].2, expected);
    }
}

#[test]
fn what_was_wanted_of_a_shard_before_it_ended_is_no_obstacle_to_opening_it_again() {
    let mut scene = resharded();
    let seek = Seek {
        to: Place::Time(5),
        only_forward: false,
        state: SeekState::Drop,
        asked: asked(),
    };
    for row in &mut scene.rows[..2] {
        let wanted = row
            .directives
            .changed(|next| next.seek = Some(seek.clone()));
        row.directives = wanted;
    }
    let plan = scene.plan(&Place::Horizon, None, true, None);
    let kinds: Vec<&str> = rows(&plan).iter().map(|(_, _, kind)| *kind).collect();
    assert_eq!(kinds, ["create", "reopen", "reopen", "direct"]);
}
