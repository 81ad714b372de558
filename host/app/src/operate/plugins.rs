//! `shardmill plugins`: which versions each host of a fleet runs, which are on trial, and which are
//! quarantined.

mod fleets;
mod pin;
mod release;
mod report;
mod text;

use anyhow::bail;
use shardmill_aws::{AwsClients, CoordinatorTable, applications_of_streams, served_applications};
use shardmill_core::ports::Clock;
use shardmill_serve::BootClock;

use self::fleets::look;
use self::report::{Report, Watch};
use self::text::as_text;
use crate::cli::PluginsArgs;
use crate::output::{print, print_json};

pub(crate) async fn execute(args: &PluginsArgs) -> anyhow::Result<()> {
    if pin::execute(args)? {
        return Ok(());
    }
    let clients = crate::aws::connect_to(&args.connection).await?;
    if let (Some(application), Some(digest)) = (&args.application, &args.release) {
        return release::release(application, digest, &clients).await;
    }
    let applications = match &args.application {
        Some(application) => with_its_streams(application, &clients).await?,
        None => served_applications(&clients.dynamodb).await?,
    };
    let reports = watch(&applications, args, &clients).await?;
    if args.output.json {
        print_json(&reports)?;
    } else {
        print(&as_text(&reports, BootClock.wall_ms()));
    }
    refuse_mixed(&reports)
}

/// The application, and those of its further streams.
async fn with_its_streams(application: &str, clients: &AwsClients) -> anyhow::Result<Vec<String>> {
    let table = CoordinatorTable::new(clients.dynamodb.clone(), application);
    let mut all = applications_of_streams(&clients.dynamodb, application).await;
    if table.exists().await? {
        all.insert(0, application.to_owned());
    }
    if all.is_empty() {
        bail!(
            "there is no table {}: no shardmill host has served application {application}; \
                without a name, this command lists the served applications",
            table.name()
        );
    }
    Ok(all)
}

async fn watch(
    applications: &[String],
    args: &PluginsArgs,
    clients: &AwsClients,
) -> anyhow::Result<Vec<Report>> {
    let mut watch = Watch::default();
    let mut fleets = look(applications, clients).await?;
    watch.observe(&fleets, BootClock.now());
    let watch_for = args.watch.watch_for.unwrap_or_default();
    if !watch_for.is_zero() {
        tokio::time::sleep(watch_for).await;
        fleets = look(applications, clients).await?;
        watch.observe(&fleets, BootClock.now());
    }
    let reports = fleets.iter().map(|(name, fleet)| watch.report(name, fleet));
    Ok(reports.collect())
}

fn refuse_mixed(reports: &[Report]) -> anyhow::Result<()> {
    let mixed = reports.iter().filter(|report| report.is_mixed);
    let mixed: Vec<&str> = mixed.map(|report| report.application.as_str()).collect();
    if mixed.is_empty() {
        return Ok(());
    }
    bail!(
        "hosts run different versions of {}: wait for a rollout to end, or copy the same file to all",
        mixed.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use shardmill_core::fleet::{FleetRows, Incarnation, WorkerRow};
    use shardmill_core::lease::WorkerId;
    use shardmill_core::plugin::PluginDigest;
    use shardmill_core::rollout::VersionRow;
    use shardmill_core::time::Moment;

    use super::*;

    fn host(name: &str, digit: &str, beat: u64) -> WorkerRow {
        let digest = PluginDigest::from_hex(&digit.repeat(64)).unwrap();
        let running = VersionRow {
            digest,
            state: "active".into(),
            since_ms: 1_000,
            reason: None,
        };
        WorkerRow {
            worker: WorkerId::new(name).unwrap(),
            incarnation: Incarnation::new("run").unwrap(),
            beat,
            lease_duration: Duration::from_secs(10),
            is_draining: false,
            max_leases: usize::MAX,
            versions: vec![running],
            cannot_write: None,
            cannot_look: None,
            artifact: None,
            load: None,
        }
    }

    #[test]
    fn a_mixed_fleet_is_said_and_dead_hosts_do_not_count() {
        let rows = |beat| FleetRows {
            workers: vec![host("a", "1", beat), host("b", "2", 7)],
            ..FleetRows::default()
        };
        let report = |looks: &[(u64, u64)]| {
            let mut watch = Watch::default();
            for (at, beat) in looks {
                let seen = BTreeMap::from([("orders".to_owned(), rows(*beat))]);
                watch.observe(&seen, Moment::from_origin(Duration::from_secs(*at)));
            }
            watch.report("orders", &rows(looks.last().unwrap().1))
        };
        let once = report(&[(0, 2)]);
        assert!(once.is_mixed);
        let text = as_text(&[once], 61_000);
        assert!(
            text.contains("hosts of orders run different versions: 111111111111, 222222222222"),
            "{text}"
        );
        assert!(text.contains("1m"), "{text}");
        let short = report(&[(0, 2), (3, 3)]);
        assert!(
            short.is_mixed,
            "a host that was not due to beat is not silent"
        );
        let watched = report(&[(0, 2), (11, 3)]);
        assert!(
            !watched.is_mixed,
            "b did not beat for longer than its lease duration"
        );
        assert!(as_text(&[watched], 61_000).contains("b (dead)"));
    }
}
