//! The promises of a lease store.

use bytes::Bytes;
use shardmill_core::lease::{
    Checkpoint, ConflictVerdict, Lease, LeaseCounter, LeaseToken, WorkerId, judge_conflict,
};
use shardmill_core::plugin::{PluginDigest, StateFill};
use shardmill_core::ports::{
    CheckpointWrite, Created, Deleted, LeaseStore, Progress, ShardEndWrite, Took, Written,
};
use shardmill_core::stream::{HashKeyRange, LeaseKey, Position, SequenceNumber, Shard, ShardId};

fn shard_id(index: usize) -> ShardId {
    ShardId::new(format!("shardId-{index:012}")).expect("a valid id")
}

/// A row that nobody held yet, of the shard with this number; all but the first are its children.
pub fn fresh(index: usize) -> Lease {
    let parents = if index == 0 {
        Vec::new()
    } else {
        vec![shard_id(0)]
    };
    let shard = Shard {
        id: shard_id(index),
        parents,
        hash_range: HashKeyRange::FULL,
        ending_sequence: None,
    };
    Lease::fresh(&shard, Checkpoint::TrimHorizon)
}

pub(super) fn worker(name: &str) -> WorkerId {
    WorkerId::new(name).expect("not empty")
}

pub(super) fn applied(written: Written) -> LeaseToken {
    match written {
        Written::Applied(token) => token,
        Written::Conflict(row) => panic!("conflict with {row:?}"),
    }
}

pub(super) fn conflict(written: Written) -> Option<Lease> {
    match written {
        Written::Applied(token) => panic!("applied {token:?}"),
        Written::Conflict(row) => row.map(|row| *row),
    }
}

pub(super) async fn row(store: &dyn LeaseStore, key: &LeaseKey) -> Lease {
    store.get(key).await.expect("an answer").expect("a row")
}

pub(super) async fn held(store: &dyn LeaseStore, by: &str) -> LeaseToken {
    let lease = fresh(0);
    store.create(&lease).await.expect("an answer");
    applied(
        store
            .take(&lease, &worker(by), 7)
            .await
            .expect("an answer")
            .written(),
    )
}

pub(super) fn at(sequence: &str, sub_sequence: u64) -> CheckpointWrite {
    let position = Position {
        sequence: SequenceNumber::parse(sequence).expect("digits"),
        sub_sequence,
    };
    CheckpointWrite {
        checkpoint: Checkpoint::At(position),
        progress: Progress::default(),
        state: None,
    }
}

/// All attributes survive, parents and hash keys included; what is not there is `None`.
pub async fn a_row_is_read_back_as_it_was_created(store: &dyn LeaseStore) {
    for index in [0, 1] {
        let lease = fresh(index);
        assert_eq!(store.create(&lease).await, Ok(Created::New));
        assert_eq!(store.get(&lease.key).await, Ok(Some(lease)));
    }
    assert_eq!(store.get(&fresh(2).key).await, Ok(None));
}

/// Create is idempotent and never overwrites.
pub async fn creating_a_row_that_exists_leaves_it_alone(store: &dyn LeaseStore) {
    let token = held(store, "a").await;
    assert_eq!(store.create(&fresh(0)).await, Ok(Created::Existed));
    assert_eq!(row(store, &token.key).await.owner, Some(worker("a")));
}

/// The token continues the counter; an owner where there was none is no switch.
pub async fn taking_a_free_lease_makes_an_owner_and_raises_the_counter(store: &dyn LeaseStore) {
    let token = held(store, "a").await;
    assert_eq!(token.counter, LeaseCounter(1));
    let row = row(store, &token.key).await;
    assert_eq!(
        (row.owner, row.counter, row.owner_switches),
        (Some(worker("a")), LeaseCounter(1), 0)
    );
}

