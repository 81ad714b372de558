//! The promises of a lease store about what operators want of shards.

use bytes::Bytes;
use shardmill_core::control::{
    Asked, Directives, NewState, Pause, Place, RecordRange, Seek, SeekState, Skip, StateAt,
    StateEdit, staged_key,
};
use shardmill_core::lease::{Checkpoint, Lease};
use shardmill_core::ports::{
    CheckpointWrite, Directing, LeaseStore, ObeyState, ObeyWrite, Progress, SavedState,
    ShardEndWrite, Took,
};
use shardmill_core::stream::SequenceNumber;

use super::lease_store::{applied, at, conflict, fresh, held, row, worker};

fn asked() -> Asked {
    Asked {
        by: "ops".to_owned(),
        why: "incident 7".to_owned(),
        at_ms: 5,
    }
}

/// Everything that can be wanted of a shard.
fn all_wanted(before: &Directives) -> Directives {
    let number = |text: &str| SequenceNumber::parse(text).expect("digits");
    let records = RecordRange::new(number("7"), number("9")).expect("in order");
    before.changed(|next| {
        next.pause = Some(Pause {
            asked: asked(),
            until_ms: Some(9),
        });
        next.seek = Some(Seek {
            only_forward: true,
            to: Place::Sequence(number("495")),
            state: SeekState::Drop,
            asked: asked(),
        });
        next.skip = Some(Skip {
            records,
            dead_letters: Some("letters".to_owned()),
            asked: asked(),
        });
        next.state = Some(StateEdit {
            to: NewState::Staged(staged().key),
            at: StateAt::Only(at("9", 3).checkpoint),
            asked: asked(),
            refused: Some("too large".to_owned()),
        });
    })
}

/// A lease whose key is that of a state which a command left: its state is in that row.
fn staged() -> Lease {
    let lease = fresh(0);
    let key = staged_key(&lease.key.shard_id(), 7).expect("a key");
    Lease { key, ..lease }
}

fn directed(directing: Directing) -> Lease {
    match directing {
        Directing::Applied(row) => *row,
        Directing::Changed(row) => panic!("changed: {row:?}"),
    }
}

/// The holder's writes go on as if nothing had happened; the answer says who it is.
pub async fn directives_change_nothing_that_the_holder_writes(store: &dyn LeaseStore) {
    let token = held(store, "a").await;
    let before = row(store, &token.key).await;
    let next = all_wanted(&before.directives);
    let after = directed(store.direct(&before, &next).await.expect("an answer"));
    let expected = Lease {
        directives: next.clone(),
        ..before
    };
    assert_eq!(after, expected);
    assert_eq!(row(store, &token.key).await, expected);
    let written = store.checkpoint(&token, &at("9", 0)).await;
    let token = applied(written.expect("an answer"));
    assert_eq!(row(store, &token.key).await.directives, next);
    applied(
        store
            .release(&token, &Progress::default())
            .await
            .expect("an answer"),
    );
    let free = row(store, &token.key).await;
    assert_eq!((free.owner.as_ref(), &free.directives), (None, &next));
}

/// Of two who read the same, one is told what the other wants.
pub async fn directives_that_changed_meanwhile_are_not_overwritten(store: &dyn LeaseStore) {
    let lease = fresh(0);
    store.create(&lease).await.expect("an answer");
    let first = all_wanted(&lease.directives);
    directed(store.direct(&lease, &first).await.expect("an answer"));
    let second = lease.directives.changed(|_| {});
    let changed = store.direct(&lease, &second).await.expect("an answer");
    let Directing::Changed(Some(seen)) = changed else {
        panic!("{changed:?}");
    };
    assert_eq!(seen.directives, first);
    let third = seen.directives.changed(|next| next.pause = None);
    directed(store.direct(&seen, &third).await.expect("an answer"));
    assert_eq!(
        store.direct(&fresh(1), &first).await,
        Ok(Directing::Changed(None)),
        "no row is made"
    );
}

