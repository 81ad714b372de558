//! All patterns that look at the same object of a record, so that it is read once for all of them.

use std::collections::BTreeMap;

use crate::rule::Rule;

/// A condition of a level: one bit for each. So many fit in a word.
pub(crate) const CONDITIONS_MAX: usize = 64;

/// What several patterns want of one object.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Level {
    pub(crate) fields: BTreeMap<String, Field>,
    /// What each pattern wants, in terms of this level's conditions.
    pub(crate) wanted: Vec<Wanted>,
}

/// What is wanted of one field.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Field {
    /// Conditions on a value that is not an object: one of the rules must hold.
    pub(crate) values: Vec<(u64, Vec<Rule>)>,
    /// Conditions on an object: one for each pattern of the level within.
    pub(crate) objects: Vec<u64>,
    pub(crate) within: Option<Box<Level>>,
}

/// A pattern in terms of conditions.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Wanted {
    Condition(u64),
    All(Vec<Wanted>),
    Any(Vec<Wanted>),
}

/// What was found out about the conditions of a level.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Found {
    /// Conditions that hold for a value that was seen.
    pub(crate) met: u64,
    /// Conditions for which a value was seen.
    pub(crate) seen: u64,
}

impl Level {
    /// The patterns that match, once the whole object was read.
    pub(crate) fn outcome(&self, found: Found) -> u64 {
        let absent = self.fields.values().map(Field::met_if_absent);
        let absent = absent.fold(0, |all, one| all | one);
        self.matching(found.met | (absent & !found.seen))
    }

    /// The patterns that match whatever comes after what was found.
    pub(crate) fn matching(&self, met: u64) -> u64 {
        let mut matching = 0;
        for (index, wanted) in self.wanted.iter().enumerate() {
            if wanted.holds(met) {
                matching |= 1 << index;
            }
        }
        matching
    }
}

impl Field {
    /// The conditions that a record without the field meets.
    fn met_if_absent(&self) -> u64 {
        let mut met = 0;
        for (condition, rules) in &self.values {
            if rules.contains(&Rule::Exists(false)) {
                met |= condition;
            }
        }
        if let Some(within) = &self.within {
            met |= self.met_by(within.outcome(Found::default()));
        }
        met
    }

    /// The conditions that are met by what matches within.
    pub(crate) fn met_by(&self, outcome: u64) -> u64 {
        let mut met = 0;
        for (index, condition) in self.objects.iter().enumerate() {
            if outcome & (1 << index) != 0 {
                met |= condition;
            }
        }
        met
    }
}

impl Wanted {
    fn holds(&self, met: u64) -> bool {
        match self {
            Self::Condition(condition) => met & condition != 0,
            Self::All(all) => all.iter().all(|one| one.holds(met)),
            Self::Any(any) => any.iter().any(|one| one.holds(met)),
        }
    }
}