/// A switch is a change from one owner to another, not a retake.
pub async fn taking_from_another_owner_counts_the_switch(store: &dyn LeaseStore) {
    let token = held(store, "a").await;
    let seen = row(store, &token.key).await;
    applied(
        store
            .take(&seen, &worker("b"), 7)
            .await
            .expect("an answer")
            .written(),
    );
    let seen = row(store, &token.key).await;
    assert_eq!(
        (seen.owner.clone(), seen.owner_switches),
        (Some(worker("b")), 1)
    );
    applied(
        store
            .take(&seen, &worker("b"), 7)
            .await
            .expect("an answer")
            .written(),
    );
    assert_eq!(row(store, &token.key).await.owner_switches, 1);
}

/// L1: at most one write succeeds per counter.
pub async fn of_two_takes_on_the_same_sight_one_wins_and_the_other_sees_the_winner(
    store: &dyn LeaseStore,
) {
    let lease = fresh(0);
    store.create(&lease).await.expect("an answer");
    let (a, b) = (worker("a"), worker("b"));
    let (by_a, by_b) = tokio::join!(store.take(&lease, &a, 7), store.take(&lease, &b, 7));
    let written = [by_a, by_b].map(|took| took.expect("an answer").written());
    let winners: Vec<_> = written
        .iter()
        .filter(|w| matches!(w, Written::Applied(_)))
        .collect();
    assert_eq!(winners.len(), 1, "{written:?}");
    let [Written::Applied(winner)] = winners[..] else {
        return;
    };
    for lost in written.iter().filter(|w| matches!(w, Written::Conflict(_))) {
        let Written::Conflict(Some(row)) = lost else {
            panic!("a conflict without the row")
        };
        assert_eq!(row.owner.as_ref(), Some(&winner.owner));
    }
}

/// A renewal changes nothing but the counter and the notes for people.
pub async fn a_renewal_raises_the_counter_and_notes_progress(store: &dyn LeaseStore) {
    let token = held(store, "a").await;
    let digest = PluginDigest::from_hex(&"ab".repeat(32));
    let progress = Progress {
        plugin_digest: digest.clone(),
        millis_behind_latest: Some(1_500),
        settled_arrival_ms: Some(1_700_000_000_123),
        given_up: Some("skip of 7".to_owned()),
        state_fill: Some(StateFill(81)),
        ..Progress::default()
    };
    let token = applied(store.renew(&token, &progress).await.expect("an answer"));
    assert_eq!(token.counter, LeaseCounter(2));
    let token = applied(
        store
            .renew(&token, &Progress::default())
            .await
            .expect("an answer"),
    );
    let row = row(store, &token.key).await;
    assert_eq!(
        (row.counter, row.checkpoint),
        (LeaseCounter(3), Checkpoint::TrimHorizon)
    );
    assert_eq!(
        (row.plugin_digest, row.millis_behind_latest),
        (digest, Some(1_500))
    );
    assert_eq!(row.settled_arrival_ms, Some(1_700_000_000_123));
    assert_eq!(row.state_fill, Some(StateFill(81)));
    assert_eq!(
        row.given_up.as_deref(),
        Some("skip of 7"),
        "it stays until another one is given up"
    );
}

/// S: a worker that lost its lease changes nothing, whichever write it tries.
pub async fn a_stale_holder_can_write_nothing(store: &dyn LeaseStore) {
    let stale = held(store, "a").await;
    let seen = row(store, &stale.key).await;
    applied(
        store
            .take(&seen, &worker("b"), 7)
            .await
            .expect("an answer")
            .written(),
    );
    let before = row(store, &stale.key).await;
    let progress = Progress::default();
    let ended = ShardEndWrite {
        children: vec![shard_id(1)],
        progress: progress.clone(),
        keeps_state: false,
        seen_version: 0,
    };
    for written in [
        store.renew(&stale, &progress).await,
        store.checkpoint(&stale, &at("9", 0)).await,
        store.end(&stale, &ended).await,
        store.release(&stale, &Progress::default()).await,
        store.take(&seen, &worker("a"), 7).await.map(Took::written),
    ] {
        assert_eq!(conflict(written.expect("an answer")), Some(before.clone()));
    }
    assert_eq!(row(store, &stale.key).await, before);
}

