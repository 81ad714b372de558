//! The promises of the list of standalone hosts.

use std::time::Duration;

use shardmill_core::fleet::StandaloneHost;
use shardmill_core::lease::WorkerId;
use shardmill_core::ports::{Extent, PortFuture, Raced, StandaloneHosts};

use crate::fake_standalone_hosts::{FakeStandaloneHosts, WISHES};

/// The list, and hosts that have rows.
pub trait StandaloneControl: Send + Sync {
    /// The list.
    fn hosts(&self) -> &dyn StandaloneHosts;

    /// The host writes rows of each kind that hosts write.
    fn serve<'a>(&'a self, id: &'a WorkerId) -> PortFuture<'a, ()>;

    /// How many rows the host has, without its entry of the list.
    fn rows<'a>(&'a self, id: &'a WorkerId) -> PortFuture<'a, usize>;
}

impl StandaloneControl for FakeStandaloneHosts {
    fn hosts(&self) -> &dyn StandaloneHosts {
        self
    }

    fn serve<'a>(&'a self, id: &'a WorkerId) -> PortFuture<'a, ()> {
        self.start(id, 7);
        Box::pin(std::future::ready(()))
    }

    fn rows<'a>(&'a self, id: &'a WorkerId) -> PortFuture<'a, usize> {
        let rows = FakeStandaloneHosts::rows(self).get(id).copied();
        Box::pin(std::future::ready(rows.unwrap_or(0)))
    }
}

fn host(name: &str) -> WorkerId {
    WorkerId::new(name).expect("not empty")
}

fn entry(name: &str) -> StandaloneHost {
    StandaloneHost {
        id: host(name),
        beat: 1,
        seen_ms: 1_700_000_000_000,
        is_going: false,
        forget_after: Duration::from_hours(3),
        keeps_state: true,
    }
}

fn signed(entry: &StandaloneHost) -> StandaloneHost {
    StandaloneHost {
        beat: entry.beat + 1,
        seen_ms: entry.seen_ms + 5,
        ..entry.clone()
    }
}

/// Writes the mark under which the rows of `id` are removed.
async fn mark(control: &dyn StandaloneControl, id: &WorkerId) -> StandaloneHost {
    let seen = control.hosts().entry(id).await.expect("read");
    let next = match &seen {
        Some(seen) => seen.going(5),
        None => entry(id.as_str()).going(5),
    };
    let written = control.hosts().write(seen.as_ref(), &next).await;
    assert_eq!(written, Ok(Raced::Applied));
    next
}

/// Two processes under one id, or a host that comes back while it is removed: one of them learns of
/// the other.
pub async fn of_two_writes_on_the_same_sight_one_counts(control: &dyn StandaloneControl) {
    let (hosts, first) = (control.hosts(), entry("pod-1@zone"));
    assert_eq!(hosts.entry(&first.id).await, Ok(None));
    assert_eq!(hosts.write(None, &first).await, Ok(Raced::Applied));
    assert_eq!(hosts.write(None, &first).await, Ok(Raced::Lost));
    let (signed, going) = (self::signed(&first), first.going(6));
    assert_eq!(hosts.write(Some(&first), &going).await, Ok(Raced::Applied));
    assert_eq!(hosts.write(Some(&first), &signed).await, Ok(Raced::Lost));
    assert_eq!(hosts.entry(&first.id).await, Ok(Some(going)));
}

/// A host that has signed since is in the list for good reason.
pub async fn an_entry_is_removed_only_as_it_was_seen(control: &dyn StandaloneControl) {
    let (hosts, first) = (control.hosts(), entry("a"));
    let signed = self::signed(&first);
    assert_eq!(hosts.write(None, &first).await, Ok(Raced::Applied));
    assert_eq!(hosts.write(Some(&first), &signed).await, Ok(Raced::Applied));
    assert_eq!(hosts.remove(&first).await, Ok(Raced::Lost));
    assert_eq!(hosts.remove(&signed).await, Ok(Raced::Applied));
    assert_eq!(hosts.entry(&first.id).await, Ok(None));
}

/// In any order.
pub async fn all_entries_are_listed(control: &dyn StandaloneControl) {
    let (hosts, mut all) = (control.hosts(), Vec::new());
    for name in ["a", "b", "a-longer-name"] {
        all.push(entry(name));
        hosts.write(None, &entry(name)).await.expect("written");
    }
    let mut listed = hosts.list().await.expect("listed");
    let by_id = |a: &StandaloneHost, b: &StandaloneHost| a.id.cmp(&b.id);
    listed.sort_by(by_id);
    all.sort_by(by_id);
    assert_eq!(listed, all);
}

/// The rows of others have the same shards, and names that begin alike.
pub async fn what_a_host_left_is_removed_and_nothing_of_others(control: &dyn StandaloneControl) {
    let (gone, other) = (host("pod-1"), host("pod-10"));
    for id in [&gone, &other] {
        control.serve(id).await;
    }
    let before = control.rows(&other).await;
    assert!(before > 0 && control.rows(&gone).await == before);
    assert!(control.hosts().worker(&gone).await.expect("read").is_some());
    let mark = self::mark(control, &gone).await;
    let cleared = control.hosts().clear(&mark, Extent::All).await;
    assert_eq!(cleared, Ok(Raced::Applied));
    assert_eq!(control.rows(&gone).await, 0);
    assert_eq!(control.rows(&other).await, before);
}

/// A host that starts over is as paused as before, and knows which versions are bad.
pub async fn what_operators_want_and_the_history_stay_when_only_places_go(
    control: &dyn StandaloneControl,
) {
    let id = host("pod-1");
    control.serve(&id).await;
    let mark = self::mark(control, &id).await;
    let cleared = control.hosts().clear(&mark, Extent::Places).await;
    assert_eq!(cleared, Ok(Raced::Applied));
    assert_eq!(control.rows(&id).await, WISHES);
}

/// A removal that was delayed for long, while the host came back: it has replaced the mark.
pub async fn nothing_is_removed_once_the_mark_is_replaced(control: &dyn StandaloneControl) {
    let id = host("pod-1");
    let old = mark(control, &id).await;
    let newer = mark(control, &id).await;
    assert_ne!(old.beat, newer.beat);
    control.serve(&id).await;
    let before = control.rows(&id).await;
    for extent in [Extent::All, Extent::Places] {
        assert_eq!(control.hosts().clear(&old, extent).await, Ok(Raced::Lost));
    }
    let living = signed(&entry("pod-1"));
    let living = StandaloneHost {
        beat: newer.beat,
        ..living
    };
    assert_eq!(control.hosts().remove(&newer).await, Ok(Raced::Applied));
    assert_eq!(
        control.hosts().write(None, &living).await,
        Ok(Raced::Applied)
    );
    let cleared = control.hosts().clear(&newer, Extent::All).await;
    assert_eq!(cleared, Ok(Raced::Lost), "the same beat, and no mark");
    assert_eq!(control.rows(&id).await, before);
}

/// A removal that was interrupted is done again.
pub async fn what_is_not_there_is_removed_already(control: &dyn StandaloneControl) {
    let gone = host("pod-1");
    control.serve(&host("pod-2")).await;
    let mark = self::mark(control, &gone).await;
    let clear = async || control.hosts().clear(&mark, Extent::All).await;
    assert_eq!(clear().await, Ok(Raced::Applied));
    control.serve(&gone).await;
    for _ in 0..2 {
        assert_eq!(clear().await, Ok(Raced::Applied));
        assert_eq!(control.rows(&gone).await, 0);
    }
}