/// Whoever takes a lease knows what is wanted at that moment, whatever its listing showed.
pub async fn a_take_returns_what_is_wanted(store: &dyn LeaseStore) {
    let lease = fresh(0);
    store.create(&lease).await.expect("an answer");
    let next = all_wanted(&lease.directives);
    directed(store.direct(&lease, &next).await.expect("an answer"));
    let took = store
        .take(&lease, &worker("a"), 7)
        .await
        .expect("an answer");
    let Took::Applied { directives, .. } = took else {
        panic!("{took:?}");
    };
    assert_eq!(*directives, next);
}

/// Nobody would do what is wanted of a shard that has ended: it does not end over that, and nothing
/// is asked of it that its row did not show as ended.
pub async fn a_shard_does_not_end_over_what_its_holder_has_not_read(store: &dyn LeaseStore) {
    let token = held(store, "a").await;
    let lease = row(store, &token.key).await;
    let first = all_wanted(&lease.directives);
    let seen = directed(store.direct(&lease, &first).await.expect("an answer"));
    let end = |seen_version| ShardEndWrite {
        children: Vec::new(),
        progress: Progress::default(),
        keeps_state: false,
        seen_version,
    };
    for outdated in [lease.directives.version, first.version + 1] {
        let answer = store.end(&token, &end(outdated)).await.expect("an answer");
        assert_eq!(conflict(answer), Some(seen.clone()));
    }
    let answer = store.end(&token, &end(first.version)).await;
    applied(answer.expect("an answer"));
    let second = first.changed(|next| next.pause = None);
    let late = store.direct(&seen, &second).await.expect("an answer");
    let Directing::Changed(Some(ended)) = late else {
        panic!("{late:?}");
    };
    assert!(ended.is_finished() && ended.directives == first);
    directed(store.direct(&ended, &second).await.expect("an answer"));
}

fn obeys(seen: &Directives, to: Option<Checkpoint>) -> ObeyWrite {
    ObeyWrite {
        seen_version: seen.version,
        next: seen.changed(|next| next.seek = None),
        to,
        state: ObeyState::Untouched,
        progress: Progress::default(),
    }
}

/// The place survives to the last digit, until something is settled.
pub async fn a_holder_goes_where_it_is_told_once(store: &dyn LeaseStore) {
    let mut token = held(store, "a").await;
    let mut seen = row(store, &token.key).await;
    let number = SequenceNumber::parse("49590338271490256608559692538361571095").expect("digits");
    for place in [Place::Horizon, Place::Time(7), Place::Sequence(number)] {
        let next = all_wanted(&seen.directives);
        seen = directed(store.direct(&seen, &next).await.expect("an answer"));
        let write = obeys(&seen.directives, Some(place.checkpoint()));
        let obeyed = applied(store.obey(&token, &write).await.expect("an answer"));
        assert_eq!(obeyed, token.advanced());
        let again = store.obey(&obeyed, &write).await.expect("an answer");
        let now = conflict(again).expect("a row");
        assert_eq!(
            (&now.checkpoint, &now.directives),
            (&place.checkpoint(), &write.next)
        );
        (token, seen) = (obeyed, now);
    }
    let written = store.checkpoint(&token, &at("9", 0)).await;
    let token = applied(written.expect("an answer"));
    let expected = at("9", 0).checkpoint;
    assert_eq!(row(store, &token.key).await.checkpoint, expected);
}

/// What operators want by now is not taken out of the row by a holder that read something else.
pub async fn a_holder_that_read_old_directives_changes_nothing(store: &dyn LeaseStore) {
    let token = held(store, "a").await;
    let lease = row(store, &token.key).await;
    let first = all_wanted(&lease.directives);
    let seen = directed(store.direct(&lease, &first).await.expect("an answer"));
    let withdrawn = first.changed(|next| next.seek = None);
    let now = directed(store.direct(&seen, &withdrawn).await.expect("an answer"));
    let write = obeys(&seen.directives, Some(Checkpoint::TrimHorizon));
    let answer = store.obey(&token, &write).await.expect("an answer");
    assert_eq!(conflict(answer), Some(now.clone()));
    assert_eq!(row(store, &token.key).await, now);
}

