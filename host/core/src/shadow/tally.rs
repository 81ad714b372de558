use std::fmt;
use std::time::Duration;

/// What is known of a shadow on one host, since it was put there.
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
    /// Records that were not compared: the shadow was too slow, or waited for a place to begin at.
    pub missed: u64,
    /// Instances of the shadow that were made.
    pub starts: u64,
    /// Why the last instance could not be made, if it could not.
    pub not_started: Option<String>,
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
        self.missed += found.missed;
        self.starts += found.starts;
        self.at_work_took += found.at_work_took;
        self.shadow_took += found.shadow_took;
        if self.first_difference.is_none() {
            self.first_difference.clone_from(&found.first_difference);
        }
        if found.last_failure.is_some() {
            self.last_failure.clone_from(&found.last_failure);
        }
    }

    /// How often the two did not do the same.
    pub fn differences(&self) -> u64 {
        self.only_at_work + self.only_shadow + self.at_work_failed + self.shadow_failed
    }

    /// The shadow's time for each second of the version at work; `None` while that is not known.
    pub fn time_ratio(&self) -> Option<f64> {
        let base = self.at_work_took.as_secs_f64();
        (base > 0.0).then(|| self.shadow_took.as_secs_f64() / base)
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(why) = &self.not_started {
            return write!(f, "it does not start: {why}");
        }
        let differences = self.differences();
        write!(
            f,
            "{} records compared, {} outputs the same, {differences} differences",
            self.records, self.same
        )?;
        if differences > 0 {
            write!(
                f,
                " ({} outputs only of the version at work, {} only of the shadow; {} calls failed \
                    only in the former, {} only in the latter)",
                self.only_at_work, self.only_shadow, self.at_work_failed, self.shadow_failed
            )?;
        }
        if let Some(at) = &self.first_difference {
            write!(f, ", the first at {at}")?;
        }
        if self.missed > 0 {
            write!(f, ", {} records not compared", self.missed)?;
        }
        if let Some(ratio) = self.time_ratio() {
            write!(f, ", takes {ratio:.2} times as long")?;
        }
        match &self.last_failure {
            Some(why) => write!(f, "; it failed last because: {why}"),
            None => Ok(()),
        }
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
            "10 records compared, 4 outputs the same, 3 differences (0 outputs only of the version \
                at work, 2 only of the shadow; 0 calls failed only in the former, 1 only in the \
                latter), the first at shardId-000000000003@49, 7 records not compared, takes 1.50 \
                times as long"
        );
        tally.not_started = Some("init failed".to_owned());
        assert_eq!(tally.to_string(), "it does not start: init failed");
    }
}
