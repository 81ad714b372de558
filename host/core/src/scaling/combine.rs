//! One figure for hosts that run several plugins.

use super::figure::Figure;

/// What the hosts of several applications want together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Combined {
    /// Hosts wanted, within the limits of all.
    pub wanted: usize,
    /// The sum of the loads, in thousandths of a host that is used up to the target.
    pub load_milli: u64,
    /// Shards of the application that has most.
    pub shards: usize,
}

/// The figure of hosts that all run the plugins of these applications: what the plugins need is
/// added, because they share the cores of each host, and rounded up once. It is at least what one
/// of them wants for itself, and at most the shards of the one that has most: the planners of two
/// applications do not know of each other, so that nothing sees to it that a host beyond that gets
/// any shard. `None` without figures.
pub fn combine<'a>(figures: impl Iterator<Item = &'a Figure> + Clone) -> Option<Combined> {
    let least = figures.clone().map(|figure| figure.wanted).max()?;
    let load_milli = figures
        .clone()
        .fold(0_u64, |sum, figure| sum.saturating_add(figure.load_milli));
    let shards = figures.clone().map(|figure| figure.shards).max()?;
    // An application without a shard is between two generations of them, or new.
    let is_known = figures.clone().all(|figure| figure.shards > 0);
    let useful = if is_known { shards } else { usize::MAX };
    let most = figures
        .clone()
        .map(|figure| figure.policy.hosts_max)
        .max()?;
    let by_load = usize::try_from(load_milli.div_ceil(1_000)).unwrap_or(usize::MAX);
    let together = by_load.max(least).min(useful).min(most.max(least));
    let is_alone = figures.count() == 1;
    Some(Combined {
        wanted: if is_alone { least } else { together },
        load_milli,
        shards,
    })
}
