use super::*;
use shardmill_core::artifact::ArtifactRef;
use shardmill_core::control::{DeployAsked, Deployed, Finding, NewState, StateAt};
use shardmill_core::lease::{Checkpoint, Sought};
use shardmill_core::stream::LeaseKey;

use crate::dynamodb::deploy_item::REFERENCE;

fn asked() -> Asked {
    Asked {
        by: "ops".to_owned(),
        why: "incident 7".to_owned(),
        at_ms: 5,
    }
}

fn number_of(text: &str) -> SequenceNumber {
    SequenceNumber::parse(text).unwrap()
}

fn all() -> Directives {
    let records = RecordRange::new(number_of("7"), number_of("9")).unwrap();
    Directives {
        version: 3,
        pause: Some(Pause {
            asked: asked(),
            until_ms: Some(9),
        }),
        seek: Some(Seek {
            only_forward: true,
            to: Place::Horizon,
            state: SeekState::Keep,
            asked: asked(),
        }),
        skip: Some(Skip {
            records,
            dead_letters: Some("letters".to_owned()),
            asked: asked(),
        }),
        state: Some(StateEdit {
            to: NewState::Staged(LeaseKey::new("staged:7:shard").unwrap()),
            at: StateAt::Only(Checkpoint::parse("495", 3).unwrap()),
            asked: asked(),
            refused: Some("too large".to_owned()),
        }),
    }
}

#[test]
fn all_that_can_be_wanted_survives_a_round_trip() {
    let mut directives = all();
    assert_eq!(decode(&encode(&directives)), directives);
    for to in [Place::Time(7), Place::Sequence(number_of("495"))] {
        let seek = directives.seek.as_mut().unwrap();
        (seek.to, seek.state) = (to, SeekState::Drop);
        directives.skip.as_mut().unwrap().dead_letters = None;
        directives.pause.as_mut().unwrap().until_ms = None;
        assert_eq!(decode(&encode(&directives)), directives);
    }
    for (to, at) in [
        (NewState::None, StateAt::Anywhere),
        (
            NewState::Staged(LeaseKey::new("staged:7:shard").unwrap()),
            StateAt::GoTo(Checkpoint::Sought(Sought::Time(7))),
        ),
    ] {
        let edit = directives.state.as_mut().unwrap();
        (edit.to, edit.at, edit.refused) = (to, at, None);
        assert_eq!(decode(&encode(&directives)), directives);
    }
    let none = Directives::default();
    assert_eq!(decode(&encode(&none)), none);
    let drains = BTreeMap::from([(WorkerId::new("host").unwrap(), asked())]);
    let control = Control {
        version: 2,
        pause: directives.pause.clone(),
        drains,
        reload: Some(ReloadAsked {
            asked: asked(),
            worker: WorkerId::new("host"),
        }),
        shadow: Some(ShadowAsked {
            asked: asked(),
            digest: PluginDigest::from_hex(&"7".repeat(64)).unwrap(),
            verb: ShadowVerb::Promote,
        }),
        deploy: Some(DeployAsked {
            asked: asked(),
            reference: pinned("5"),
            version: PluginDigest::from_hex(&"8".repeat(64)).unwrap(),
            before: Some(Deployed {
                reference: pinned("4"),
                version: PluginDigest::from_hex(&"3".repeat(64)),
            }),
            is_in_turns: true,
            proven: Some(found()),
            failed: Some(found()),
        }),
        unread_deploy: None,
    };
    assert_eq!(
        decode_control(&encode_control(&control)),
        Ok(control.clone())
    );
    let mut for_all = control;
    for_all.reload.as_mut().unwrap().worker = None;
    let deploy = for_all.deploy.as_mut().unwrap();
    (deploy.before, deploy.proven, deploy.failed) = (None, None, None);
    let mut item = encode_control(&for_all);
    assert_eq!(decode_control(&item), Ok(for_all));
    // A host that cannot read for whom it is does nothing.
    let AttributeValue::M(reload) = item.get_mut(RELOAD).unwrap() else {
        panic!("a map");
    };
    reload.insert(WORKER.to_owned(), number(7_u64));
    assert_eq!(decode_control(&item).unwrap().reload, None);
    // Nor one that does not know what is to become of a shadow.
    let AttributeValue::M(shadow) = item.get_mut(SHADOW).unwrap() else {
        panic!("a map");
    };
    shadow.insert(VERB.to_owned(), text("frame"));
    assert_eq!(decode_control(&item).unwrap().shadow, None);
    // One that cannot read which version it is to pull knows that there is one.
    let AttributeValue::M(deploy) = item.get_mut(DEPLOY).unwrap() else {
        panic!("a map");
    };
    deploy.insert(REFERENCE.to_owned(), text("gs://x"));
    let read = decode_control(&item).unwrap();
    assert_eq!(read.deploy, None);
    let why = read.unread_deploy.unwrap();
    assert!(why.starts_with("reference"), "{why}");
}

