//! What only commands read and write.

use shardmill_aws::{CoordinatorTable, RowMove};
use shardmill_core::control::{Asked, Deed, HistoryEntry, Pause, Place, Seek, SeekState};
use shardmill_core::ports::{Coordinator, Directing, ShardEndWrite};

use super::*;

fn entry(at_ms: u64, deed: Deed) -> HistoryEntry {
    HistoryEntry {
        at_ms,
        by: "a".to_owned(),
        deed,
        shard: None,
        details: at_ms.to_string(),
        why: String::new(),
    }
}

#[tokio::test]
async fn what_is_meant_is_found_in_a_history_behind_any_number_of_other_entries() {
    let (_stack, clients) = in_memory().await;
    let table = CoordinatorTable::new(clients.dynamodb.clone(), "app");
    table.ensure_table().await.unwrap();
    table.record(&entry(1, Deed::Pause)).await.unwrap();
    for at_ms in 2..1_100 {
        table.record(&entry(at_ms, Deed::Took)).await.unwrap();
    }
    let commands = table.history(0, 100, |entry| entry.deed.is_wanted()).await;
    let commands = commands.unwrap();
    assert_eq!(commands.entries, [entry(1, Deed::Pause)]);
    assert!(commands.is_searched);
    let latest = table.history(0, 2, |_| true).await.unwrap();
    let expected = [entry(1_098, Deed::Took), entry(1_099, Deed::Took)];
    assert_eq!(
        (latest.entries.as_slice(), latest.is_searched),
        (&expected[..], true)
    );
    let later = table.history(2, 100, |entry| entry.deed.is_wanted()).await;
    assert_eq!(later.unwrap().entries, []);
}

#[tokio::test]
async fn of_a_shard_that_is_opened_again_nothing_is_wanted_that_was_wanted_before_it_ended() {
    let (_stack, clients) = in_memory().await;
    let table = LeaseTable::new(clients.dynamodb.clone(), "app");
    table.ensure_table().await.unwrap();
    let lease = lease("shardId-000000000000");
    let Written::Applied(token) = take_fresh(&table, &lease).await else {
        panic!("not taken");
    };
    let end = ShardEndWrite {
        children: Vec::new(),
        progress: Progress::default(),
        keeps_state: false,
        seen_version: 0,
    };
    let Written::Applied(token) = table.end(&token, &end).await.unwrap() else {
        panic!("not ended");
    };
    table.release(&token, &Progress::default()).await.unwrap();
    let ended = table.get(&lease.key).await.unwrap().unwrap();
    let asked = Asked {
        by: "ops".to_owned(),
        why: "a test".to_owned(),
        at_ms: 5,
    };
    // As an older version of the command left it.
    let next = ended.directives.changed(|next| {
        next.pause = Some(Pause {
            asked: asked.clone(),
            until_ms: None,
        });
        next.seek = Some(Seek {
            to: Place::Time(7),
            only_forward: false,
            state: SeekState::Keep,
            asked: asked.clone(),
        });
    });
    let Directing::Applied(seen) = table.direct(&ended, &next).await.unwrap() else {
        panic!("not directed");
    };
    let to = Place::Horizon.checkpoint();
    assert_eq!(table.reopen(&seen, &to).await, Ok(RowMove::Moved));
    let open = table.get(&lease.key).await.unwrap().unwrap();
    assert_eq!(open.checkpoint, to);
    assert_eq!(open.directives, next.changed(|next| next.seek = None));
}
