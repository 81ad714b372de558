//! Versions are pulled from registries, web servers and buckets whole or not at all, and nothing
//! that these do makes a host wait for ever, take more bytes than it may, or show what is secret.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, UdpSocket};
use std::time::{Duration, SystemTime};

use harness::registry::{Fault, Registry};
use shardmill_aws::{AwsOptions, StaticCredentials, connect};
use shardmill_core::artifact::{
    ArtifactRef, COMPONENT_TYPE, INDEX_TYPES, SETTINGS_TYPE, Sha256, Sizes,
};
use shardmill_core::plugin::SecretSource;
use shardmill_sources::{
    AwsAccess, Login, PluginFiles, PullError, Pulled, Pushed, SourceOptions, Sources,
};

const COMPONENT: &[u8] = b"\0asm the component of a plugin, as far as a registry knows";
/// Longer than any answer of a registry on this machine that is well.
const PATIENT: Duration = Duration::from_secs(30);

fn options() -> SourceOptions {
    SourceOptions {
        timeout: PATIENT,
        insecure: BTreeSet::new(),
        logins: BTreeMap::new(),
        sizes: Sizes {
            component: 1_000,
            settings: 100,
            signature: 50,
        },
    }
}

fn open() -> Sources {
    Sources::new(options(), None).unwrap()
}

fn logged_in(host: &str, password: &str, folder: &tempfile::TempDir) -> Sources {
    Sources::new(logins(host, password, folder), None).unwrap()
}

fn logins(host: &str, password: &str, folder: &tempfile::TempDir) -> SourceOptions {
    let file = folder.path().join("password");
    std::fs::write(&file, password).unwrap();
    let login = Login {
        user: "robot".to_owned(),
        password: SecretSource::File(file),
    };
    SourceOptions {
        logins: BTreeMap::from([(host.to_owned(), login)]),
        ..options()
    }
}

fn reference(text: &str) -> ArtifactRef {
    ArtifactRef::parse(text).unwrap()
}

fn files(settings: Option<&'static str>, signature: Option<&'static str>) -> PluginFiles {
    PluginFiles {
        component: COMPONENT.into(),
        settings: settings.map(Into::into),
        signature: signature.map(Into::into),
    }
}

/// Pulls into a file, and gives what was pulled with the bytes of the component.
async fn pull(
    sources: &Sources,
    text: &str,
    known: Option<&str>,
) -> Result<Option<(Pulled, Vec<u8>)>, PullError> {
    let stored = tempfile::NamedTempFile::new().unwrap();
    let mut file = tokio::fs::File::from_std(stored.reopen().unwrap());
    let pulled = sources.pull(&reference(text), known, &mut file).await?;
    let bytes = std::fs::read(stored.path()).unwrap();
    Ok(pulled.map(|pulled| (pulled, bytes)))
}

async fn refused(sources: &Sources, text: &str) -> String {
    match pull(sources, text, None).await {
        Ok(_) => panic!("{text} was pulled"),
        Err(error) => error.to_string(),
    }
}

async fn push(sources: &Sources, text: &str, files: &PluginFiles) -> Pushed {
    sources.push(&reference(text), files).await.unwrap()
}

