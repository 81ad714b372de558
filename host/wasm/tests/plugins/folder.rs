//! The plugin folder: what appears in it is loaded once, when it is complete; what is wrong with it
//! is said.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use crate::support::{guest, instance, runtime};
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair};
use sha2::{Digest, Sha256};
use shardmill_core::plugin::GuestLimits;
use shardmill_core::ports::ProcessorFactory;
use shardmill_wasm::folder::{FolderEvent, FolderOptions, PluginFolder, Refusal};
use shardmill_wasm::{BytesKind, Integrity, IntegrityError, IntegrityRules, LoadError, PublicKey};
use tokio::sync::mpsc::Receiver;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

struct Fixture {
    folder: tempfile::TempDir,
    events: Receiver<FolderEvent>,
    cancel: CancellationToken,
    tasks: JoinSet<()>,
}

impl Fixture {
    fn watch(folder: tempfile::TempDir, change: impl FnOnce(&mut FolderOptions)) -> Self {
        let mut options = FolderOptions::new(folder.path());
        change(&mut options);
        let (watcher, events) = PluginFolder::new(runtime(GuestLimits::default()), options);
        let (cancel, mut tasks) = (CancellationToken::new(), JoinSet::new());
        tasks.spawn(watcher.run(cancel.clone()));
        Self {
            folder,
            events,
            cancel,
            tasks,
        }
    }

    /// An empty folder whose first scan is over.
    async fn empty() -> Self {
        let mut fixture = Self::watch(tempfile::tempdir().unwrap(), |_| ());
        assert!(matches!(fixture.next().await, FolderEvent::FirstScanDone));
        fixture
    }

    fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    /// Writes under a temporary name and renames: how a file should be put here.
    fn put(&self, file: &str, bytes: &[u8]) {
        let temporary = self.path(".being-written");
        std::fs::write(&temporary, bytes).unwrap();
        std::fs::rename(temporary, self.path(file)).unwrap();
    }

    async fn next(&mut self) -> FolderEvent {
        // Far more than needed: a limit for a broken watcher, not a measurement.
        tokio::time::timeout(Duration::from_mins(1), self.events.recv())
            .await
            .expect("an event")
            .expect("open")
    }

    async fn next_refusal(&mut self) -> (String, Refusal) {
        match self.next().await {
            FolderEvent::Refused { file, reason, .. } => (file, reason),
            other => panic!("{other:?}"),
        }
    }

