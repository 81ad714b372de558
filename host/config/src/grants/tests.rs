use std::path::Path;

use shardmill_core::pipeline::CheckpointPolicy;
use shardmill_core::plugin::GuestLimits;
use shardmill_core::rollout::RolloutPolicy;
use shardmill_worker::BatchLimits;

use super::*;
use crate::{Config, Manifest, PluginConfig};

fn plugin(config: &str, manifest: &str) -> Result<PluginConfig, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("alerts.toml");
    std::fs::write(&path, manifest).unwrap();
    let manifest = Manifest::read(&path).map_err(|error| error.to_string())?;
    let config = Config::parse(&format!("stream = \"orders\"\n{config}"), Path::new("."))?;
    config.of_plugin(&PluginName::new("alerts").unwrap(), manifest.as_ref())
}

fn grants(config: &str, manifest: &str) -> Result<Permissions, String> {
    plugin(config, manifest).map(|plugin| plugin.permissions)
}

const SECRET: &str = "[secrets.api]\nenv = \"API_TOKEN\"\n";

#[test]
fn nothing_is_granted_unless_it_is_asked_for() {
    assert_eq!(grants("", "").unwrap(), Permissions::default());
    let generous = "[ceilings.grants]\nhttp = [\"*\"]\nenv = [\"TZ\"]\n[secrets.api]\nenv = \
        \"API\"\nplugins = [\"alerts\"]";
    assert_eq!(grants(generous, "").unwrap(), Permissions::default());
}

#[test]
fn a_manifest_gets_what_the_ceilings_cover() {
    let config = "[ceilings.grants]\nhttp = [\"*.example.org\", \"http://10.1.2.3:81\"]\nenv = \
        [\"TZ\", \"LANG\"]\n\
                  [secrets.api]\nenv = \"API_TOKEN\"\nplugins = [\"alerts\"]\n";
    let manifest = "[grants]\nhttp = [\"api.example.org\", \"http://10.1.2.3:81\"]\nenv = \
        [\"TZ\"]\nsecrets = [\"api\"]\n\
                    state = true";
    let granted = grants(config, manifest).unwrap();
    assert_eq!(
        granted
            .http
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>(),
        ["https://api.example.org", "http://10.1.2.3:81"]
    );
    assert_eq!(granted.env, BTreeSet::from(["TZ".to_owned()]));
    assert_eq!(
        granted.secrets["api"],
        SecretSource::Variable("API_TOKEN".to_owned())
    );
    assert!(granted.state);
}

#[test]
fn a_manifest_that_asks_for_more_is_refused_with_file_line_and_mend() {
    for (config, manifest, expected) in [
        (
            "",
            "[grants]\nhttp = [\"api.example.org\"]",
            "line 2: grants.http: \"api.example.org\" is more than this host",
        ),
        (
            "[ceilings.grants]\nhttp = [\"*.example.org\"]",
            "[grants]\nhttp = [\"*\"]",
            "add it to http under [ceilings.grants]",
        ),
        (
            "[ceilings.grants]\nhttp = [\"a.org\"]",
            "[grants]\nhttp = [\"http://a.org\"]",
            "line 2: grants.http",
        ),
        (
            "",
            "[grants]\nenv = [\"TZ\"]",
            "line 2: grants.env: \"TZ\" is more than",
        ),
        (
            "[ceilings.grants]\nstate = false",
            "[grants]\nstate = true",
            "line 2: grants.state: state is more than",
        ),
        (
            SECRET,
            "[grants]\nsecrets = [\"api\"]",
            "add \"alerts\" to plugins under [secrets.api]",
        ),
        (
            "",
            "[grants]\nsecrets = [\"api\"]",
            "line 2: grants.secrets: no secret is named \"api\": add [secrets.api]",
        ),
        (
            "",
            "[grants]\nenv = [\"AWS_SECRET_ACCESS_KEY\"]",
            "line 2: grants.env: \"AWS_SECRET_ACCESS_KEY\" holds the host's",
        ),
        (
            "",
            "[grants]\nhttp = [\"http://x/y\"]",
            "names more than a host and a port",
        ),
        ("", "[grants]\nsockets = true", "unknown field `sockets`"),
        (
            "",
            "[grants]\nhttp = \"api.example.org\"",
            "invalid type: string",
        ),
        ("", "[grants]\nstate = \"yes\"", "invalid type: string"),
    ] {
        let error = grants(config, manifest).unwrap_err();
        assert!(
            error.contains("alerts.toml") && error.contains(expected),
            "{error}"
        );
    }
}