#[tokio::test]
async fn what_is_pushed_is_pulled_with_all_that_belongs_to_it_and_only_once() {
    let registry = Registry::start().await;
    let (sources, tagged) = (open(), registry.reference("team/alerts", "1.4"));
    let pushed = push(&sources, &tagged, &files(Some("a = 1"), Some("signed"))).await;
    let again = push(&sources, &tagged, &files(Some("a = 1"), Some("signed"))).await;
    assert_eq!(pushed, again, "the same files are the same artifact");
    assert_eq!(registry.requests("POST"), 4, "each blob once");
    for text in [tagged.clone(), pushed.reference.as_text()] {
        let (pulled, bytes) = pull(&sources, &text, None).await.unwrap().unwrap();
        assert_eq!(bytes, COMPONENT);
        assert_eq!(pulled.component, pushed.component);
        assert_eq!(pulled.settings.as_deref(), Some(&b"a = 1"[..]));
        assert_eq!(pulled.signature.as_deref(), Some(&b"signed"[..]));
        let digest = pushed.reference.digest().map(ToString::to_string);
        assert_eq!(pulled.mark, digest);
        let blobs = registry.requests("GET /v2/team/alerts/blobs");
        let manifests = registry.requests("GET /v2/team/alerts/manifests");
        let known = pulled.mark.as_deref();
        assert_eq!(pull(&sources, &text, known).await.unwrap(), None);
        assert_eq!(registry.requests("GET /v2/team/alerts/blobs"), blobs);
        assert_eq!(
            registry.requests("GET /v2/team/alerts/manifests"),
            manifests,
            "to ask counts as no pull"
        );
    }
    let resolved = sources.resolve(&reference(&tagged)).await.unwrap();
    assert_eq!(
        (resolved.reference, resolved.component),
        (pushed.reference.clone(), pushed.component.clone())
    );
    // The tag moves, and so does what it names; what is pinned stays.
    let known = pushed.reference.digest().map(ToString::to_string);
    let other = push(&sources, &tagged, &files(None, None)).await;
    assert_ne!(other.reference, pushed.reference);
    let moved = pull(&sources, &tagged, known.as_deref()).await.unwrap();
    let (moved, _) = moved.expect("another artifact");
    assert_eq!((moved.settings, moved.signature), (None, None));
    let pinned = pull(&sources, &pushed.reference.as_text(), None).await;
    assert!(pinned.unwrap().unwrap().0.settings.is_some());
}

#[tokio::test]
async fn a_registry_that_does_not_say_digests_is_asked_for_the_whole_list() {
    let registry = Registry::start().await;
    let (sources, tagged) = (open(), registry.reference("alerts", "1"));
    let pushed = push(&sources, &tagged, &files(None, None)).await;
    registry.fail(Some(Fault::NoDigest));
    let known = pushed.reference.digest().map(ToString::to_string);
    let same = pull(&sources, &tagged, known.as_deref()).await.unwrap();
    assert_eq!(same, None);
    assert_eq!(registry.requests("GET /v2/alerts/blobs"), 0);
}

#[tokio::test]
async fn nothing_is_taken_for_what_was_asked_for_that_is_not() {
    let registry = Registry::start().await;
    let (sources, tagged) = (open(), registry.reference("alerts", "1"));
    let pushed = push(&sources, &tagged, &files(None, None)).await;
    registry.fail(Some(Fault::Altered));
    let told = refused(&sources, &tagged).await;
    assert!(
        told.contains("the component is not what was asked for"),
        "{told}"
    );
    registry.fail(None);
    // Another list under the digest of the first.
    let other = registry.artifact("alerts", "2", &[(COMPONENT_TYPE, b"other")]);
    let digest = pushed.reference.digest().unwrap().to_string();
    registry.move_tag("alerts", &other, &digest);
    let told = refused(&sources, &pushed.reference.as_text()).await;
    assert!(
        told.contains("manifest is not what was asked for"),
        "{told}"
    );
    assert!(told.contains(&digest) && told.contains(&other), "{told}");
}

