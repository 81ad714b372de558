//! Processes that raise a wall and run against it: this test's own program, started again for one
//! test.

use std::fs::File;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::*;

/// Names the folder where a restarted program may write.
const INSIDE: &str = "SHARDMILL_TEST_WALL";

/// The folder that was named to this process if it was started to be walled in; starts it, and
/// waits, if it was not.
fn walled(test: &str) -> Option<PathBuf> {
    if let Some(folder) = std::env::var_os(INSIDE) {
        return Some(folder.into());
    }
    let folder = tempfile::tempdir().unwrap();
    let mut again = Command::new(std::env::current_exe().unwrap());
    again
        .args(["--exact", test, "--nocapture"])
        .env(INSIDE, folder.path().canonicalize().unwrap());
    let ended = again.stdin(Stdio::null()).output().unwrap();
    let said = [ended.stdout, ended.stderr].concat();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&said));
    assert!(
        String::from_utf8_lossy(&said).contains("1 passed"),
        "{test} is not its name"
    );
    None
}

fn status(field: &str) -> String {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let value = status
        .lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value.unwrap().trim().to_owned()
}

#[test]
fn a_walled_compiler_reaches_no_file_but_its_cache_no_address_and_no_program() {
    let Some(cache) = walled(
        "wall::tests::a_walled_compiler_reaches_no_file_but_its_cache_no_address_and_no_program",
    ) else {
        return;
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let lacking = raise_for_compiler(&[&cache]);
    if lacking
        .iter()
        .any(|lack| lack.starts_with("rules for files"))
    {
        // A container may forbid it, too; then the host continues without and says so.
        return eprintln!("skipped: this kernel does not give what the test is about, {lacking:?}");
    }
    assert_eq!(lacking, Vec::<String>::new());

    let kept = cache.join("code");
    std::fs::write(&kept, "code").unwrap();
    std::fs::rename(&kept, cache.join("moved")).unwrap();
    assert_eq!(
        std::fs::read_to_string(cache.join("moved")).unwrap(),
        "code"
    );
    std::fs::remove_file(cache.join("moved")).unwrap();
    assert_eq!(
        std::thread::spawn(|| 7).join().unwrap(),
        7,
        "it compiles with several threads"
    );

    for path in [
        "/etc/passwd",
        "/proc/self/environ",
        "/proc/1/status",
        "/dev/zero",
    ] {
        assert!(File::open(path).is_err(), "{path}");
    }
    assert!(std::fs::read_dir("/").is_err());
    assert!(File::create(std::env::temp_dir().join("shardmill-wall-test-leaves-nothing")).is_err());
    assert!(std::os::unix::fs::symlink("/etc", cache.join("link")).is_err());
    assert!(TcpStream::connect(address).is_err());
    assert!(UdpSocket::bind("127.0.0.1:0").is_err());
    assert!(UnixListener::bind(cache.join("socket")).is_err());
    assert!(Command::new("/bin/true").spawn().is_err());
    let host = rustix::process::getppid().unwrap();
    assert!(
        rustix::process::kill_process(host, rustix::process::Signal::CONT).is_err(),
        "it may signal others"
    );
    // Threads that it starts are inside too.
    assert!(
        std::thread::spawn(|| File::open("/etc/passwd").is_err())
            .join()
            .unwrap()
    );
}

#[test]
fn a_walled_host_does_what_hosts_do_and_not_what_none_needs() {
    let Some(folder) =
        walled("wall::tests::a_walled_host_does_what_hosts_do_and_not_what_none_needs")
    else {
        return;
    };
    let (raised, is_raised) = std::sync::mpsc::channel::<()>();
    let before = std::thread::spawn(move || {
        // Ends with the channel.
        let _ = is_raised.recv();
        (status("NoNewPrivs"), status("Seccomp"))
    });
    assert_eq!(
        raise_for_host(),
        Vec::<String>::new(),
        "this kernel does not give what the test is about"
    );
    drop(raised);
    let everywhere = ("1".to_owned(), "2".to_owned());
    assert_eq!(
        before.join().unwrap(),
        everywhere,
        "a thread that was there before"
    );
    assert_eq!(
        std::thread::spawn(|| (status("NoNewPrivs"), status("Seccomp")))
            .join()
            .unwrap(),
        everywhere
    );

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    std::fs::write(folder.join("file"), "x").unwrap();
    assert!(
        Command::new("/bin/true").status().unwrap().success(),
        "helpers for credentials are programs"
    );

    let denied = |tried: rustix::io::Result<()>| tried == Err(rustix::io::Errno::PERM);
    assert!(denied(rustix::process::chroot(Path::new("/"))));
    let script = "unshare --user true && echo made; mount -t tmpfs none /mnt && echo mounted";
    let Ok(tried) = Command::new("/bin/sh").args(["-c", script]).output() else {
        return;
    };
    assert!(
        tried.stdout.is_empty(),
        "a program that it starts is inside too: {tried:?}"
    );
}
