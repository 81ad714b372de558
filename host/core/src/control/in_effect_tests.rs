use super::*;
use crate::control::{Asked, NewState, Place, RecordRange, SeekState, StateAt};
use crate::stream::{Position, SequenceNumber};

fn asked() -> Asked {
    Asked {
        by: "me".to_owned(),
        why: "test".to_owned(),
        at_ms: 0,
    }
}

fn pause(until_ms: Option<u64>) -> Pause {
    Pause {
        asked: asked(),
        until_ms,
    }
}

fn number(text: &str) -> SequenceNumber {
    SequenceNumber::parse(text).unwrap()
}

fn at(text: &str) -> Checkpoint {
    Checkpoint::At(Position::plain(number(text)))
}

fn reached(checkpoint: Checkpoint, is_all_read: bool) -> Reached {
    Reached {
        checkpoint,
        arrival_ms: None,
        is_all_read,
    }
}

fn on_the_way(number: &str) -> Reached {
    reached(at(number), false)
}

fn skip(first: &str, last: &str) -> Skip {
    Skip {
        records: RecordRange::new(number(first), number(last)).unwrap(),
        dead_letters: None,
        asked: asked(),
    }
}

#[test]
fn a_pause_holds_until_it_ends_and_the_fleets_holds_every_shard() {
    let mut directed = Directed::default();
    assert_eq!(directed.next_step(&on_the_way("5"), 0), NextStep::GoOn);
    directed.fleet_pause = Some(pause(None));
    directed.own.pause = Some(pause(Some(10)));
    assert_eq!(directed.pause_ends_in(4), Some(Duration::from_millis(6)));
    assert_eq!(directed.pause_ends_in(10), None, "the fleet's has no end");
    directed.fleet_pause = None;
    let own = pause(Some(10));
    assert_eq!(
        directed.next_step(&on_the_way("5"), 9),
        NextStep::StayPaused(&own)
    );
    assert_eq!(directed.next_step(&on_the_way("5"), 10), NextStep::GoOn);
}

#[test]
fn a_shard_is_sent_to_another_place_while_it_is_paused_and_stays_paused_there() {
    let seek = Seek {
        to: Place::Horizon,
        only_forward: false,
        state: SeekState::Drop,
        asked: asked(),
    };
    let mut directed = Directed::default();
    directed.own.pause = Some(pause(None));
    directed.own.seek = Some(seek.clone());
    assert_eq!(
        directed.next_step(&on_the_way("5"), 0),
        NextStep::Seek(&seek)
    );
}

#[test]
fn a_shard_that_is_to_go_forward_and_is_past_the_place_stays_where_it_is() {
    let seek = |to, only_forward| Seek {
        to,
        only_forward,
        state: SeekState::Absent,
        asked: asked(),
    };
    let is_at = |number: &str, arrival_ms| Reached {
        arrival_ms,
        ..on_the_way(number)
    };
    let to_number = Place::Sequence(number("7"));
    for (to, only_forward, reached, stays) in [
        (to_number.clone(), true, is_at("6", None), false),
        (to_number.clone(), true, is_at("7", None), true),
        (to_number.clone(), false, is_at("9", None), false),
        (Place::Time(70), true, is_at("9", Some(69)), false),
        (Place::Time(70), true, is_at("9", Some(70)), true),
        (Place::Time(70), true, is_at("9", None), false),
        (Place::Time(70), false, is_at("9", Some(99)), false),
        (
            to_number,
            true,
            reached(Checkpoint::TrimHorizon, false),
            false,
        ),
    ] {
        let seek = seek(to, only_forward);
        let mut directed = Directed::default();
        directed.own.seek = Some(seek.clone());
        let expected = if stays {
            NextStep::EndSeek(&seek, Stays::IsPast)
        } else {
            NextStep::Seek(&seek)
        };
        assert_eq!(directed.next_step(&reached, 0), expected, "{reached:?}");
    }
}

#[test]
fn a_skip_ends_once_all_that_was_packed_into_its_last_record_is_settled() {
    let mut directed = Directed::default();
    directed.own.skip = Some(skip("5", "9"));
    let wanted = skip("5", "9");
    for (checkpoint, is_all_read, ends) in [
        (Checkpoint::TrimHorizon, true, false),
        (at("8"), true, false),
        (at("9"), false, false),
        (at("9"), true, true),
        (at("10"), false, true),
        (Checkpoint::ShardEnd, false, true),
    ] {
        let shown = checkpoint.to_string();
        let reached = reached(checkpoint, is_all_read);
        let step = directed.next_step(&reached, 0);
        assert_eq!(step == NextStep::EndSkip(&wanted), ends, "{shown}");
    }
}

#[test]
fn an_old_look_at_the_row_takes_nothing_back() {
    let mut directed = Directed::default();
    let paused = directed.own.changed(|next| next.pause = Some(pause(None)));
    assert!(directed.see(&paused));
    let resumed = paused.changed(|next| next.pause = None);
    assert!(directed.see(&resumed));
    assert!(!directed.see(&paused), "a stale read");
    assert_eq!(directed.own, resumed);
}

#[test]
fn a_state_is_replaced_after_a_seek_and_before_a_pause_and_never_again_once_it_was_refused() {
    let mut edit = StateEdit {
        to: NewState::None,
        at: StateAt::Anywhere,
        asked: asked(),
        refused: None,
    };
    let seek = Seek {
        to: Place::Horizon,
        only_forward: false,
        state: SeekState::Keep,
        asked: asked(),
    };
    let mut directed = Directed::default();
    directed.own.pause = Some(pause(None));
    directed.own.state = Some(edit.clone());
    directed.own.seek = Some(seek.clone());
    let step = |directed: &Directed| format!("{:?}", directed.next_step(&on_the_way("5"), 0));
    assert_eq!(step(&directed), format!("{:?}", NextStep::Seek(&seek)));
    directed.own.seek = None;
    assert_eq!(step(&directed), format!("{:?}", NextStep::EditState(&edit)));
    edit.refused = Some("too large".to_owned());
    directed.own.state = Some(edit);
    let paused = NextStep::StayPaused(&pause(None));
    assert_eq!(step(&directed), format!("{paused:?}"));
}