/// State and place never disagree.
pub async fn a_state_goes_with_the_place_or_is_removed_with_it(store: &dyn LeaseStore) {
    store.ensure_state_table().await.expect("a table");
    let token = held(store, "a").await;
    let saved = CheckpointWrite {
        state: Some(Bytes::from_static(b"state")),
        ..at("9", 0)
    };
    let token = applied(store.checkpoint(&token, &saved).await.expect("an answer"));
    let seen = row(store, &token.key).await;
    let place = Place::Time(7).checkpoint();
    let kept = SavedState {
        bytes: Bytes::from_static(b"state"),
        checkpoint: place.clone(),
        plugin_digest: None,
    };
    let next = all_wanted(&seen.directives);
    let seen = directed(store.direct(&seen, &next).await.expect("an answer"));
    let write = ObeyWrite {
        state: ObeyState::Moved(kept.clone()),
        ..obeys(&seen.directives, Some(place))
    };
    let token = applied(store.obey(&token, &write).await.expect("an answer"));
    assert_eq!(store.state(&token.key).await, Ok(Some(kept)));
    let seen = row(store, &token.key).await;
    let next = all_wanted(&seen.directives);
    let seen = directed(store.direct(&seen, &next).await.expect("an answer"));
    let write = ObeyWrite {
        state: ObeyState::Removed,
        ..obeys(&seen.directives, Some(Checkpoint::TrimHorizon))
    };
    applied(store.obey(&token, &write).await.expect("an answer"));
    assert_eq!(store.state(&token.key).await, Ok(None));
}

/// A state that a command left takes the place of the shard's own, and is left nowhere else; or, if
/// something else is wanted by now, nothing has changed.
pub async fn a_state_that_was_left_for_a_holder_is_taken_over_once(store: &dyn LeaseStore) {
    store.ensure_state_table().await.expect("a table");
    let left = staged();
    store.create(&left).await.expect("an answer");
    let took = store.take(&left, &worker("ops"), 7).await;
    let left = applied(took.expect("an answer").written());
    let saved = |bytes| CheckpointWrite {
        state: Some(Bytes::from_static(bytes)),
        ..at("9", 0)
    };
    let written = store.checkpoint(&left, &saved(b"new")).await;
    applied(written.expect("an answer"));
    let token = held(store, "a").await;
    let written = store.checkpoint(&token, &saved(b"old")).await;
    let token = applied(written.expect("an answer"));
    let seen = row(store, &token.key).await;
    let next = all_wanted(&seen.directives);
    let seen = directed(store.direct(&seen, &next).await.expect("an answer"));
    let state = SavedState {
        bytes: Bytes::from_static(b"new"),
        checkpoint: at("11", 3).checkpoint,
        plugin_digest: None,
    };
    let write = ObeyWrite {
        next: seen.directives.changed(|next| next.state = None),
        state: ObeyState::Imported {
            state: state.clone(),
            staged: left.key.clone(),
        },
        ..obeys(&seen.directives, Some(state.checkpoint.clone()))
    };
    let outdated = ObeyWrite {
        seen_version: write.seen_version + 1,
        ..write.clone()
    };
    let refused = store.obey(&token, &outdated).await.expect("an answer");
    assert!(conflict(refused).is_some());
    let old = store.state(&token.key).await.expect("an answer");
    assert_eq!(old.expect("a state").bytes, "old");
    assert!(store.state(&left.key).await.expect("an answer").is_some());
    applied(store.obey(&token, &write).await.expect("an answer"));
    assert_eq!(store.state(&token.key).await, Ok(Some(state.clone())));
    assert_eq!(store.state(&left.key).await, Ok(None));
    let now = row(store, &token.key).await;
    assert_eq!(
        (now.checkpoint, now.directives),
        (state.checkpoint, write.next)
    );
}
