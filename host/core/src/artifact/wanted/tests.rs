use super::*;
use crate::control::{Asked, Finding};

const RUNNING: Here<'static> = Here {
    has_file: true,
    pulled: Some("oci://r.example/alerts:1.4"),
    is_running: true,
    has_waited: false,
};
const EMPTY: Here<'static> = Here {
    has_file: false,
    pulled: None,
    is_running: false,
    has_waited: false,
};

fn reference(text: &str) -> ArtifactRef {
    ArtifactRef::parse(text).unwrap()
}

fn configured() -> ArtifactRef {
    reference("oci://r.example/alerts:1.4")
}

fn pinned(repository: &str, digit: &str) -> ArtifactRef {
    reference(&format!("oci://{repository}@sha256:{}", digit.repeat(64)))
}

fn version(digit: &str) -> PluginDigest {
    PluginDigest::from_hex(&digit.repeat(64)).unwrap()
}

fn deployed(digit: &str) -> Deployed {
    Deployed {
        reference: pinned("r.example/alerts", digit),
        version: Some(version(digit)),
    }
}

fn deploy(before: Option<Deployed>) -> DeployAsked {
    DeployAsked {
        asked: Asked {
            by: "alice".to_owned(),
            why: "faster".to_owned(),
            at_ms: 1,
        },
        reference: pinned("r.example/alerts", "5"),
        version: version("a"),
        before,
        is_in_turns: true,
        proven: None,
        failed: None,
    }
}

fn found() -> Finding {
    Finding {
        by: "a".to_owned(),
        why: "it fails".to_owned(),
        at_ms: 2,
    }
}

fn decided(deploy: &DeployAsked, bad: &[PluginDigest], here: Here<'_>) -> Decided {
    let deploy = Some(deploy);
    wanted(&configured(), Orders::Known { deploy, bad }, here)
}

fn wants(decided: Decided) -> Wanted {
    match decided {
        Decided::Wants(wanted) => wanted,
        Decided::Keeps(why) => panic!("what is here stays: {why:?}"),
    }
}

fn with(deploy: &DeployAsked, bad: &[PluginDigest]) -> (ArtifactRef, WantedBy) {
    let wanted = wants(decided(deploy, bad, RUNNING));
    (wanted.reference, wanted.by)
}

const BY_DEPLOY: WantedBy = WantedBy::Deploy { is_in_turns: true };

#[test]
fn a_deploy_counts_until_it_is_found_bad_and_then_what_was_good_before_it() {
    let none = Orders::Known {
        deploy: None,
        bad: &[],
    };
    let back = (configured(), WantedBy::Config);
    let of_config = wants(wanted(&configured(), none, RUNNING));
    assert_eq!((of_config.reference, of_config.by), back);
    let one = deploy(None);
    let it = (one.reference.clone(), BY_DEPLOY);
    assert_eq!(with(&one, &[]), it);
    assert_eq!(with(&one, &[version("b")]), it, "another one is bad");
    assert_eq!(with(&one, &[version("b"), version("a")]), back);
    let second = deploy(Some(deployed("4")));
    let earlier = (deployed("4").reference, WantedBy::EarlierDeploy);
    assert_eq!(with(&second, &[version("a")]), earlier);
    let both = [version("a"), version("4")];
    assert_eq!(with(&second, &both), back, "that one is bad too");
}

#[test]
fn what_failed_once_is_not_tried_again_when_its_quarantine_has_lapsed() {
    let failed = DeployAsked {
        failed: Some(found()),
        ..deploy(Some(deployed("4")))
    };
    let earlier = (deployed("4").reference, WantedBy::EarlierDeploy);
    assert_eq!(with(&failed, &[]), earlier);
}

