//! `shardmill deploy`: a version for all hosts of an application, through its trial, with one
//! command.

mod history;
mod progress;
mod report;
mod version;

use anyhow::bail;
use shardmill_config::Config;
use shardmill_core::artifact::ArtifactRef;
use shardmill_core::control::{Asked, Control, Deed, DeployAsked};
use shardmill_core::fleet::FleetRows;
use shardmill_core::plugin::PluginDigest;

use self::history::show;
use self::progress::Progress;
use self::report::Report;
use self::version::{Chosen, choose};
use super::application::{Application, Done, asked};
use crate::cli::DeployArgs;
use crate::output::print;

pub(crate) async fn deploy(args: &DeployArgs) -> anyhow::Result<()> {
    let clients = crate::aws::connect_to(&args.change.connection).await?;
    let application = Application::open(&args.application, &clients).await?;
    if args.end {
        return end(args, &application).await;
    }
    let Some(version) = &args.version else {
        if args.change.apply {
            bail!("say which version: a file, or a reference such as oci://HOST/REPOSITORY:TAG");
        }
        return show(args, &application).await;
    };
    deploy_version(args, version, &application).await
}

async fn deploy_version(
    args: &DeployArgs,
    version: &str,
    application: &Application,
) -> anyhow::Result<()> {
    let config = args.change.connection.config.as_deref();
    let config = config.map(Config::load).transpose()?;
    let fleet = application.fleet().await?;
    let chosen = choose(args, version, config.as_ref()).await?;
    refuse_bad(args, &fleet, &chosen)?;
    let asked = asked(&args.change);
    if !args.change.apply {
        return Report::planned(args, &chosen, &fleet).show(args);
    }
    let chosen = chosen.push(args).await?;
    apply(args, application, &asked, &chosen).await?;
    let progress = Progress::new(args, application, &asked, chosen.version.clone());
    let outcome = progress.follow().await?;
    let report = Report::ended(args, &chosen, &outcome);
    report.show(args)?;
    report.conclude()
}

/// Hosts would not even try it.
fn refuse_bad(args: &DeployArgs, fleet: &FleetRows, chosen: &Chosen) -> anyhow::Result<()> {
    let mut entries = fleet.quarantined.iter();
    let Some(entry) = entries.find(|entry| entry.digest == chosen.version) else {
        return Ok(());
    };
    bail!(
        "version {version} is in quarantine, found bad by {host}: {reason}; `shardmill plugins {name} \
            --release {version}` ends that",
        version = chosen.version,
        host = entry.host,
        reason = entry.reason,
        name = args.application,
    )
}

async fn apply(
    args: &DeployArgs,
    application: &Application,
    asked: &Asked,
    chosen: &Chosen,
) -> anyhow::Result<()> {
    let fleet = application.fleet().await?;
    let bad: Vec<PluginDigest> = fleet
        .quarantined
        .iter()
        .map(|entry| entry.digest.clone())
        .collect();
    let wanted = DeployAsked {
        asked: asked.clone(),
        reference: chosen.reference.clone(),
        version: chosen.version.clone(),
        before: None,
        is_in_turns: !args.at_once,
    };
    application
        .change_control(|control| {
            control.deploy = Some(DeployAsked {
                before: before(control, &wanted.version, &bad),
                ..wanted.clone()
            });
            Ok(())
        })
        .await?;
    application.nudge_all(application.workers().await?).await;
    let done = Done {
        deed: Deed::Deploy,
        shard: None,
        details: format!("{} {}", chosen.version, chosen.reference),
    };
    application.record(asked, done).await
}

/// What hosts go back to if the next version is bad.
fn before(control: &Control, next: &PluginDigest, bad: &[PluginDigest]) -> Option<ArtifactRef> {
    let current = control.deploy.as_ref()?;
    // The same again, or one that nobody runs any more: what was before that.
    if current.version == *next || bad.contains(&current.version) {
        return current.before.clone();
    }
    Some(current.reference.clone())
}

async fn end(args: &DeployArgs, application: &Application) -> anyhow::Result<()> {
    let Some(current) = application.fleet().await?.control.deploy else {
        bail!("nothing is deployed for {}", args.application);
    };
    if !args.change.apply {
        print(&format!(
            "{} {} would end: each host goes back to what its configuration says\n\nnothing was \
                changed: --apply does it",
            current.version, current.reference
        ));
        return Ok(());
    }
    let asked = asked(&args.change);
    application
        .change_control(|control| {
            control.deploy = None;
            Ok(())
        })
        .await?;
    let done = Done {
        deed: Deed::Deploy,
        shard: None,
        details: format!("ended {} {}", current.version, current.reference),
    };
    application.record(&asked, done).await?;
    print(&format!(
        "ended {} {}: each host goes back to what its configuration says with its next look, within \
            pull.every",
        current.version, current.reference
    ));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(digit: &str) -> PluginDigest {
        PluginDigest::from_hex(&digit.repeat(64)).unwrap()
    }

    fn pinned(digit: &str) -> ArtifactRef {
        let text = format!("oci://r.example/alerts@sha256:{}", digit.repeat(64));
        ArtifactRef::parse(&text).unwrap()
    }

    #[test]
    fn hosts_go_back_to_the_last_version_that_was_deployed_and_not_found_bad() {
        let deployed = |digit: &str, before: Option<ArtifactRef>| Control {
            deploy: Some(DeployAsked {
                asked: super::super::application::asked_by(None, None),
                reference: pinned(digit),
                version: version(digit),
                before,
                is_in_turns: true,
            }),
            ..Control::default()
        };
        let next = version("9");
        assert_eq!(before(&Control::default(), &next, &[]), None);
        let second = deployed("2", Some(pinned("1")));
        assert_eq!(before(&second, &next, &[]), Some(pinned("2")));
        assert_eq!(before(&second, &next, &[version("2")]), Some(pinned("1")));
        assert_eq!(
            before(&second, &version("2"), &[]),
            Some(pinned("1")),
            "again"
        );
        assert_eq!(before(&deployed("2", None), &next, &[version("2")]), None);
    }
}