/// Positions are kept to the last digit, sub-sequence included.
pub async fn a_checkpoint_moves_the_position_and_resets_the_switches(store: &dyn LeaseStore) {
    let token = held(store, "a").await;
    let seen = row(store, &token.key).await;
    let token = applied(
        store
            .take(&seen, &worker("b"), 7)
            .await
            .expect("an answer")
            .written(),
    );
    let write = at(
        "49640871423056104321897561048329857382957382957382957382",
        7,
    );
    let token = applied(store.checkpoint(&token, &write).await.expect("an answer"));
    let row = row(store, &token.key).await;
    assert_eq!(
        (row.checkpoint, row.counter),
        (write.checkpoint, token.counter)
    );
    assert_eq!((row.owner, row.owner_switches), (Some(worker("b")), 0));
}

/// `SHARD_END` and the children come in one write; a shard that was trimmed away has none.
pub async fn the_end_of_a_shard_is_written_with_its_children(store: &dyn LeaseStore) {
    let token = held(store, "a").await;
    let token = applied(
        store
            .checkpoint(&token, &at("9", 3))
            .await
            .expect("an answer"),
    );
    let write = ShardEndWrite {
        children: vec![shard_id(1), shard_id(2)],
        progress: Progress::default(),
        keeps_state: false,
        seen_version: 0,
    };
    let token = applied(store.end(&token, &write).await.expect("an answer"));
    let ended = row(store, &token.key).await;
    assert!(ended.is_finished());
    assert_eq!(ended.children, write.children);
    let none = ShardEndWrite {
        children: Vec::new(),
        progress: Progress::default(),
        keeps_state: false,
        seen_version: 0,
    };
    applied(store.end(&token, &none).await.expect("an answer"));
}

fn with_state(sequence: &str, state: &'static [u8]) -> CheckpointWrite {
    let plugin_digest = PluginDigest::from_hex(&"a".repeat(64));
    let progress = Progress {
        plugin_digest,
        ..Progress::default()
    };
    CheckpointWrite {
        progress,
        state: Some(Bytes::from_static(state)),
        ..at(sequence, 2)
    }
}

/// A state is there with its checkpoint, down to the last byte, and replaced by the next; the
/// lease's row is as without.
pub async fn state_comes_and_goes_with_its_checkpoint(store: &dyn LeaseStore) {
    store.ensure_state_table().await.expect("a table");
    store.ensure_state_table().await.expect("the same table");
    let token = held(store, "a").await;
    assert_eq!(store.state(&token.key).await, Ok(None));
    let mut token = token;
    for (sequence, state) in [("9", &b"\x00\xffone"[..]), ("11", b""), ("12", b"three")] {
        let write = with_state(sequence, state);
        token = applied(store.checkpoint(&token, &write).await.expect("an answer"));
        let saved = store
            .state(&token.key)
            .await
            .expect("an answer")
            .expect("a state");
        assert_eq!(saved.bytes, state);
        assert_eq!(saved.plugin_digest, write.progress.plugin_digest);
        let row = row(store, &token.key).await;
        assert_eq!(
            (saved.checkpoint, row.counter),
            (row.checkpoint, token.counter)
        );
    }
    let end = ShardEndWrite {
        children: Vec::new(),
        progress: Progress::default(),
        keeps_state: true,
        seen_version: 0,
    };
    applied(store.end(&token, &end).await.expect("an answer"));
    assert_eq!(
        store.state(&token.key).await,
        Ok(None),
        "it ends with the shard"
    );
}