#[test]
fn what_is_not_heeded_changes_nothing_on_a_host_that_has_a_version() {
    for foreign in [
        pinned("evil.example/alerts", "5"),
        pinned("r.example/orders", "5"),
        reference("oci://r.example/alerts:2"),
    ] {
        let asked = DeployAsked {
            reference: foreign.clone(),
            ..deploy(Some(deployed("4")))
        };
        let Decided::Keeps(Keeps::Refused(why)) = decided(&asked, &[], RUNNING) else {
            panic!("{foreign} is heeded");
        };
        assert!(why.contains(NOT_HEEDED), "{why}");
        let first = wants(decided(&asked, &[], EMPTY));
        assert_eq!(first.reference, deployed("4").reference);
        assert!(first.refused.unwrap().contains(NOT_HEEDED));
    }
}

#[test]
fn who_may_write_the_table_cannot_make_a_host_run_what_its_operator_did_not_choose() {
    for foreign in [
        pinned("evil.example/alerts", "5"),
        pinned("r.example/orders", "5"),
        reference("oci://r.example/alerts:2"),
    ] {
        let of_foreign = Deployed {
            reference: foreign.clone(),
            version: None,
        };
        let asked = DeployAsked {
            reference: foreign,
            ..deploy(Some(of_foreign.clone()))
        };
        let first = wants(decided(&asked, &[], EMPTY));
        assert_eq!(
            (first.reference, first.by),
            (configured(), WantedBy::Config)
        );
        let second = deploy(Some(of_foreign));
        assert_eq!(with(&second, &[version("a")]).1, WantedBy::Config);
    }
}

#[test]
fn a_host_that_starts_runs_what_was_good_before_and_only_then_what_nobody_has_proven() {
    let asked = deploy(Some(deployed("4")));
    let first = wants(decided(&asked, &[], EMPTY));
    assert_eq!(first.reference, deployed("4").reference);
    assert_eq!(first.by, WantedBy::EarlierDeploy);
    let of_config = wants(decided(&deploy(None), &[], EMPTY));
    assert_eq!(of_config.reference, configured());
    let text = asked.reference.as_text();
    let restarted = Here {
        pulled: Some(&text),
        is_running: false,
        ..RUNNING
    };
    let back = wants(decided(&asked, &[], restarted));
    assert_eq!(back.reference, deployed("4").reference);
    assert!(back.holds_start, "it was on trial here");
    let others = Here {
        is_running: false,
        ..RUNNING
    };
    assert_eq!(
        decided(&asked, &[], others),
        Decided::Keeps(Keeps::RunsFirst)
    );
    let tried = wants(decided(&asked, &[], RUNNING));
    assert_eq!(
        (tried.reference, tried.by),
        (asked.reference.clone(), BY_DEPLOY)
    );
    let late = Here {
        has_waited: true,
        ..restarted
    };
    assert_eq!(wants(decided(&asked, &[], late)).by, BY_DEPLOY);
    let proven = DeployAsked {
        proven: Some(found()),
        ..asked
    };
    assert_eq!(wants(decided(&proven, &[], EMPTY)).by, BY_DEPLOY);
}

#[test]
fn a_deploy_that_cannot_be_read_keeps_what_runs() {
    let orders = Orders::Unreadable("reference is unknown");
    let Decided::Keeps(Keeps::Refused(why)) = wanted(&configured(), orders, RUNNING) else {
        panic!("it is passed over");
    };
    assert!(why.contains("a newer shardmill"), "{why}");
    let first = wants(wanted(&configured(), orders, EMPTY));
    assert_eq!(first.reference, configured());
}

#[test]
fn without_a_table_a_host_keeps_what_it_has_and_one_without_anything_takes_what_is_configured() {
    assert_eq!(
        wanted(&configured(), Orders::Unknown, RUNNING),
        Decided::Keeps(Keeps::Unknown)
    );
    let first = wants(wanted(&configured(), Orders::Unknown, EMPTY));
    assert_eq!(
        (first.reference, first.by),
        (configured(), WantedBy::Config)
    );
}