#[tokio::test]
async fn nothing_is_larger_than_it_may_be_whatever_a_registry_sends() {
    let registry = Registry::start().await;
    let sources = open();
    let big = vec![b'x'; 1_001];
    registry.artifact("big", "1", &[(COMPONENT_TYPE, &big)]);
    let told = refused(&sources, &registry.reference("big", "1")).await;
    assert!(
        told.contains("1001 bytes, more than the 1000 allowed"),
        "{told}"
    );
    assert_eq!(
        registry.requests("GET /v2/big/blobs"),
        0,
        "nothing was fetched"
    );
    registry.artifact(
        "talkative",
        "1",
        &[(COMPONENT_TYPE, COMPONENT), (SETTINGS_TYPE, &[b'x'; 101])],
    );
    let told = refused(&sources, &registry.reference("talkative", "1")).await;
    assert!(
        told.contains("101 bytes, more than the 100 allowed"),
        "{told}"
    );
    let (tagged, folder) = (
        registry.reference("alerts", "1"),
        tempfile::tempdir().unwrap(),
    );
    push(&sources, &tagged, &files(None, None)).await;
    for (fault, expected) in [
        (Fault::Endless, "the component has more than"),
        (
            Fault::EndlessManifest,
            "the artifact's manifest has more than",
        ),
        (Fault::EndlessError, "answers 503"),
    ] {
        registry.fail(Some(fault));
        let told = refused(&sources, &tagged).await;
        assert!(told.contains(expected), "{fault:?}: {told}");
    }
    registry.guard("robot", "hush");
    registry.fail(Some(Fault::EndlessToken));
    let told = refused(&logged_in(&registry.host, "hush", &folder), &tagged).await;
    assert!(told.contains("a token for alerts has more than"), "{told}");
    let error = sources
        .push(
            &reference(&tagged),
            &PluginFiles {
                component: big.into(),
                ..files(None, None)
            },
        )
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("host.plugin-bytes-max"),
        "{error}"
    );
}

#[tokio::test]
async fn a_token_that_has_expired_is_asked_for_again_and_one_that_lacks_the_right_is_not_for_ever()
{
    let registry = Registry::start().await;
    let folder = tempfile::tempdir().unwrap();
    registry.guard("robot", "hush");
    let sources = logged_in(&registry.host, "hush", &folder);
    let tagged = registry.reference("alerts", "1");
    push(&sources, &tagged, &files(None, None)).await;
    pull(&sources, &tagged, None).await.unwrap().unwrap();
    registry.expire();
    let (_, bytes) = pull(&sources, &tagged, None).await.unwrap().unwrap();
    assert_eq!(bytes, COMPONENT);
    // Somebody changed the password meanwhile: that is an error, and soon.
    registry.guard("robot", "changed");
    registry.expire();
    let told = refused(&sources, &tagged).await;
    assert!(told.contains("does not give access"), "{told}");
}

#[tokio::test]
async fn an_answer_that_does_not_come_or_ends_too_soon_is_an_error_that_says_so() {
    let registry = Registry::start().await;
    let tagged = registry.reference("alerts", "1");
    push(&open(), &tagged, &files(None, None)).await;
    registry.fail(Some(Fault::Truncated));
    let told = refused(&open(), &tagged).await;
    assert!(
        told.contains(&format!("{} does not answer", registry.host)),
        "{told}"
    );
    registry.fail(Some(Fault::Stalled));
    let hurried = SourceOptions {
        timeout: Duration::from_millis(300),
        ..options()
    };
    let hurried = Sources::new(hurried, None).unwrap();
    let told = refused(&hurried, &tagged).await;
    assert!(told.contains("longer than pull.timeout"), "{told}");
    registry.fail(Some(Fault::Down));
    let told = refused(&open(), &tagged).await;
    assert!(told.contains("answers 503"), "{told}");
    registry.fail(None);
    let told = refused(&open(), &registry.reference("alerts", "2")).await;
    assert!(
        told.contains("there is no alerts:2 in") && told.contains("manifest unknown"),
        "{told}"
    );
    let host = registry.stop().await;
    let told = refused(&open(), &tagged).await;
    assert!(told.contains(&format!("{host} does not answer")), "{told}");
}