#[test]
fn the_hosts_own_section_may_give_anything_and_stands_over_the_manifest_key_by_key() {
    let config = format!("{SECRET}[plugin.alerts.grants]\nhttp = [\"*\"]\nsecrets = [\"api\"]\n");
    let granted = grants(&config, "[grants]\nhttp = [\"http://beyond.example\"]").unwrap();
    assert_eq!(
        granted
            .http
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>(),
        ["https://*"]
    );
    assert!(granted.secrets.contains_key("api"));
    let error = grants(
        "[plugin.alerts.grants]\nhttp = [\"*\"]",
        "[grants]\nenv = [\"TZ\"]",
    )
    .unwrap_err();
    assert!(
        error.contains("grants.env: \"TZ\" is more than"),
        "what the section leaves out is held to the ceiling: {error}"
    );
}

#[test]
fn aws_credentials_are_granted_by_nobody_and_the_region_is_no_credential() {
    for name in [
        "AWS_ACCESS_KEY_ID",
        "AWS_SESSION_TOKEN",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        "AWS_PROFILE",
    ] {
        for section in ["plugin.alerts.grants", "ceilings.grants"] {
            let error = grants(&format!("[{section}]\nenv = [\"{name}\"]"), "").unwrap_err();
            assert!(
                error.contains(&format!("{section}.env")) && error.contains("no plugin may use"),
                "{error}"
            );
        }
    }
    assert!(grants("[plugin.alerts.grants]\nenv = [\"AWS_REGION\"]", "").is_ok());
}

#[test]
fn a_variable_that_holds_a_secret_is_not_shown_in_the_environment() {
    let error = grants(
        &format!("{SECRET}[plugin.alerts.grants]\nenv = [\"API_TOKEN\"]"),
        "",
    )
    .unwrap_err();
    assert!(
        error.contains("is the variable of the secret api"),
        "{error}"
    );
    let sink = "[sinks.out]\ntype = \"http\"\nurl = \"http://x\"\nheaders = { authorization = \
        \"env:KEY\" }\n";
    let error = grants(
        &format!("{sink}[plugin.alerts.grants]\nenv = [\"KEY\"]"),
        "",
    )
    .unwrap_err();
    assert!(error.contains("is the variable of the sink out"), "{error}");
    let traces = "[traces]\nheaders = { authorization = \"env:OTLP\" }\n";
    let error = grants(
        &format!("{traces}[plugin.alerts.grants]\nenv = [\"OTLP\"]"),
        "",
    )
    .unwrap_err();
    assert!(
        error.contains("variable of the section [traces]"),
        "{error}"
    );
}

#[test]
fn state_and_records_that_wait_for_their_key_contradict_each_other() {
    let error = grants("", "[failure]\norder = \"key\"\n[grants]\nstate = true").unwrap_err();
    assert!(
        error.contains("line 4: grants.state: cannot be kept with failure.order"),
        "{error}"
    );
    let error = grants("[failure]\norder = \"key\"", "[grants]\nstate = true").unwrap_err();
    assert!(
        error.contains("grants.state: cannot be kept with failure.order"),
        "{error}"
    );
}

