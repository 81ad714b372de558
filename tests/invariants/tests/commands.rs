//! S22 to S25: what operators want of a fleet, and what it does about it.

use super::story::{SECOND, Story, at, place};
use crate::Invariant::{NoLoss, S4, S8, S9, S22, S23, S24, S25};
use crate::history::{
    Checkpoint, FleetWanted, GivenUp, Pause, Seek, Skip, Wanted, What, WriteKind,
};
use crate::policy::{Cause, GiveUp};

fn pause(number: u64) -> Pause {
    Pause {
        number,
        until: None,
    }
}

fn seek(to: Checkpoint) -> Wanted {
    Wanted {
        version: 1,
        seek: Some(Seek {
            to,
            only_forward: false,
            keeps_state: false,
        }),
        ..Wanted::default()
    }
}

fn skip(first: u64, last: u64, is_stored: bool) -> Wanted {
    Wanted {
        version: 1,
        skip: Some(Skip {
            first: place(first),
            last: place(last),
            is_stored,
        }),
        ..Wanted::default()
    }
}

fn paused(version: u64, number: u64) -> Wanted {
    Wanted {
        version,
        pause: Some(pause(number)),
        ..Wanted::default()
    }
}

impl Story {
    fn wanted(self, wanted: Wanted) -> Self {
        self.push(What::Wanted {
            shard: "p".to_owned(),
            wanted,
        })
    }

    fn fleet_wanted(self, version: u64, pause: Option<Pause>, drained: &[&str]) -> Self {
        self.push(What::FleetWanted(FleetWanted {
            version,
            pause,
            drained: drained.iter().map(|host| (*host).to_owned()).collect(),
        }))
    }

    /// `a` shows that `p`, which it took first, stands.
    fn stands(self, epoch: u64, pause: Option<u64>) -> Self {
        self.push(What::Stands {
            host: "a".to_owned(),
            shard: "p".to_owned(),
            epoch,
            pause,
        })
    }

    /// `a` has done what was wanted.
    fn obeys(self, to: Option<Checkpoint>, left: Wanted) -> Self {
        let sent = self.write_unanswered("a", WriteKind::Obey, |row| {
            row.checkpoint = to.unwrap_or_else(|| row.checkpoint.clone());
        });
        sent.wanted(left).renew("a", "p")
    }

    fn write_unanswered(
        self,
        host: &str,
        kind: WriteKind,
        change: impl FnOnce(&mut crate::history::Row),
    ) -> Self {
        let mut row = self.row("p");
        row.counter += 1;
        change(&mut row);
        self.applied(Some(host), "p", kind, Some(row))
    }

    fn skipped_by_command(self, number: u64, how: GiveUp) -> Self {
        self.push(What::GivenUp(GivenUp {
            shard: "p".to_owned(),
            epoch: 1,
            at: place(number),
            how,
            cause: Cause::Skipped,
        }))
    }

    fn letter_stored(self, number: u64) -> Self {
        self.push(What::DeadLettered {
            shard: "p".to_owned(),
            at: place(number),
        })
    }
}

/// `p` with five records, two of which `a` has settled and checkpointed.
fn two_settled() -> Story {
    Story::with_records(5)
        .take("a", "p")
        .deliver("a", "p", &[1, 2])
        .checkpoint("a", "p", 2)
}

#[test]
fn s22_a_shard_that_stands_delivers_nothing_until_it_is_resumed() {
    let stands = || two_settled().wanted(paused(1, 7)).stands(1, Some(7));
    stands().deliver("a", "p", &[3]).breaks(&[S22]);
    let resumed = Wanted {
        version: 2,
        ..Wanted::default()
    };
    stands().wanted(resumed).deliver("a", "p", &[3]).passes();
    stands()
        .wanted(paused(2, 8))
        .deliver("a", "p", &[3])
        .passes();
    // Whoever has not read the row yet knows of nothing.
    two_settled()
        .wanted(paused(1, 7))
        .deliver("a", "p", &[3])
        .passes();
}

#[test]
fn s22_whoever_takes_a_shard_that_is_paused_knows_it() {
    let paused_before = || Story::with_records(2).wanted(paused(1, 7)).take("a", "p");
    paused_before().deliver("a", "p", &[1]).breaks(&[S22]);
    let fleets = two_settled()
        .fleet_wanted(1, Some(pause(3)), &[])
        .stands(1, Some(3))
        .release("a", "p")
        .take("a", "p");
    fleets.clone().deliver("a", "p", &[3]).breaks(&[S22]);
    fleets
        .fleet_wanted(2, None, &[])
        .deliver("a", "p", &[3])
        .passes();
}

