use super::ScalingPolicy;

/// What the leader publishes in its row, for all hosts to serve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Figure {
    /// Hosts wanted for this application alone: damped, and within all limits.
    pub wanted: usize,
    /// The same before damping, as of the last pass; `None` while there are too few signs.
    pub undamped: Option<usize>,
    /// How many hosts the load fills up to the target, in thousandths, as planned with: damped like
    /// `wanted`, which is this in whole hosts. For several plugins of the same hosts, these are
    /// added.
    pub load_milli: u64,
    /// Shards that can be read now: more hosts than that have nothing to do.
    pub shards: usize,
    /// What the leader goes by.
    pub policy: ScalingPolicy,
    /// The reason in a sentence, for people.
    pub why: String,
}

impl Figure {
    /// The longest [`Self::why`] in characters: each host reads it with every look.
    pub const WHY_CHARS_MAX: usize = 240;
}