#[test]
fn ceilings_keep_their_own_errors() {
    for (config, expected) in [
        ("[ceilings]\nmemroy = \"1GiB\"", "unknown field `memroy`"),
        (
            "[ceilings.grants]\nsecrets = [\"x\"]",
            "unknown field `secrets`",
        ),
        (
            "[ceilings.grants]\nhttp = [\"a/b\"]",
            "line 3: ceilings.grants.http: \"a/b\" names more",
        ),
    ] {
        let error = grants(config, "").unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
    let both = "[ceilings]\nmemory = \"1GiB\"\n[ceilings.grants]\nenv = [\"TZ\"]";
    assert!(
        plugin(
            both,
            "[limits]\nmemory = \"1GiB\"\n[grants]\nenv = [\"TZ\"]"
        )
        .is_ok()
    );
}

#[test]
fn a_manifest_names_the_sinks_and_the_contract_that_it_needs() {
    let sinks = "[sinks.out]\ntype = \"stdout\"\n[sinks.other]\ntype = \"stdout\"\n";
    assert_eq!(plugin(sinks, "").unwrap().sinks, None, "all of them");
    let named = plugin(sinks, "sinks = [\"out\", \"stdout\"]\nworld = \"0.1\"").unwrap();
    assert_eq!(
        named.sinks,
        Some(BTreeSet::from(["out".to_owned(), "stdout".to_owned()]))
    );
    assert_eq!(
        named.world.map(|world| world.to_string()).as_deref(),
        Some("0.1")
    );
    let error = plugin(sinks, "world = \"0.1\"\nsinks = [\"nowhere\"]").unwrap_err();
    assert!(
        error.contains("line 2: sinks: no sink is named \"nowhere\": add [sinks.nowhere]"),
        "{error}"
    );
    let error = plugin(sinks, "world = \"0.2\"").unwrap_err();
    assert!(
        error.contains("line 1: world: this host does not know version \"0.2\""),
        "{error}"
    );
    let error = plugin(sinks, "[config]\n\"secret.api\" = \"x\"").unwrap_err();
    assert!(error.contains("line 2: config.secret.api: "), "{error}");
}

/// Set with every key that a manifest may have, so that none is left out of it.
#[test]
fn the_manifest_in_the_documentation_has_every_key_and_works() {
    let docs = include_str!("../../../../docs/configuration.md");
    let sample = docs
        .split("Every key of a manifest")
        .nth(1)
        .and_then(|rest| rest.split("```toml\n").nth(1));
    let sample = sample.and_then(|rest| rest.split("```").next()).unwrap();
    let config = "[secrets.api]\nenv = \"API\"\nplugins = [\"alerts\"]\n\
                  [ceilings]\napplications = [\"orders\"]\nstreams = [\"orders\"]\n\
                  [ceilings.grants]\nhttp = [\"*.example.org\"]\nenv = [\"TZ\"]";
    let settings = plugin(config, sample).unwrap();
    assert!(!settings.permissions.http.is_empty() && !settings.permissions.secrets.is_empty());
    let defaults = (
        BatchLimits::default(),
        CheckpointPolicy::default(),
        GuestLimits::default(),
        RolloutPolicy::default(),
    );
    assert_eq!(
        (
            settings.batches,
            settings.checkpoints,
            settings.limits,
            settings.rollout
        ),
        defaults
    );
    // What cannot stand together with the rest is shown in a comment.
    let shown: toml::Table = sample.replace("\n# ", "\n").parse().unwrap();
    let sections = [
        "batch",
        "checkpoint",
        "retry",
        "failure",
        "limits",
        "rollout",
        "grants",
    ];
    for section in [String::new()]
        .into_iter()
        .chain(sections.map(|section| format!("[{section}]\n")))
    {
        // What a manifest may have is told by the error for what it may not.
        let error = plugin("", &format!("{section}no-such-key = 1")).unwrap_err();
        let list = error.split("expected ").nth(1).unwrap_or_default();
        let known: Vec<&str> = list.split('`').skip(1).step_by(2).collect();
        assert!(known.len() > 1, "{error}");
        let there = match section.trim_matches(['[', ']', '\n']) {
            "" => &shown,
            name => shown[name].as_table().unwrap(),
        };
        // Another way to name a stream, and what only the host's section may have.
        let is_wanted = |key: &&&str| {
            !there.contains_key(**key) && !["streams", "integrity", "standalone"].contains(*key)
        };
        let missing: Vec<_> = known.iter().filter(is_wanted).collect();
        assert!(missing.is_empty(), "{section}{missing:?}");
    }
}
