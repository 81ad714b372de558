//! The real binary as child processes.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};

use crate::policed::{Policed, policed};

/// How long a condition may take before a test gives up. Far more than any takes: machines are
/// shared.
const PATIENCE: Duration = Duration::from_mins(2);

/// Below what it names a host keeps what outlives it, if nothing else is said: of each test, and
/// nowhere of whoever runs it.
const STATE_VARIABLE: &str = "XDG_STATE_HOME";

/// A running `shardmill`. Killed when dropped.
pub struct Host {
    child: Child,
    log: PathBuf,
    /// Of a host that has only the permissions that it needs.
    policed: Option<Policed>,
}

/// The root of the repository.
///
/// # Panics
///
/// Never: this package lies in a folder of it.
pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("a folder above")
}

/// The binary, built by the same cargo that built this test.
///
/// # Panics
///
/// If it cannot be built.
pub fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        // The packages of the whole workspace, as the test's own build had, so that nothing is
        // built twice.
        let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        let test = std::env::current_exe().expect("this test has a path");
        let profile = test
            .parent()
            .and_then(Path::parent)
            .expect("target/PROFILE/deps/TEST");
        build.current_dir(repository()).args([
            "build",
            "--quiet",
            "--workspace",
            "--bin",
            "shardmill",
        ]);
        if profile.ends_with("release") {
            build.arg("--release");
        } else {
            // Built already. With it the dependencies have the features that they have in the tests;
            // without, all of them would be built once more.
            build.args(["--test", "scenarios"]);
        }
        // What cargo told this test of its own package would look like a change to build scripts
        // that watch it, such as ring's: TLS and the AWS SDK would be built again here, and once
        // more by the next `cargo test`.
        let of_this_package =
            |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
        for (name, _) in std::env::vars().filter(|(name, _)| of_this_package(name)) {
            build.env_remove(name);
        }
        assert!(
            build.status().expect("cargo runs").success(),
            "the binary does not build"
        );
        profile.join("shardmill")
    })
}

/// Runs a command that ends by itself.
///
/// # Panics
///
/// If it cannot be run.
pub async fn shardmill(args: &[&str], folder: &Path) -> std::process::Output {
    let mut command = tokio::process::Command::new(binary());
    command
        .args(args)
        .current_dir(folder)
        .env(STATE_VARIABLE, folder.join("state"))
        .env_remove("STATE_DIRECTORY")
        .output()
        .await
        .expect("shardmill runs")
}

impl Host {
    /// Starts `shardmill` with `args` in `folder`; its log goes to `folder/NAME.log`.
    ///
    /// # Panics
    ///
    /// If it cannot be started.
    pub fn start(name: &str, args: &[&str], folder: &Path) -> Self {
        let mut command = Command::new(binary());
        command.args(args);
        Self::run(name, command, folder)
    }