    /// That nothing more was told: puts a new plugin, whose event must be the next.
    async fn expect_silence(&mut self) {
        self.put("the-next.wasm", &guest("noop"));
        match self.next().await {
            FolderEvent::Loaded { name, .. } => assert_eq!(name.as_str(), "the-next"),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_names_a_table_of_another_plugin_is_refused_whichever_comes_first() {
    for intruder in ["totals-state", "totals-coordinator"] {
        for order in [[intruder, "totals"], ["totals", intruder]] {
            let mut fixture = Fixture::empty().await;
            for name in order {
                fixture.put(&format!("{name}.wasm"), &guest("noop"));
                match fixture.next().await {
                    FolderEvent::Loaded { name: loaded, .. } => {
                        assert_eq!((loaded.as_str(), name), ("totals", "totals"));
                    }
                    FolderEvent::Refused { file, reason, .. } => {
                        assert_eq!((file, name), (format!("{intruder}.wasm"), intruder));
                        assert!(
                            reason
                                .to_string()
                                .contains("a table of the application \"totals\""),
                            "{reason}"
                        );
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_lies_there_at_the_start_is_loaded_and_works() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("noop-one.wasm"), guest("noop")).unwrap();
    std::fs::write(folder.path().join(".hidden.wasm"), "junk").unwrap();
    std::fs::write(folder.path().join("README.md"), "junk").unwrap();
    std::fs::write(folder.path().join("noop-one.wasm.tmp"), "junk").unwrap();
    let mut fixture = Fixture::watch(folder, |_| ());
    let FolderEvent::Loaded { name, plugin } = fixture.next().await else {
        panic!("not loaded")
    };
    assert_eq!(name.as_str(), "noop-one");
    assert!(instance(&plugin, &[]).await.is_ok());
    assert!(matches!(fixture.next().await, FolderEvent::FirstScanDone));
    fixture.expect_silence().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_renamed_over_is_a_new_version_and_the_same_bytes_are_none() {
    let mut fixture = Fixture::empty().await;
    fixture.put("orders.wasm", &guest("noop"));
    let FolderEvent::Loaded { plugin: first, .. } = fixture.next().await else {
        panic!("not loaded")
    };
    fixture.put("orders.wasm", &guest("noop"));
    fixture.put("orders.wasm", &guest("echo"));
    let FolderEvent::Changed {
        plugin, previous, ..
    } = fixture.next().await
    else {
        panic!("not changed")
    };
    assert_eq!(&previous, first.digest());
    assert_ne!(plugin.digest(), first.digest());
    fixture.put("orders.wasm", &guest("echo"));
    fixture.expect_silence().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_written_in_a_thousand_pieces_is_loaded_once_and_whole() {
    let mut fixture = Fixture::empty().await;
    let bytes = guest("echo");
    let mut file = std::fs::File::create(fixture.path("orders.wasm")).unwrap();
    for piece in bytes.chunks(bytes.len() / 1_000) {
        file.write_all(piece).unwrap();
        file.sync_data().unwrap();
    }
    let FolderEvent::Loaded { plugin, .. } = fixture.next().await else {
        panic!("not loaded")
    };
    assert_eq!(plugin.size(), bytes.len());
    fixture.expect_silence().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_version_is_reported_once_and_the_good_one_stays_until_a_better_comes() {
    let mut fixture = Fixture::empty().await;
    fixture.put("orders.wasm", &guest("noop"));
    let FolderEvent::Loaded { plugin, .. } = fixture.next().await else {
        panic!("not loaded")
    };
    let module = wat::parse_str("(module)").unwrap();
    fixture.put("orders.wasm", &module);
    let FolderEvent::Refused { reason, keeps, .. } = fixture.next().await else {
        panic!("not refused")
    };
    let expected = LoadError::NotAComponent {
        kind: BytesKind::CoreModule,
    };
    assert!(
        matches!(&reason, Refusal::Bytes { error, .. } if *error == expected),
        "{reason}"
    );
    assert_eq!(keeps.as_ref(), Some(plugin.digest()));
    // The same bad bytes again, then the good ones again: nothing to tell of either.
    fixture.put("orders.wasm", &module);
    fixture.expect_silence().await;
    fixture.put("orders.wasm", &guest("echo"));
    assert!(matches!(fixture.next().await, FolderEvent::Changed { .. }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_off_file_is_refused_in_the_end() {
    let mut fixture = Fixture::empty().await;
    fixture.put("orders.wasm", &guest("noop")[..30_000]);
    let (_, reason) = fixture.next_refusal().await;
    assert!(
        matches!(
            &reason,
            Refusal::Bytes {
                error: LoadError::Truncated { size: 30_000 },
                ..
            }
        ),
        "{reason}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_file_is_reported_and_a_restored_one_is_loaded() {
    let mut fixture = Fixture::empty().await;
    for _ in 0..2 {
        fixture.put("orders.wasm", &guest("noop"));
        assert!(matches!(fixture.next().await, FolderEvent::Loaded { .. }));
        std::fs::remove_file(fixture.path("orders.wasm")).unwrap();
        assert!(
            matches!(fixture.next().await, FolderEvent::Removed { name } if name.as_str() == "orders")
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_regular_file_is_refused_and_blocks_nothing() {
    use std::os::unix::ffi::OsStrExt;
    let folder = tempfile::tempdir().unwrap();
    let path = |file: &str| folder.path().join(file);
    std::fs::write(path("target"), guest("noop")).unwrap();
    std::os::unix::fs::symlink(path("target"), path("a-link.wasm")).unwrap();
    std::fs::create_dir(path("b-directory.wasm")).unwrap();
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(
        rustix::fs::CWD,
        path("c-pipe.wasm"),
        rustix::fs::FileType::Fifo,
        mode,
        0,
    )
    .unwrap();
    std::fs::File::create(path("d-huge.wasm"))
        .unwrap()
        .set_len(33 << 20)
        .unwrap();
    std::fs::write(path("e bad name.wasm"), guest("noop")).unwrap();
    std::fs::write(
        folder
            .path()
            .join(std::ffi::OsStr::from_bytes(b"f\xff.wasm")),
        guest("noop"),
    )
    .unwrap();

    let mut fixture = Fixture::watch(folder, |_| ());
    let mut refused = Vec::new();
    for _ in 0..6 {
        refused.push(fixture.next_refusal().await.1.to_string());
    }
    for (reason, expected) in refused.iter().zip([
        "symbolic link",
        "directory",
        "named pipe",
        "33554432",
        "name",
        "name",
    ]) {
        assert!(reason.contains(expected), "{reason}");
    }
    assert!(matches!(fixture.next().await, FolderEvent::FirstScanDone));
    fixture.expect_silence().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_is_opened_to_others_after_the_start_is_reported_until_it_is_closed_again() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let mut fixture = Fixture::watch(folder, |options| {
        options.rescan = Duration::from_millis(20);
    });
    assert!(matches!(fixture.next().await, FolderEvent::FirstScanDone));
    for (mode, is_open) in [(0o777, true), (0o700, false)] {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(fixture.folder.path(), permissions).unwrap();
        let FolderEvent::Writers { reported } = fixture.next().await else {
            panic!("another event")
        };
        assert_eq!(reported.is_some(), is_open, "{reported:?}");
    }
    fixture.expect_silence().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_put_in_the_place_of_the_old_one_is_followed() {
    let parent = tempfile::tempdir().unwrap();
    let plugins = parent.path().join("plugins");
    let mut fixture = Fixture::watch(parent, |options| {
        options.path = plugins.clone();
        options.poll = Duration::from_millis(20);
        options.rescan = Duration::from_millis(20);
    });
    // It does not exist yet; that is trouble, but not the end.
    std::fs::create_dir(&plugins).unwrap();
    std::fs::write(plugins.join("one.wasm"), guest("noop")).unwrap();
    loop {
        match fixture.next().await {
            FolderEvent::Loaded { name, .. } => break assert_eq!(name.as_str(), "one"),
            FolderEvent::FirstScanDone | FolderEvent::Unreadable { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    let next = fixture.path("plugins-next");
    std::fs::create_dir(&next).unwrap();
    std::fs::write(next.join("one.wasm"), guest("echo")).unwrap();
    std::fs::rename(&plugins, fixture.path("plugins-old")).unwrap();
    std::fs::rename(&next, &plugins).unwrap();
    loop {
        match fixture.next().await {
            FolderEvent::Changed { .. } => break,
            FolderEvent::FirstScanDone | FolderEvent::Unreadable { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_is_gone_is_reported_once_and_so_is_its_return() {
    let parent = tempfile::tempdir().unwrap();
    let plugins = parent.path().join("plugins");
    std::fs::create_dir(&plugins).unwrap();
    let mut fixture = Fixture::watch(parent, |options| {
        options.path = plugins.clone();
        options.poll = Duration::from_millis(20);
        options.rescan = Duration::from_millis(20);
    });
    assert!(matches!(fixture.next().await, FolderEvent::FirstScanDone));
    let away = fixture.path("away");
    std::fs::rename(&plugins, &away).unwrap();
    let FolderEvent::Unreadable {
        reported: Some(why),
    } = fixture.next().await
    else {
        panic!("another event")
    };
    assert!(why.contains("create it, or set `plugins`"), "{why}");
    // Some looks more, at 20 ms each.
    tokio::time::sleep(Duration::from_millis(200)).await;
    std::fs::rename(&away, &plugins).unwrap();
    let FolderEvent::Unreadable { reported: None } = fixture.next().await else {
        panic!("another event")
    };
    std::fs::write(plugins.join("one.wasm"), guest("noop")).unwrap();
    assert!(matches!(fixture.next().await, FolderEvent::Loaded { .. }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_component_whose_ending_is_in_capitals_is_refused_and_not_passed_over() {
    let mut fixture = Fixture::empty().await;
    fixture.put("orders.WASM", &guest("noop"));
    let (file, reason) = fixture.next_refusal().await;
    assert_eq!(file, "orders.WASM");
    assert!(reason.to_string().contains(".wasm"), "{reason}");
    fixture.expect_silence().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn watching_ends_when_cancelled_and_when_nobody_listens() {
    let mut fixture = Fixture::empty().await;
    fixture.cancel.cancel();
    assert!(fixture.tasks.join_next().await.unwrap().is_ok());

    let Fixture {
        events,
        mut tasks,
        folder,
        ..
    } = Fixture::empty().await;
    drop(events);
    std::fs::write(folder.path().join("orders.wasm"), guest("noop")).unwrap();
    assert!(tasks.join_next().await.unwrap().is_ok());
}

#[tokio::test]
async fn a_manifest_is_told_of_when_it_changes_and_is_no_component() {
    let mut fixture = Fixture::empty().await;
    for text in ["stream = \"orders\"", "stream = \"returns\""] {
        fixture.put("orders.toml", text.as_bytes());
        assert!(
            matches!(fixture.next().await, FolderEvent::ManifestChanged { name } if name.as_str() == "orders")
        );
    }
    // Not a plugin's name: nobody's manifest, and nobody's refusal.
    fixture.put("x.toml", b"stream = 7");
    std::fs::remove_file(fixture.path("orders.toml")).unwrap();
    assert!(
        matches!(fixture.next().await, FolderEvent::ManifestChanged { name } if name.as_str() == "orders")
    );
}

#[tokio::test]
async fn where_signatures_are_required_only_signed_components_are_loaded_however_the_pair_arrives()
{
    let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
    let signer = Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).unwrap();
    let key = PublicKey::parse(&hex::encode(signer.public_key().as_ref())).unwrap();
    let general = IntegrityRules {
        require_signature: true,
        keys: vec![key],
        ..IntegrityRules::default()
    };
    let mut version = 0;
    let mut sign = |bytes: &[u8]| {
        version += 1;
        let digest = hex::encode(Sha256::digest(bytes));
        let statement = format!(
            "shardmill plugin signature 1\nname orders\nversion {version}\nsha256 {digest}\n"
        );
        let signature = hex::encode(signer.sign(statement.as_bytes()).as_ref());
        format!("version {version}\nsignature {signature}\n").into_bytes()
    };
    let mut fixture = Fixture::watch(tempfile::tempdir().unwrap(), |options| {
        options.integrity = Integrity::new(general, BTreeMap::new());
    });
    assert!(matches!(fixture.next().await, FolderEvent::FirstScanDone));
    let (noop, echo) = (guest("noop"), guest("echo"));
    fixture.put("orders.wasm", &noop);
    let (file, reason) = fixture.next_refusal().await;
    assert!(
        matches!(
            reason,
            Refusal::Untrusted {
                error: IntegrityError::Unsigned { .. },
                ..
            }
        ),
        "{file}: {reason}"
    );
    fixture.put("orders.wasm.sig", &sign(&echo));
    let (_, reason) = fixture.next_refusal().await;
    assert!(
        matches!(
            reason,
            Refusal::Untrusted {
                error: IntegrityError::WrongSignature { .. },
                ..
            }
        ),
        "{reason}"
    );
    // The component to that signature: both are there.
    fixture.put("orders.wasm", &echo);
    let loaded = fixture.next().await;
    let FolderEvent::Loaded { plugin, .. } = loaded else {
        panic!("{loaded:?}")
    };
    let digest = plugin.digest().clone();
    // The next version, its signature after it.
    fixture.put("orders.wasm", &noop);
    fixture.put("orders.wasm.sig", &sign(&noop));
    let changed = fixture.next().await;
    assert!(
        matches!(&changed, FolderEvent::Changed { previous, .. } if *previous == digest),
        "{changed:?}"
    );
}
