//! Misbehaves in the way that the configuration key `misbehave` names; without it, counts records and nothing else.

use std::hint::black_box;

use shardmill_processor::{Batch, CloseReason, Commit, Context, Error, Failure, FailureKind, Outcome, Processor};
use shardmill_processor::{config, emit, log, metrics};

struct Evil {
    misbehave: String,
    /// Calls of `process` that still fail, for `fail-times`.
    failures_left: u32,
}

impl Processor for Evil {
    fn init(_context: Context) -> Result<Self, Error> {
        let misbehave = config::get("misbehave").unwrap_or_default();
        let failures_left = config::get("times").and_then(|times| times.parse().ok()).unwrap_or(0);
        match misbehave.as_str() {
            "loop-in-init" => loop_for_ever(),
            "trap-in-init" => panic!("init panics as asked"),
            "error-in-init" => return Err(Error::Misconfigured("init fails as asked".to_owned())),
            _ => {}
        }
        Ok(Self { misbehave, failures_left })
    }

    fn process(&mut self, batch: Batch) -> Result<Outcome, Error> {
        match self.misbehave.as_str() {
            "loop" => loop_for_ever(),
            "sleep" => sleep_for_long(),
            "memory" => allocate_for_ever(),
            "recursion" => drop(black_box(recurse(1))),
            "log-flood" => (0..100_000).for_each(|line| log::info(format!("line {line}"))),
            "stdout-flood" => print_for_long(),
            "long-line" => log::info("\u{1b}[31m".repeat(100_000)),
            "giant-emit" => emit("stdout", "", &vec![7; 48 << 20])?,
            "many-emits" => (0..40).try_for_each(|_| emit("stdout", "", &vec![7; 1 << 20]))?,
            "many-pieces" => (0..100_001).try_for_each(|_| emit("stdout", "", b""))?,
            "emit-nowhere" => emit("nowhere", "", b"x")?,
            "metric-flood" => (0..10_000).for_each(|n| metrics::counter(&format!("name_{n}"), 1)),
            "hoard-politely" => return Ok(hoard(&batch)),
            "trap" => panic!("process panics as asked"),
            "error" => return Err("process fails as asked".into()),
            "bad-index" => return Ok(failing(&[u32::try_from(batch.records.len()).unwrap_or(u32::MAX)], "beyond")),
            "unsorted" => return Ok(failing(&[1, 0], "unsorted")),
            "commit-beyond" => return Ok(Outcome { commit: Commit::Through(1_000_000), ..Outcome::default() }),
            "giant-message" => return Ok(failing(&[0], &"é".repeat(4 << 20))),
            "many-failures" => return Ok(failing(&vec![0; 1_200_000], "")),
            "probe-world" => return Err(probe_world().into()),
            "time-and-chance" => return Err(time_and_chance().into()),
            "fail-times" if self.failures_left > 0 => {
                self.failures_left -= 1;
                return Err(Error::Unavailable(format!("{} more failures to come", self.failures_left)));
            }
            _ => {}
        }
        Ok(Outcome::default())
    }

    fn close(&mut self, _reason: CloseReason) -> Result<(), Error> {
        if self.misbehave == "loop-in-close" {
            loop_for_ever();
        }
        Ok(())
    }
}

fn loop_for_ever() {
    let mut turns = 0_u64;
    loop {
        turns = black_box(turns.wrapping_add(1));
    }
}

#[expect(clippy::print_stdout, reason = "the host must withstand it")]
fn print_for_long() {
    (0..100_000).for_each(|line| println!("line {line}"));
}

#[expect(clippy::disallowed_methods, reason = "the host must withstand it")]
fn sleep_for_long() {
    std::thread::sleep(std::time::Duration::from_hours(1));
}

fn allocate_for_ever() {
    let mut kept = Vec::new();
    loop {
        kept.push(black_box(vec![1_u8; 1 << 20]));
    }
}

/// Lives with a failed allocation, and blames the records for it.
fn hoard(batch: &Batch) -> Outcome {
    let mut kept = Vec::<u8>::new();
    if kept.try_reserve_exact(black_box(8 << 20)).is_ok() {
        return Outcome::default();
    }
    let fail = |index| Failure { index, kind: FailureKind::Reject, message: "no memory".to_owned() };
    Outcome { failures: (0_u32..).zip(&batch.records).map(|(index, _)| fail(index)).collect(), ..Outcome::default() }
}

fn recurse(depth: u64) -> u64 {
    let frame = black_box([depth; 64]);
    if black_box(depth) == 0 {
        return 0;
    }
    frame[0] + recurse(black_box(depth + 1))
}

fn failing(indexes: &[u32], message: &str) -> Outcome {
    let fail = |&index| Failure { index, kind: FailureKind::Retry, message: message.to_owned() };
    Outcome { failures: indexes.iter().map(fail).collect(), ..Outcome::default() }
}

/// Tries what a sandbox must refuse, and tells what it got.
fn probe_world() -> String {
    let env = std::env::vars().count();
    let args = std::env::args().count();
    let file = std::fs::read_to_string("/etc/passwd").is_ok();
    let folder = std::fs::read_dir("/").is_ok();
    let written = std::fs::write("/tmp/escaped", "x").is_ok();
    let socket = std::net::TcpStream::connect("127.0.0.1:80").map_err(|error| error.kind());
    let bound = std::net::UdpSocket::bind("0.0.0.0:0").is_ok();
    let name = std::net::ToSocketAddrs::to_socket_addrs("localhost:80").is_ok();
    let denied = matches!(socket, Err(std::io::ErrorKind::PermissionDenied));
    format!(
        "env={env} args={args} file={file} folder={folder} written={written} denied={denied} bound={bound} name={name}"
    )
}

/// What differs in each run, unless the host sees to it that it does not.
#[expect(clippy::disallowed_methods, reason = "a clock is what is looked at")]
fn time_and_chance() -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let chance = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 1);
    let spent = std::time::Instant::now().elapsed();
    format!("now={now:?} chance={chance} spent={spent:?}")
}

shardmill_processor::plugin!(Evil);
