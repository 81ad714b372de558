use std::fmt;
use std::time::Duration;

/// What is known of a shadow on one host, since it was put there or the version at work changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// Records that both versions were given.
    pub records: u64,
    /// Calls, with batches or because time had passed.
    pub calls: u64,
    /// Outputs that both emitted.
    pub same: u64,
    /// Outputs that only the version at work emitted.
    pub only_at_work: u64,
    /// Outputs that only the shadow emitted.
    pub only_shadow: u64,
    /// Calls of which only the version at work failed records, or all of it.
    pub at_work_failed: u64,
    /// The same of the shadow.
    pub shadow_failed: u64,
    /// Outputs that wait for their match just now.
    pub waiting: u64,
    /// Outputs that waited when the shard was handed over, say, and of which nobody knows whether
    /// their match would have come.
    pub undecided: u64,
    /// Times that the shadow held records back in many calls in a row in which the version at work
    /// did not: the checkpoint would not have moved.
    pub held_back: u64,
    /// Records that were not compared: the shadow was too slow, or waited for a place to begin at.
    pub missed: u64,
    /// Instances of the shadow that were made.
    pub starts: u64,
    /// Why the last instance could not be made, if it could not.
    pub not_started: Option<String>,
    /// What the host lacked when the shadow was not compared, the last time that it lacked
    /// something.
    pub last_lack: Option<String>,
    /// The time that the version at work took for what was compared.
    pub at_work_took: Duration,
    /// The time that the shadow took.
    pub shadow_took: Duration,
    /// Where the first difference is: a shard, and the last record of the batch.
    pub first_difference: Option<String>,
    /// Why the shadow failed where the version at work did not, the last time.
    pub last_failure: Option<String>,
}

impl Tally {
    /// Adds what was found since.
    pub fn add(&mut self, found: &Self) {
        self.records += found.records;
        self.calls += found.calls;
        self.same += found.same;
        self.only_at_work += found.only_at_work;
        self.only_shadow += found.only_shadow;
        self.at_work_failed += found.at_work_failed;
        self.shadow_failed += found.shadow_failed;
        self.undecided += found.undecided;
        self.held_back += found.held_back;
        self.missed += found.missed;
        self.starts += found.starts;
        self.at_work_took += found.at_work_took;
        self.shadow_took += found.shadow_took;
        if self.first_difference.is_none() {
            self.first_difference.clone_from(&found.first_difference);
        }
        if found.last_lack.is_some() {
            self.last_lack.clone_from(&found.last_lack);
        }
        if found.last_failure.is_some() {
            self.last_failure.clone_from(&found.last_failure);
        }
    }

    /// How often the two did not do the same.
    pub fn differences(&self) -> u64 {
        self.only_at_work
            + self.only_shadow
            + self.at_work_failed
            + self.shadow_failed
            + self.held_back
    }

    /// The same, with all that may still turn out to differ.
    pub fn differences_at_most(&self) -> u64 {
        self.differences() + self.waiting + self.undecided
    }

    /// The shadow's time for each second of the version at work; `None` while that is not known.
    fn time_ratio(&self) -> Option<f64> {
        let base = self.at_work_took.as_secs_f64();
        (base > 0.0).then(|| self.shadow_took.as_secs_f64() / base)
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(why) = &self.not_started {
            write!(f, "it does not start: {why}; ")?;
        }
        let differences = self.differences();
        write!(
            f,
            "{} records compared, {} outputs the same, {differences} differences",
            self.records, self.same
        )?;
        if differences > 0 {
            self.write_differences(f)?;
        }
        if self.waiting + self.undecided > 0 {
            let (waiting, undecided) = (self.waiting, self.undecided);
            write!(f, ", {waiting} outputs waiting, {undecided} undecided")?;
        }
        if self.missed > 0 {
            write!(f, ", {} records not compared", self.missed)?;
        }
        if let Some(ratio) = self.time_ratio() {
            write!(f, ", takes {ratio:.2} times as long")?;
        }
        if let Some(at) = &self.first_difference {
            write!(f, "; first difference by {at}")?;
        }
        if let Some(why) = self.last_failure.as_ref().or(self.last_lack.as_ref()) {
            write!(f, "; {why}")?;
        }
        Ok(())
    }
}

impl Tally {
    fn write_differences(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            " (outputs: {} only at work, {} only in the shadow; failed calls: {} and {}",
            self.only_at_work, self.only_shadow, self.at_work_failed, self.shadow_failed
        )?;
        if self.held_back > 0 {
            write!(f, "; held back: {}", self.held_back)?;
        }
        f.write_str(")")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tally_says_in_a_line_what_was_found() {
        let mut tally = Tally {
            records: 10,
            same: 4,
            ..Tally::default()
        };
        let text = "10 records compared, 4 outputs the same, 0 differences";
        assert_eq!(tally.to_string(), text);
        tally.only_shadow = 2;
        tally.shadow_failed = 1;
        tally.missed = 7;
        tally.first_difference = Some("shardId-000000000003@49".to_owned());
        tally.at_work_took = Duration::from_secs(2);
        tally.shadow_took = Duration::from_secs(3);
        assert_eq!(tally.differences(), 3);
        assert_eq!(
            tally.to_string(),
            "10 records compared, 4 outputs the same, 3 differences (outputs: 0 only at work, 2 only \
                in the shadow; failed calls: 0 and 1), 7 records not compared, takes 1.50 times as \
                long; first difference by shardId-000000000003@49"
        );
        (tally.waiting, tally.undecided) = (5, 1);
        assert_eq!((tally.differences(), tally.differences_at_most()), (3, 9));
        assert!(tally.to_string().contains("5 outputs waiting, 1 undecided"));
        tally.not_started = Some("init failed".to_owned());
        let text = tally.to_string();
        assert!(
            text.starts_with("it does not start: init failed; 10 records"),
            "{text}"
        );
    }
}