/// S2 holds for state as for checkpoints: who lost the lease changes neither.
pub async fn a_stale_holder_can_write_no_state(store: &dyn LeaseStore) {
    store.ensure_state_table().await.expect("a table");
    let stale = held(store, "a").await;
    let stale = applied(
        store
            .checkpoint(&stale, &with_state("9", b"kept"))
            .await
            .expect("an answer"),
    );
    let seen = row(store, &stale.key).await;
    applied(
        store
            .take(&seen, &worker("b"), 7)
            .await
            .expect("an answer")
            .written(),
    );
    let before = row(store, &stale.key).await;
    let end = ShardEndWrite {
        children: Vec::new(),
        progress: Progress::default(),
        keeps_state: true,
        seen_version: 0,
    };
    for written in [
        store.checkpoint(&stale, &with_state("10", b"lost")).await,
        store.end(&stale, &end).await,
    ] {
        assert_eq!(conflict(written.expect("an answer")), Some(before.clone()));
    }
    assert_eq!(
        store
            .state(&stale.key)
            .await
            .expect("an answer")
            .expect("a state")
            .bytes,
        &b"kept"[..]
    );
    store.delete(&before).await.expect("an answer");
    let written = store
        .checkpoint(&stale, &with_state("10", b"lost"))
        .await
        .expect("an answer");
    assert_eq!(conflict(written), None, "there is no row any more");
}

/// The counter moves with a release too, so that the old token is fenced.
pub async fn a_released_lease_is_free_and_the_token_is_void(store: &dyn LeaseStore) {
    let token = held(store, "a").await;
    applied(
        store
            .release(&token, &Progress::default())
            .await
            .expect("an answer"),
    );
    let free = row(store, &token.key).await;
    assert_eq!(
        (free.owner.clone(), free.counter),
        (None, token.counter.next())
    );
    let written = store
        .renew(&token, &Progress::default())
        .await
        .expect("an answer");
    assert_eq!(conflict(written), Some(free.clone()));
    applied(
        store
            .take(&free, &worker("b"), 7)
            .await
            .expect("an answer")
            .written(),
    );
}

/// A claim names the claimant and moves nothing else; the owner goes on as before, and its release
/// keeps the claim.
pub async fn a_claim_asks_the_owner_and_fences_nobody(store: &dyn LeaseStore) {
    let token = held(store, "a").await;
    let seen = row(store, &token.key).await;
    applied(store.claim(&seen, &worker("b")).await.expect("an answer"));
    let claimed = row(store, &token.key).await;
    assert_eq!(
        claimed,
        Lease {
            claimant: Some(worker("b")),
            ..seen.clone()
        }
    );
    // On the same sight, nobody else gets it.
    assert_eq!(
        conflict(store.claim(&seen, &worker("c")).await.expect("an answer")),
        Some(claimed.clone())
    );
    let token = applied(
        store
            .checkpoint(&token, &at("9", 0))
            .await
            .expect("an answer"),
    );
    applied(
        store
            .release(&token, &Progress::default())
            .await
            .expect("an answer"),
    );
    let free = row(store, &token.key).await;
    assert_eq!((&free.owner, &free.claimant), (&None, &Some(worker("b"))));
    applied(
        store
            .take(&free, &worker("b"), 9)
            .await
            .expect("an answer")
            .written(),
    );
    let taken = row(store, &token.key).await;
    assert_eq!(
        (taken.owner, taken.claimant, taken.held_since_ms),
        (Some(worker("b")), None, Some(9))
    );
}

/// A claim in vain may be replaced by whoever saw it; a free lease cannot be claimed, since it can
/// be taken.
pub async fn a_claim_in_vain_is_replaced(store: &dyn LeaseStore) {
    let token = held(store, "a").await;
    applied(
        store
            .claim(&row(store, &token.key).await, &worker("b"))
            .await
            .expect("an answer"),
    );
    let seen = row(store, &token.key).await;
    applied(store.claim(&seen, &worker("c")).await.expect("an answer"));
    assert_eq!(row(store, &token.key).await.claimant, Some(worker("c")));
    applied(
        store
            .release(&token, &Progress::default())
            .await
            .expect("an answer"),
    );
    let free = row(store, &token.key).await;
    conflict(store.claim(&free, &worker("b")).await.expect("an answer"));
}

