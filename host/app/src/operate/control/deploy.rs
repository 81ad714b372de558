//! `shardmill deploy`: a version for all hosts of an application, through its trial, with one
//! command.

mod history;
mod progress;
mod report;
mod version;

use anyhow::bail;
use shardmill_config::Config;
use shardmill_core::artifact::NOT_HEEDED;
use shardmill_core::control::{Asked, Control, Deed, DeployAsked, Deployed};
use shardmill_core::fleet::FleetRows;
use shardmill_core::plugin::PluginDigest;

use self::history::show;
use self::progress::Progress;
use self::report::Report;
use self::version::{Chosen, choose, source_of};
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
    refuse_unheeded(args, &chosen, config.as_ref())?;
    let asked = asked(&args.change);
    if !args.change.apply {
        return Report::planned(args, &chosen, &fleet).show(args);
    }
    let chosen = chosen.push(args).await?;
    let wanted = apply(args, application, &asked, &chosen).await?;
    let progress = Progress::new(args, application, wanted);
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

/// Hosts with this configuration would not even pull it.
fn refuse_unheeded(
    args: &DeployArgs,
    chosen: &Chosen,
    config: Option<&Config>,
) -> anyhow::Result<()> {
    let Some(config) = config else {
        return Ok(());
    };
    let Some(source) = source_of(&args.application, config) else {
        bail!(
            "`plugins` names no source for {0}, so that hosts with this configuration pull no version \
                of it: add one, such as \"oci://registry.example.org/team/{0}:1\"",
            args.application
        );
    };
    // Hosts see it with its digest.
    if chosen.reference.is_beside(&source.reference) {
        return Ok(());
    }
    bail!(
        "{} {NOT_HEEDED}: hosts with this configuration take their versions from where {} is, and \
            from nowhere else",
        chosen.reference,
        source.reference
    )
}

async fn apply(
    args: &DeployArgs,
    application: &Application,
    asked: &Asked,
    chosen: &Chosen,
) -> anyhow::Result<DeployAsked> {
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
        proven: None,
        failed: None,
    };
    application
        .change_control(|control| {
            let before = before(control, &wanted, &bad);
            control.unread_deploy = None;
            control.deploy = Some(DeployAsked {
                before,
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
    application.record(asked, done).await?;
    Ok(wanted)
}

/// What hosts go back to if the next version is bad: the last one that did well, and is another.
fn before(control: &Control, next: &DeployAsked, bad: &[PluginDigest]) -> Option<Deployed> {
    let current = control.deploy.as_ref()?;
    if current.reference == next.reference {
        return current.good_before(bad).cloned();
    }
    current.last_good(bad)
}

async fn end(args: &DeployArgs, application: &Application) -> anyhow::Result<()> {
    let control = application.fleet().await?.control;
    let current = match (&control.deploy, &control.unread_deploy) {
        (Some(current), _) => format!("{} {}", current.version, current.reference),
        (None, Some(why)) => format!("what a newer shardmill deployed ({why})"),
        (None, None) => bail!("nothing is deployed for {}", args.application),
    };
    if !args.change.apply {
        print(&format!(
            "{current} would end: each host goes back to what its configuration says\n\nnothing was \
                changed: --apply does it"
        ));
        return Ok(());
    }
    let asked = asked(&args.change);
    application
        .change_control(|control| {
            (control.deploy, control.unread_deploy) = (None, None);
            Ok(())
        })
        .await?;
    let done = Done {
        deed: Deed::Deploy,
        shard: None,
        details: format!("ended {current}"),
    };
    application.record(&asked, done).await?;
    print(&format!(
        "ended {current}: each host goes back to what its configuration says with its next look, \
            within pull.every"
    ));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use shardmill_core::artifact::ArtifactRef;
    use shardmill_core::control::Finding;

    fn version(digit: &str) -> PluginDigest {
        PluginDigest::from_hex(&digit.repeat(64)).unwrap()
    }

    fn pinned(digit: &str) -> ArtifactRef {
        let text = format!("oci://r.example/alerts@sha256:{}", digit.repeat(64));
        ArtifactRef::parse(&text).unwrap()
    }

    #[test]
    fn the_same_again_goes_back_to_what_was_before_it_and_another_to_the_last_that_did_well() {
        let deployed = |digit: &str, is_proven: bool| DeployAsked {
            asked: super::super::application::asked_by(None, None),
            reference: pinned(digit),
            version: version(digit),
            before: Some(Deployed {
                reference: pinned("1"),
                version: Some(version("1")),
            }),
            is_in_turns: true,
            proven: is_proven.then(|| Finding {
                by: "a".to_owned(),
                why: String::new(),
                at_ms: 1,
            }),
            failed: None,
        };
        let digit = |deploy: &DeployAsked, next: &str, bad: &[PluginDigest]| {
            let control = Control {
                deploy: Some(deploy.clone()),
                ..Control::default()
            };
            let before = before(&control, &deployed(next, false), bad);
            before.map(|before| before.reference)
        };
        let (proven, unproven) = (deployed("2", true), deployed("2", false));
        assert_eq!(digit(&proven, "9", &[]), Some(pinned("2")));
        assert_eq!(digit(&proven, "2", &[]), Some(pinned("1")), "again");
        let one = Some(pinned("1"));
        assert_eq!(digit(&unproven, "9", &[]), one, "two bad ones in a row");
        assert_eq!(digit(&proven, "9", &[version("2")]), one);
        assert_eq!(digit(&unproven, "9", &[version("1")]), None);
        let none = before(&Control::default(), &unproven, &[]);
        assert_eq!(none, None);
    }
}
