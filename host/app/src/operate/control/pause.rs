//! `shardmill pause` and `shardmill resume`.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::bail;
use shardmill_aws::{AwsClients, applications_of_streams};
use shardmill_core::control::{Asked, Deed, Pause};
use shardmill_core::lease::Lease;
use shardmill_core::ports::Clock;
use shardmill_core::stream::{ShardId, Utc};
use shardmill_serve::BootClock;

use super::application::{Application, Done, asked, owners};
use super::report::{Report, StepRow};
use super::wait::Waited;
use crate::cli::{ChangeArgs, PauseArgs, ResumeArgs};
use crate::operate::wanted::paused;
use crate::output::millis;

/// What a row begins with that says why a shard stands, if it is paused.
const PAUSED: &str = "paused";

/// What a command wants: a pause, or none.
struct Wanted<'a> {
    command: &'static str,
    deed: Deed,
    pause: Option<Pause>,
    asked: Asked,
    shards: &'a [String],
    change: &'a ChangeArgs,
}

pub(crate) async fn pause(args: &PauseArgs) -> anyhow::Result<()> {
    let asked = asked(&args.change);
    let wanted = Wanted {
        command: "pause",
        deed: Deed::Pause,
        pause: Some(Pause {
            asked: asked.clone(),
            until_ms: until(args.lasting, args.until, BootClock.wall_ms())?,
        }),
        asked,
        shards: &args.shards,
        change: &args.change,
    };
    wanted.execute(&args.application, args.all_streams).await
}

pub(crate) async fn resume(args: &ResumeArgs) -> anyhow::Result<()> {
    let wanted = Wanted {
        command: "resume",
        deed: Deed::Resume,
        pause: None,
        asked: asked(&args.change),
        shards: &args.shards,
        change: &args.change,
    };
    wanted.execute(&args.application, args.all_streams).await
}

/// Hosts look every second, if they are not busy.
const SHORTEST_MS: u64 = 5_000;

/// When it ends. An end in the past is a mistake in the date or the time zone, and would resume
/// what is paused.
fn until(
    lasting: Option<Duration>,
    until: Option<SystemTime>,
    now_ms: u64,
) -> anyhow::Result<Option<u64>> {
    let until_ms = until.map(|time| millis(time.duration_since(UNIX_EPOCH).unwrap_or_default()));
    let end = lasting.map(|lasting| now_ms.saturating_add(millis(lasting)));
    let end = end.or(until_ms);
    if end.is_some_and(|end| end > now_ms && end - now_ms < SHORTEST_MS) {
        bail!("a pause of less than 5s may be over before all hosts have seen it");
    }
    if end.is_some_and(|end| end <= now_ms) {
        bail!(
            "the pause would be over already: it is {} now; times without a zone are UTC",
            Utc(now_ms)
        );
    }
    Ok(end)
}