/// A row is removed only as it was seen; one that is gone already is no trouble.
pub async fn a_row_is_deleted_only_if_nothing_changed(store: &dyn LeaseStore) {
    let token = held(store, "a").await;
    let seen = row(store, &token.key).await;
    applied(
        store
            .renew(&token, &Progress::default())
            .await
            .expect("an answer"),
    );
    assert_eq!(store.delete(&seen).await, Ok(Deleted::Changed));
    let now = row(store, &token.key).await;
    assert_eq!(store.delete(&now).await, Ok(Deleted::Gone));
    assert_eq!(store.get(&token.key).await, Ok(None));
    assert_eq!(store.delete(&now).await, Ok(Deleted::Gone));
}

/// Trouble is noted with a renewal and cleared by the next write that knows of none.
pub async fn trouble_and_throughput_are_noted_for_people(store: &dyn LeaseStore) {
    let token = held(store, "a").await;
    let stuck = Some("attempt 3 failed".to_owned());
    let progress = Progress {
        stuck: stuck.clone(),
        bytes_per_second: Some(12_345),
        ..Progress::default()
    };
    let token = applied(store.renew(&token, &progress).await.expect("an answer"));
    let noted = row(store, &token.key).await;
    assert_eq!((noted.stuck, noted.bytes_per_second), (stuck, Some(12_345)));
    let token = applied(
        store
            .checkpoint(&token, &at("9", 0))
            .await
            .expect("an answer"),
    );
    assert_eq!(row(store, &token.key).await.stuck, None);
}

/// And makes no row.
pub async fn a_write_to_a_row_that_is_not_there_is_a_conflict_without_a_row(
    store: &dyn LeaseStore,
) {
    let lease = fresh(0);
    let token = lease.token(worker("a"));
    assert_eq!(
        conflict(
            store
                .take(&lease, &worker("a"), 7)
                .await
                .expect("an answer")
                .written()
        ),
        None
    );
    assert_eq!(
        conflict(
            store
                .renew(&token, &Progress::default())
                .await
                .expect("an answer")
        ),
        None
    );
    assert_eq!(
        conflict(
            store
                .release(&token, &Progress::default())
                .await
                .expect("an answer")
        ),
        None
    );
    assert_eq!(store.get(&lease.key).await, Ok(None));
}

/// More rows than a page of the adapter under test holds.
pub async fn all_rows_are_listed(store: &dyn LeaseStore) {
    const ROWS: usize = 23;
    assert!(store.list().await.expect("an answer").leases.is_empty());
    for index in 0..ROWS {
        store.create(&fresh(index)).await.expect("an answer");
    }
    let listing = store.list().await.expect("an answer");
    let mut keys: Vec<_> = listing
        .leases
        .iter()
        .map(|lease| lease.key.clone())
        .collect();
    keys.sort();
    let expected: Vec<_> = (0..ROWS)
        .map(|index| LeaseKey::of_shard(&shard_id(index)))
        .collect();
    assert_eq!(
        (keys, listing.bad_rows.len(), listing.foreign_rows),
        (expected, 0, 0)
    );
}

/// A write that was applied although its answer got lost is recognised when it is sent again.
pub async fn a_lost_answer_is_settled_by_the_row_itself(store: &dyn LeaseStore) {
    let token = held(store, "a").await;
    applied(
        store
            .checkpoint(&token, &at("9", 0))
            .await
            .expect("an answer"),
    );
    let again = store
        .checkpoint(&token, &at("9", 0))
        .await
        .expect("an answer");
    let row = conflict(again);
    assert_eq!(
        judge_conflict(&token, row.as_ref()),
        ConflictVerdict::AppliedEarlier
    );
}