#[test]
fn s22_a_pause_with_an_end_holds_until_then() {
    let until = |seconds: u64| Wanted {
        version: 1,
        pause: Some(Pause {
            number: 7,
            until: Some(seconds * SECOND),
        }),
        ..Wanted::default()
    };
    let stands = |seconds| two_settled().wanted(until(seconds)).stands(1, Some(7));
    stands(2).wait(SECOND).deliver("a", "p", &[3]).passes();
    stands(5)
        .wait(SECOND)
        .deliver("a", "p", &[3])
        .breaks(&[S22]);
}

#[test]
fn s23_a_shard_goes_where_it_was_sent_and_only_once() {
    let none = |version| Wanted {
        version,
        ..Wanted::default()
    };
    let back = || two_settled().wanted(seek(at(1)));
    back()
        .obeys(Some(at(1)), none(2))
        .deliver("a", "p", &[2, 3, 4, 5])
        .checkpoint("a", "p", 5)
        .healed()
        .passes();
    back().obeys(Some(at(2)), none(2)).breaks(&[S23]);
    back().obeys(Some(at(1)), none(3)).breaks(&[S23, S23]);
    let still = Wanted {
        version: 2,
        ..seek(at(1))
    };
    back().obeys(Some(at(1)), still).breaks(&[S23]);
    two_settled().obeys(None, none(1)).breaks(&[S23]);
}

#[test]
fn s8_and_s4_after_a_seek_everything_begins_at_the_place() {
    let none = Wanted {
        version: 2,
        ..Wanted::default()
    };
    let back = || {
        two_settled()
            .wanted(seek(at(1)))
            .obeys(Some(at(1)), none.clone())
    };
    back().deliver("a", "p", &[3]).breaks(&[S8]);
    back().checkpoint("a", "p", 2).breaks(&[S4]);
    let forward = || {
        two_settled()
            .wanted(seek(at(3)))
            .obeys(Some(at(3)), none.clone())
    };
    forward().deliver("a", "p", &[3]).breaks(&[S8]);
    forward()
        .deliver("a", "p", &[4, 5])
        .checkpoint("a", "p", 5)
        .healed()
        .passes();
    // What lies behind the place is due again, even if it was settled before.
    back().healed().breaks(&[NoLoss]);
    // And comes once.
    back()
        .deliver("a", "p", &[2, 3])
        .deliver("a", "p", &[2])
        .breaks(&[S9]);
}

#[test]
fn s24_records_are_skipped_as_it_was_wanted_and_no_others() {
    let asked = |is_stored| two_settled().wanted(skip(3, 3, is_stored));
    let none = Wanted {
        version: 2,
        ..Wanted::default()
    };
    asked(false)
        .skipped_by_command(3, GiveUp::Skip)
        .deliver("a", "p", &[4, 5])
        .checkpoint("a", "p", 5)
        .obeys(None, none)
        .healed()
        .passes();
    asked(true)
        .letter_stored(3)
        .skipped_by_command(3, GiveUp::DeadLetter)
        .passes();
    asked(true)
        .skipped_by_command(3, GiveUp::DeadLetter)
        .breaks(&[S24]);
    asked(true)
        .skipped_by_command(3, GiveUp::Skip)
        .breaks(&[S24]);
    asked(false)
        .skipped_by_command(4, GiveUp::Skip)
        .breaks(&[S24]);
    two_settled()
        .skipped_by_command(3, GiveUp::Skip)
        .breaks(&[S24]);
    let told = Story::with_records(3)
        .wanted(skip(1, 1, false))
        .take("a", "p");
    told.deliver("a", "p", &[1]).breaks(&[S24]);
}

#[test]
fn s25_a_host_that_is_drained_takes_nothing_and_keeps_nothing() {
    let drained = |story: Story| {
        story
            .fleet_wanted(1, None, &["a"])
            .push(What::Drained {
                host: "a".to_owned(),
                is_drained: true,
            })
            .wait(SECOND)
    };
    let free = || Story::with_records(3);
    drained(free()).take("a", "p").breaks(&[S25]);
    drained(free())
        .fleet_wanted(2, None, &[])
        .take("a", "p")
        .passes();
    drained(free()).take("b", "p").passes();
    let mut kept = drained(two_settled());
    for _ in 0..20 {
        kept = kept.wait(5 * SECOND).renew("a", "p");
    }
    kept.deliver("a", "p", &[3]).breaks(&[S25]);
}