#[tokio::test]
async fn a_redirect_is_followed_without_credentials_and_never_to_where_nothing_is_encrypted() {
    let registry = Registry::start().await;
    registry.guard("robot", "hush");
    let folder = tempfile::tempdir().unwrap();
    let sources = logged_in(&registry.host, "hush", &folder);
    let tagged = registry.reference("alerts", "1");
    push(&sources, &tagged, &files(None, None)).await;
    registry.fail(Some(Fault::Elsewhere));
    let (_, bytes) = pull(&sources, &tagged, None).await.unwrap().unwrap();
    assert_eq!(bytes, COMPONENT);
    assert!(registry.requests("GET /elsewhere/") > 0);
    assert_eq!(registry.leaked(), 0, "another host sees no token");
    registry.fail(Some(Fault::Unencrypted));
    let told = refused(&sources, &tagged).await;
    assert!(
        told.contains("registry.example would be reached without encryption"),
        "{told}"
    );
    registry.fail(Some(Fault::Circle));
    let told = refused(&sources, &tagged).await;
    assert!(told.contains("more than 5 redirects"), "{told}");
}

/// An address of this machine by which others may reach it; `None` without a network.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // Nothing is sent: this asks for a route.
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then_some(address)
}

#[tokio::test]
async fn who_runs_a_registry_reaches_nothing_that_listens_for_the_hosts_machine_alone() {
    let Some(address) = own_address() else {
        eprintln!("this machine has no network: nobody is elsewhere");
        return;
    };
    let registry = Registry::start_elsewhere(address).await;
    let folder = tempfile::tempdir().unwrap();
    let open = SourceOptions {
        insecure: BTreeSet::from([registry.host.clone()]),
        ..logins(&registry.host, "hush", &folder)
    };
    let sources = Sources::new(open, None).unwrap();
    let tagged = registry.reference("alerts", "1");
    push(&sources, &tagged, &files(None, None)).await;
    registry.fail(Some(Fault::Inward));
    let expected = format!("is on this machine, where {} sends nobody", registry.host);
    let told = refused(&sources, &tagged).await;
    assert!(told.contains(&expected), "by a redirect: {told}");
    registry.guard("robot", "hush");
    let told = refused(&sources, &tagged).await;
    assert!(told.contains(&expected), "for a token: {told}");
    for part in ["GET /token", "GET /elsewhere"] {
        assert_eq!(registry.requests(part), 0, "{part}");
    }
}

#[tokio::test]
async fn a_guarded_registry_is_shown_the_login_and_a_wrong_one_is_said_without_it() {
    let registry = Registry::start().await;
    registry.guard("robot", "hush");
    let tagged = registry.reference("alerts", "1");
    let folder = tempfile::tempdir().unwrap();
    let good = logged_in(&registry.host, "hush\n", &folder);
    push(&good, &tagged, &files(None, None)).await;
    assert!(pull(&good, &tagged, None).await.unwrap().is_some());
    // Once for what is pushed, and once for what is pulled.
    assert_eq!(registry.requests("GET /token"), 2);
    for sources in [open(), logged_in(&registry.host, "wrong-hush", &folder)] {
        let told = refused(&sources, &tagged).await;
        assert!(
            told.contains("does not give access") && told.contains("pull.registries"),
            "{told}"
        );
        assert!(!told.contains("hush"), "{told}");
    }
}

#[tokio::test]
async fn what_is_no_plugin_is_said_to_be_none_and_what_it_is() {
    let registry = Registry::start().await;
    let sources = open();
    let layer = "application/vnd.oci.image.layer.v1.tar+gzip";
    registry.artifact("image", "1", &[(layer, b"1"), (layer, b"2")]);
    let told = refused(&sources, &registry.reference("image", "1")).await;
    assert!(
        told.contains("it is no plugin") && told.contains(layer),
        "{told}"
    );
    let index = format!(
        "{{\"schemaVersion\":2,\"mediaType\":{:?},\"manifests\":[]}}",
        INDEX_TYPES[0]
    );
    registry.manifest("image", "2", INDEX_TYPES[0], index);
    let told = refused(&sources, &registry.reference("image", "2")).await;
    assert!(told.contains("several kinds of machines"), "{told}");
    registry.manifest("image", "3", "text/html", "<html>");
    let told = refused(&sources, &registry.reference("image", "3")).await;
    assert!(told.contains("manifest cannot be read"), "{told}");
    registry.artifact("image", "4", &[]);
    let told = refused(&sources, &registry.reference("image", "4")).await;
    assert!(
        told.contains("none of its layers is application/wasm"),
        "{told}"
    );
}

