use shardmill_core::scaling::Spent;

use crate::timer::Stopwatch;

/// Where the time of a shard's pipeline went, in this holding of its lease.
#[derive(Debug, Clone, Default)]
pub struct TimeSpent {
    /// Until the present activity began.
    spent: Spent,
    now: Option<(Activity, Stopwatch)>,
}

/// What takes the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Activity {
    /// Waiting for records.
    Reading,
    /// A call of the plugin, or making its instance.
    InPlugin,
    /// Waiting for sinks.
    Storing,
    /// Anything else.
    Other,
}

impl TimeSpent {
    /// From now on, the time goes into this.
    pub(crate) fn begin(&mut self, activity: Activity) {
        self.spent = self.until_now();
        self.now = Some((activity, Stopwatch::start()));
    }

    /// Everything so far.
    pub(crate) fn until_now(&self) -> Spent {
        let mut spent = self.spent;
        let Some((activity, since)) = &self.now else {
            return spent;
        };
        let part = match activity {
            Activity::Reading => &mut spent.reading,
            Activity::InPlugin => &mut spent.in_plugin,
            Activity::Storing => &mut spent.storing,
            Activity::Other => return spent,
        };
        *part = part.saturating_add(since.elapsed());
        spent
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn time_goes_into_what_is_under_way_and_is_known_before_that_ends() {
        let mut time = TimeSpent::default();
        tokio::time::advance(Duration::from_secs(9)).await;
        for (activity, seconds) in [
            (Activity::Reading, 1),
            (Activity::InPlugin, 2),
            (Activity::Other, 4),
            (Activity::InPlugin, 8),
            (Activity::Storing, 16),
        ] {
            time.begin(activity);
            tokio::time::advance(Duration::from_secs(seconds)).await;
        }
        let seconds = |spent: Duration| spent.as_secs();
        let spent = time.until_now();
        assert_eq!(seconds(spent.reading), 1);
        assert_eq!(seconds(spent.in_plugin), 10);
        assert_eq!(seconds(spent.storing), 16);
    }
}
