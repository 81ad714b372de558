use super::*;

/// For so many seconds nobody read it.
fn left(n: u32, seconds: u64) -> ObservedLease {
    ObservedLease {
        idle_for: Duration::from_secs(seconds),
        ..free(n)
    }
}

fn counted(leases: &[ObservedLease], max_of_others: &[usize], max_leases: usize) -> (usize, usize) {
    let other = |(n, max): (usize, &usize)| ObservedWorker {
        max_leases: *max,
        ..registered(&format!("other-{n}"))
    };
    let mut workers: Vec<_> = max_of_others.iter().enumerate().map(other).collect();
    workers.push(registered("me"));
    let limits = PlanLimits {
        max_leases,
        ..LIMITS
    };
    let view = FleetView {
        me: &worker("me"),
        leases,
        workers: &workers,
        shards: None,
        is_bootstrapped: true,
    };
    let Unowned {
        not_taken,
        above_max,
    } = unowned(&view, &limits);
    (not_taken, above_max)
}

#[test]
fn a_lease_counts_once_nobody_took_it_for_three_lease_durations() {
    let any = usize::MAX;
    assert_eq!(counted(&[mine(0), left(1, 30)], &[], any), (0, 0));
    assert_eq!(counted(&[mine(0), left(1, 31)], &[], any), (1, 0));
    let expired = ObservedLease {
        idle_for: Duration::from_secs(31),
        ..owned(1, "dead", Availability::Expired)
    };
    assert_eq!(counted(&[mine(0), expired], &[], any), (1, 0));
}

#[test]
fn what_waits_for_its_parents_or_has_ended_is_nobodys_to_read() {
    let parent = ObservedLease {
        is_mine: true,
        ..lease(&closed(1, &[]), numeric("5"))
    };
    let child = ObservedLease {
        idle_for: Duration::from_mins(5),
        ..lease(&shard(2, &[1]), Checkpoint::TrimHorizon)
    };
    let ended = ObservedLease {
        idle_for: Duration::from_mins(5),
        ..lease(&closed(3, &[]), Checkpoint::ShardEnd)
    };
    assert_eq!(counted(&[parent, child, ended], &[], usize::MAX), (0, 0));
}

#[test]
fn what_is_above_what_all_may_hold_is_told_apart() {
    let of_other = owned(1, "other-0", Availability::Held);
    let leases: Vec<_> = [mine(0), of_other]
        .into_iter()
        .chain((2..6).map(|n| left(n, 60)))
        .collect();
    assert_eq!(counted(&leases, &[1], 1), (0, 4), "both are full");
    assert_eq!(counted(&leases, &[2], 2), (2, 2), "each has room for one");
    assert_eq!(counted(&leases, &[1], usize::MAX), (4, 0));
}