impl Wanted<'_> {
    async fn execute(&self, application: &str, has_all_streams: bool) -> anyhow::Result<()> {
        let clients = crate::aws::connect_to(&self.change.connection).await?;
        let mut failed = None;
        for name in applications(application, has_all_streams, &clients).await {
            let application = Application::open(&name, &clients).await?;
            if let Err(error) = self.change(&application).await {
                failed = Some(error);
            }
        }
        failed.map_or(Ok(()), Err)
    }

    async fn change(&self, application: &Application) -> anyhow::Result<()> {
        let rows = application.rows_of(self.shards).await?;
        let mut report = self.report(application, &rows).await?;
        if self.change.apply {
            self.apply(application, &rows).await?;
            let shards: BTreeSet<ShardId> = rows.iter().map(|row| row.key.shard_id()).collect();
            let is_paused = self.pause.is_some();
            report.waited = Waited::until(application, &shards, self.change, |row| {
                row.owner.is_none()
                    || if is_paused {
                        self.is_paused(row)
                    } else {
                        !stands(row)
                    }
            })
            .await?;
        }
        report.show(self.change)?;
        Waited::conclude(report.waited.as_ref())
    }

    /// Whether the shard's holder says that it is paused, by this command; or by its own pause,
    /// which it shows before one of all shards.
    fn is_paused(&self, row: &Lease) -> bool {
        let is_paused_alone = in_effect(row.directives.pause.as_ref()).is_some();
        let by_this = format!(" at {}", Utc(self.asked.at_ms));
        let says_so = row.stuck.as_ref().is_some_and(|why| why.contains(&by_this));
        stands(row) && (says_so || self.shards.is_empty() && is_paused_alone)
    }

    async fn report(&self, application: &Application, rows: &[Lease]) -> anyhow::Result<Report> {
        let control = application.fleet().await?.control;
        let fleet_pause = in_effect(control.pause.as_ref());
        Ok(Report {
            application: application.name.clone(),
            command: self.command,
            applied: self.change.apply,
            steps: self.steps(rows, fleet_pause),
            waited: None,
            notes: fleet_pause
                .map(|pause| self.note(pause))
                .into_iter()
                .collect(),
        })
    }

    fn steps(&self, rows: &[Lease], fleet_pause: Option<&Pause>) -> Vec<StepRow> {
        let then = match &self.pause {
            Some(pause) => match pause.until_ms {
                Some(until) => format!("paused until {}", Utc(until)),
                None => "paused".to_owned(),
            },
            None => "delivers".to_owned(),
        };
        let step = |row: &Lease| StepRow {
            what: row.key.to_string(),
            now: match in_effect(row.directives.pause.as_ref()).or(fleet_pause) {
                Some(pause) => paused(pause),
                None => "delivers".to_owned(),
            },
            then: then.clone(),
            by: row.owner.as_ref().map(ToString::to_string),
            refused: None,
        };
        rows.iter().map(step).collect()
    }

    /// What to know of a pause of all shards.
    fn note(&self, pause: &Pause) -> String {
        let still = if self.pause.is_none() && !self.shards.is_empty() {
            "; `shardmill resume` without shards ends that"
        } else {
            ""
        };
        format!("all shards: {}{still}", paused(pause))
    }

    async fn apply(&self, application: &Application, rows: &[Lease]) -> anyhow::Result<()> {
        let is_of_all = self.shards.is_empty();
        let mut owners_to_nudge = owners(rows);
        if is_of_all {
            application
                .change_control(|control| {
                    control.pause.clone_from(&self.pause);
                    Ok(())
                })
                .await?;
            owners_to_nudge = application.workers().await?;
        }
        for row in rows {
            // A pause of all shards is one row; its end also ends those of single shards.
            let is_changed = !is_of_all || self.pause.is_none() && row.directives.pause.is_some();
            if is_changed {
                let row = application
                    .direct(row, |next| next.pause.clone_from(&self.pause))
                    .await?;
                owners_to_nudge.extend(row.owner);
            }
        }
        application.nudge_all(owners_to_nudge).await;
        self.record(application, rows).await
    }

    async fn record(&self, application: &Application, rows: &[Lease]) -> anyhow::Result<()> {
        let until = self.pause.as_ref().and_then(|pause| pause.until_ms);
        let until = until.map(|ms| format!("until {}", Utc(ms)));
        let details = until.unwrap_or_default();
        let done = |shard| Done {
            deed: self.deed,
            shard,
            details: details.clone(),
        };
        if self.shards.is_empty() {
            return application.record(&self.asked, done(None)).await;
        }
        for row in rows {
            let shard = Some(row.key.shard_id());
            application.record(&self.asked, done(shard)).await?;
        }
        Ok(())
    }
}

/// A pause that has not ended by itself.
fn in_effect(pause: Option<&Pause>) -> Option<&Pause> {
    pause.filter(|pause| pause.is_in_effect(BootClock.wall_ms()))
}

/// Whether the shard's holder says that it is paused.
pub(super) fn stands(row: &Lease) -> bool {
    let why = row.stuck.as_deref();
    why.is_some_and(|why| why.starts_with(PAUSED))
}

async fn applications(name: &str, has_all_streams: bool, clients: &AwsClients) -> Vec<String> {
    let mut all = vec![name.to_owned()];
    if has_all_streams {
        all.extend(applications_of_streams(&clients.dynamodb, name).await);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_that_would_be_over_already_is_refused_and_never_becomes_one_without_an_end() {
        let now = Duration::from_hours(1);
        let until = |lasting, at| until(lasting, at, millis(now));
        for past in [UNIX_EPOCH - now, UNIX_EPOCH, UNIX_EPOCH + now] {
            assert!(until(None, Some(past)).is_err(), "{past:?}");
        }
        assert!(until(Some(Duration::ZERO), None).is_err());
        assert_eq!(until(None, None).unwrap(), None);
        let end = Some(millis(2 * now));
        assert_eq!(until(Some(now), None).unwrap(), end);
        assert_eq!(until(None, Some(UNIX_EPOCH + 2 * now)).unwrap(), end);
    }
}