fn found() -> Finding {
    Finding {
        by: "host".to_owned(),
        why: "it fails".to_owned(),
        at_ms: 7,
    }
}

#[test]
fn a_change_of_the_control_row_leaves_alone_what_it_does_not_change_or_know() {
    let mut item = encode_control(&Control {
        version: 4,
        ..Control::default()
    });
    item.insert("newer".to_owned(), text("x"));
    item.insert(DEPLOY.to_owned(), text("as a newer command writes it"));
    let seen = decode_control(&item).unwrap();
    let asked = asked();
    let paused = seen.changed(|next| {
        next.pause = Some(Pause {
            asked,
            until_ms: None,
        });
    });
    let (set, gone) = control_changes(&seen, &paused);
    let names: Vec<&str> = set.keys().map(String::as_str).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(set.contains_key(PAUSE) && set.contains_key(VERSION));
    assert!(gone.is_empty(), "{gone:?}");
    let ended = seen.changed(|next| next.unread_deploy = None);
    assert_eq!(control_changes(&seen, &ended).1, [DEPLOY]);
}

fn pinned(digit: &str) -> ArtifactRef {
    let text = format!("oci://r.example/alerts@sha256:{}", digit.repeat(64));
    ArtifactRef::parse(&text).unwrap()
}

#[test]
fn directives_that_cannot_be_read_pause_the_shard_and_say_what_is_wrong() {
    let AttributeValue::M(whole) = encode(&all()) else {
        panic!("a map");
    };
    let mut newer = whole.clone();
    newer.insert("replay".to_owned(), text("x"));
    let mut backwards = whole.clone();
    let records = Item::from([(FIRST.to_owned(), text("9")), (LAST.to_owned(), text("7"))]);
    backwards.insert(SKIP.to_owned(), AttributeValue::M(records));
    let mut ended = whole.clone();
    let edit = ended.get_mut(STATE_EDIT).unwrap();
    let AttributeValue::M(edit) = edit else {
        panic!("a map");
    };
    edit.insert("checkpoint".to_owned(), text("SHARD_END"));
    for (item, word) in [
        (AttributeValue::M(ended), "the end of a shard has no state"),
        (AttributeValue::M(newer), "replay is unknown"),
        (AttributeValue::M(backwards), "last comes before first"),
        (text("x"), "not a map"),
    ] {
        let read = decode(&item);
        let pause = read.pause.as_ref().unwrap();
        assert!(pause.asked.why.contains(word), "{}", pause.asked.why);
        assert!(read.version > 0, "else it would count as seen");
        assert_eq!((&read.seek, &read.skip, &read.state), (&None, &None, &None));
    }
}

#[test]
fn a_pause_of_all_hosts_that_cannot_be_read_is_one_and_drains_are_limited() {
    let mut control = Control {
        version: 4,
        ..Control::default()
    };
    for number in 0..2 * DRAINS_MAX {
        let worker = WorkerId::new(&format!("host-{number}")).unwrap();
        control.drains.insert(worker, asked());
    }
    let mut item = encode_control(&control);
    item.insert(PAUSE.to_owned(), text("yes"));
    let read = decode_control(&item).unwrap();
    assert!(read.pause.is_some());
    assert_eq!(read.drains.len(), DRAINS_MAX);
}