#[tokio::test]
async fn a_file_on_a_server_is_pulled_when_it_changes_and_only_if_it_is_the_one_that_is_wanted() {
    let registry = Registry::start().await;
    let sources = open();
    let address = registry.file("plugins/alerts.wasm", COMPONENT);
    let (first, bytes) = pull(&sources, &address, None).await.unwrap().unwrap();
    assert_eq!((bytes.as_slice(), &first.signature), (COMPONENT, &None));
    let known = first.mark.clone();
    assert_eq!(
        pull(&sources, &address, known.as_deref()).await.unwrap(),
        None
    );
    // A signature that comes after its component is taken with it, and once.
    registry.file("plugins/alerts.wasm.sig", "signed");
    let (signed, bytes) = pull(&sources, &address, known.as_deref())
        .await
        .unwrap()
        .expect("the signature");
    assert_eq!(signed.signature.as_deref(), Some(&b"signed"[..]));
    assert_eq!(
        (bytes.as_slice(), &signed.component),
        (COMPONENT, &first.component)
    );
    let known = signed.mark.clone();
    assert_eq!(
        pull(&sources, &address, known.as_deref()).await.unwrap(),
        None
    );
    registry.file("plugins/alerts.wasm", "another");
    let (second, _) = pull(&sources, &address, known.as_deref())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(second.signature.as_deref(), Some(&b"signed"[..]));
    let pinned = |digest: &Sha256| format!("{address}@{digest}");
    let told = refused(&sources, &pinned(&first.component)).await;
    assert!(
        told.contains("the component is not what was asked for"),
        "{told}"
    );
    let same = pull(&sources, &pinned(&second.component), None).await;
    assert!(same.unwrap().is_some());
    registry.file("plugins/alerts.wasm", vec![b'x'; 1_001]);
    let told = refused(&sources, &address).await;
    assert!(told.contains("host.plugin-bytes-max"), "{told}");
    registry.fail(Some(Fault::Endless));
    let told = refused(&sources, &address).await;
    assert!(told.contains("has more than the"), "{told}");
    let missing = format!("http://{}/none.wasm?token=hush", registry.host);
    registry.fail(None);
    let told = refused(&sources, &missing).await;
    assert!(
        told.contains("there is no") && !told.contains("hush"),
        "{told}"
    );
}

#[tokio::test]
async fn an_object_in_a_bucket_is_asked_for_with_a_signature() {
    let registry = Registry::start().await;
    registry.file("bucket/team/alerts.wasm", COMPONENT);
    let aws = AwsOptions {
        region: Some("eu-west-1".to_owned()),
        credentials: Some(StaticCredentials::dummy()),
        ..AwsOptions::default()
    };
    let access = AwsAccess {
        clients: connect(&aws).await.unwrap(),
        s3_endpoint: Some(format!("http://{}", registry.host)),
        ecr_endpoint: None,
        now: || SystemTime::UNIX_EPOCH + Duration::from_hours(500_000),
    };
    let sources = Sources::new(options(), Some(access)).unwrap();
    let text = "s3://bucket/team/alerts.wasm";
    let (pulled, bytes) = pull(&sources, text, None).await.unwrap().unwrap();
    assert_eq!(bytes, COMPONENT);
    assert_eq!(
        registry.signed(),
        2,
        "the signature's file was asked for too"
    );
    let known = pulled.mark.as_deref();
    assert_eq!(pull(&sources, text, known).await.unwrap(), None);
    let told = refused(&open(), text).await;
    assert!(told.contains("a bucket needs credentials"), "{told}");
    // What a request is signed with is for its one address.
    registry.fail(Some(Fault::Elsewhere));
    let told = refused(&sources, text).await;
    assert!(told.contains("answers 307"), "{told}");
    assert_eq!(registry.requests("GET /elsewhere"), 0);
}