    /// The same with another program, such as another library's worker.
    ///
    /// # Panics
    ///
    /// If it cannot be started.
    pub fn run(name: &str, command: Command, folder: &Path) -> Self {
        let (mut command, policed) = policed(name, command, folder);
        let log = folder.join(format!("{name}.log"));
        let stderr = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&log)
            .expect("a log file");
        let stdout = stderr.try_clone().expect("a log file");
        command
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(stderr);
        let mut host = Self::spawn(name, command, folder);
        host.policed = policed;
        host
    }

    /// The same with streams that lead elsewhere; what it logs can be asked for if they lead to
    /// `folder/NAME.log`.
    ///
    /// # Panics
    ///
    /// If it cannot be started.
    pub fn spawn(name: &str, mut command: Command, folder: &Path) -> Self {
        let log = folder.join(format!("{name}.log"));
        if !command.get_envs().any(|(set, _)| set == STATE_VARIABLE) {
            command.env(STATE_VARIABLE, folder.join("state"));
        }
        command.env_remove("STATE_DIRECTORY");
        Self {
            child: command.spawn().expect("the program starts"),
            log,
            policed: None,
        }
    }

    /// Sends a signal.
    ///
    /// # Panics
    ///
    /// If the process is gone already.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).expect("the process lives");
    }

    /// Kills it at once, as a crash would.
    ///
    /// # Panics
    ///
    /// If it cannot be waited for.
    pub fn kill(mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("reaped");
    }

    /// Sends SIGTERM and waits for the end.
    pub async fn terminate(self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.ended().await
    }

    /// Waits for the end.
    ///
    /// # Panics
    ///
    /// If it does not end.
    pub async fn ended(mut self) -> ExitStatus {
        let mut status = None;
        let log = self.log.clone();
        until_log("the process ends", &log, || {
            status = self.child.try_wait().expect("waitable");
            status.is_some()
        })
        .await;
        status.expect("ended")
    }

    /// Memory of it that is in RAM, in KiB; 0 where the system does not report it.
    pub fn resident_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))
            .unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        line.and_then(|line| line.trim().trim_end_matches(" kB").trim().parse().ok())
            .unwrap_or_default()
    }

    /// Filters of system calls around it; 0 where the system does not report it.
    pub fn system_call_filters(&self) -> u32 {
        filters_of(&self.child.id().to_string())
    }

    /// From now on it gets at most `more` bytes of address space. Returns the limit so far.
    ///
    /// # Panics
    ///
    /// If the system does not do that.
    pub fn limit_address_space(&self, more: u64) -> Rlimit {
        let status = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(status).expect("the process lives");
        let line = status.lines().find_map(|line| line.strip_prefix("VmSize:"));
        let kib = line.and_then(|line| {
            line.trim()
                .trim_end_matches(" kB")
                .trim()
                .parse::<u64>()
                .ok()
        });
        self.set_address_space(Rlimit {
            current: kib.map(|kib| (kib << 10) + more),
            maximum: None,
        })
    }

    /// Returns the limit so far.
    ///
    /// # Panics
    ///
    /// If the system does not do that.
    pub fn set_address_space(&self, limit: Rlimit) -> Rlimit {
        let pid = Some(Pid::from_child(&self.child));
        prlimit(pid, Resource::As, limit).expect("its limit can be set")
    }

    /// The same of each process that it started and that is still there.
    pub fn system_call_filters_of_children(&self) -> Vec<u32> {
        let parent = format!("PPid:\t{}", self.child.id());
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let processes = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let is_child = |process: &String| {
            let status =
                std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
            status.lines().any(|line| line == parent)
        };
        processes
            .filter(is_child)
            .map(|child| filters_of(&child))
            .collect()
    }

    /// Whether a crash of it would leave no core file, as far as its limits say.
    pub fn leaves_no_core(&self) -> bool {
        let limits = std::fs::read_to_string(format!("/proc/{}/limits", self.child.id()))
            .unwrap_or_default();
        let line = limits
            .lines()
            .find(|line| line.starts_with("Max core file size"));
        line.is_some_and(|line| line.split_whitespace().skip(4).take(2).eq(["0", "0"]))
    }

    /// Processor time it has used, in hundredths of a second; 0 where the system does not report
    /// it.
    pub fn cpu_ticks(&self) -> u64 {
        let stat =
            std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap_or_default();
        // The command's name, in parentheses, may hold spaces; utime and stime are the 12th and
        // 13th field after it.
        let fields = stat
            .rsplit(')')
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .skip(11)
            .take(2);
        fields.filter_map(|ticks| ticks.parse::<u64>().ok()).sum()
    }

    /// Where its admin pages are, once it has said so; needs `admin` in its configuration.
    ///
    /// # Panics
    ///
    /// If it does not say so.
    pub async fn admin_address(&self) -> String {
        let mut address = None;
        until_log("the log names the admin pages", &self.log, || {
            let log = self.log();
            // The line may be half written: the address is whole where its path begins.
            address = log
                .split("http://")
                .nth(1)
                .and_then(|rest| Some(rest.split_once('/')?.0.to_owned()));
            address.is_some()
        })
        .await;
        address.expect("found")
    }

    /// Its status page; needs `admin` in its configuration.
    ///
    /// # Panics
    ///
    /// If it does not answer.
    pub async fn status(&self) -> serde_json::Value {
        let body = self.page("/status").await;
        object_in(&body)
            .unwrap_or_else(|error| panic!("{error} in {body:?}; its log:\n{}", self.log()))
    }

    /// The same, or `None` if the page was closed without an answer: a host that gets no processor
    /// for seconds lets whoever waits for a page go.
    pub async fn status_if_answered(&self) -> Option<serde_json::Value> {
        object_in(&self.page("/status").await).ok()
    }

    /// Waits until its status page is so; needs `admin` in its configuration.
    ///
    /// # Panics
    ///
    /// If that takes too long.
    pub async fn until_status(&self, what: &str, is_so: impl Fn(&serde_json::Value) -> bool) {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let status = self.status().await;
            if is_so(&status) {
                return;
            }
            assert!(
                tokio::time::Instant::now() < deadline,
                "never happened: {what}\n{status:#}\n{}",
                self.log()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The sum of a metric over all its labels, where a line holds `filter`; 0 if there is none.
    /// Needs `admin`.
    pub async fn metric(&self, name: &str, filter: &str) -> f64 {
        let page = self.page("/metrics").await;
        let lines = page
            .lines()
            .filter(|line| line.starts_with(name) && line.contains(filter));
        lines
            .filter_map(|line| line.rsplit(' ').next()?.trim().parse::<f64>().ok())
            .sum()
    }

    /// What one of its admin pages says; needs `admin` in its configuration.
    ///
    /// # Panics
    ///
    /// If it does not answer.
    pub async fn page(&self, path: &str) -> String {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let address = self.admin_address().await;
        let mut stream = tokio::net::TcpStream::connect(&address)
            .await
            .expect("the admin pages answer");
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("written");
        let mut reply = String::new();
        stream.read_to_string(&mut reply).await.expect("read");
        reply
            .split_once("\r\n\r\n")
            .map(|(_, body)| body.to_owned())
            .unwrap_or_default()
    }

    /// Where its log is.
    pub fn log_path(&self) -> &Path {
        &self.log
    }

    /// What it logged so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The body may come in chunks: the object is what lies between the outermost braces.
fn object_in(body: &str) -> serde_json::Result<serde_json::Value> {
    let object = body
        .find('{')
        .zip(body.rfind('}'))
        .map(|(from, to)| &body[from..=to])
        .unwrap_or_default();
    serde_json::from_str(object)
}

/// Filters of system calls around a process, by its number or `self`; 0 where the system does not
/// tell.
pub fn filters_of(process: &str) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("Seccomp_filters:"));
    line.and_then(|count| count.trim().parse().ok())
        .unwrap_or_default()
}

/// Waits until `is_so`, looking every few milliseconds.
///
/// # Panics
///
/// If it takes too long.
pub async fn eventually(what: &str, is_so: impl FnMut() -> bool) {
    until_log(what, Path::new(""), is_so).await;
}

async fn until_log(what: &str, log: &Path, mut is_so: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !is_so() {
        let log = || std::fs::read_to_string(log).unwrap_or_default();
        assert!(
            tokio::time::Instant::now() < deadline,
            "never happened: {what}\n{}",
            log()
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
