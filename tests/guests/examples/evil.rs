//! Misbehaves in the way that the configuration key `misbehave` names; without it, counts records
//! and nothing else.

use std::hint::black_box;

use shardmill_processor::{
    Batch, CloseReason, Commit, Context, Error, Failure, FailureKind, Outcome, Processor,
};
use shardmill_processor::{config, emit, log, metrics};

struct Evil {
    misbehave: String,
    /// Calls of `process` that still fail, for `fail-times`.
    failures_left: u32,
    /// What `memory-leak` never gives back.
    leaked: Vec<Vec<u8>>,
}

impl Processor for Evil {
    fn init(_context: Context) -> Result<Self, Error> {
        let misbehave = config::get("misbehave").unwrap_or_default();
        let failures_left = config::get("times")
            .and_then(|times| times.parse().ok())
            .unwrap_or(0);
        match misbehave.as_str() {
            "loop-in-init" => loop_for_ever(),
            "trap-in-init" => panic!("init panics as asked"),
            "memory-in-init" => allocate_for_ever(),
            "sleep-in-init" => sleep_for_long(),
            "exit-in-init" => std::process::exit(1),
            "emit-in-init" => {
                emit("stdout", "", b"x").map_err(|error| Error::Other(error.to_string()))?;
            }
            "error-in-init" => return Err(Error::Misconfigured("init fails as asked".to_owned())),
            _ => {}
        }
        Ok(Self {
            misbehave,
            failures_left,
            leaked: Vec::new(),
        })
    }

    fn process(&mut self, batch: Batch) -> Result<Outcome, Error> {
        match self.misbehave.as_str() {
            "loop" => loop_for_ever(),
            "sleep" => sleep_for_long(),
            "memory" => allocate_for_ever(),
            "memory-leak" => self.leaked.push(black_box(vec![1; 24 << 20])),
            "one-giant-allocation" => drop(black_box(vec![1_u8; 1 << 30])),
            "recursion" => drop(black_box(recurse(1))),
            "hoard-politely" => return Ok(hoard(&batch)),
            "trap" => panic!("process panics as asked"),
            "steering-trap" => panic!("\u{1b}[2J\u{1b}]0;owned\u{7}\u{202e}steered as asked"),
            "exit" => std::process::exit(0),
            "abort" => std::process::abort(),
            "error" => return Err("process fails as asked".into()),
            "emit-nowhere-and-panic" => emit("alerts", "", b"x").expect("as asked"),
            "emit-nowhere-and-retry" => return Ok(nowhere(FailureKind::Retry)),
            "emit-nowhere-and-reject" => return Ok(nowhere(FailureKind::Reject)),
            "ask-destinations" => {
                return Err(config::get("shardmill.destinations")
                    .unwrap_or_default()
                    .into());
            }
            "giant-error" => return Err("é".repeat(400 << 10).into()),
            "probe-world" => return Err(probe_world().into()),
            "time-and-chance" => return Err(time_and_chance().into()),
            "probe-more" => return Err(probe_more().into()),
            "fail-times" if self.failures_left > 0 => {
                self.failures_left -= 1;
                return Err(Error::Unavailable(format!(
                    "{} more failures to come",
                    self.failures_left
                )));
            }
            how => flood(how)?,
        }
        let size = u32::try_from(batch.records.len()).unwrap_or(u32::MAX);
        Ok(lie(&self.misbehave, size))
    }

    fn close(&mut self, _reason: CloseReason) -> Result<(), Error> {
        match self.misbehave.as_str() {
            "loop-in-close" => loop_for_ever(),
            "trap-in-close" => panic!("close panics as asked"),
            "error-in-close" => return Err("close fails as asked".into()),
            "emit-in-close" => {
                (0..12).try_for_each(|_| emit("stdout", "", &vec![7; 1 << 19]))?;
            }
            _ => {}
        }
        Ok(())
    }
}

/// More of something than the host takes.
fn flood(how: &str) -> Result<(), Error> {
    match how {
        "log-flood" => (0..100_000).for_each(|line| log::info(format!("line {line}"))),
        "stdout-flood" => print_for_long(),
        "stderr-flood" => complain_for_long(),
        "unended-line" => print_without_end(),
        "long-line" => log::info("\u{1b}[31m".repeat(100_000)),
        "control-characters" => log::info("\u{1b}]0;owned\u{7}\r\n{\"level\":\"ERROR\"}\u{202e}\0"),
        "giant-emit" => emit("stdout", "", &vec![7; 48 << 20])?,
        "many-emits" => (0..40).try_for_each(|_| emit("stdout", "", &vec![7; 1 << 20]))?,
        "control-emit" => {
            (0..31).try_for_each(|_| emit(&destination(), "", &vec![1; 1 << 20]))?;
        }
        "many-pieces" => (0..100_001).try_for_each(|_| emit("stdout", "", b""))?,
        "long-key" => emit("stdout", &"k".repeat(3_000), b"x")?,
        "emit-nowhere" => emit("nowhere", "", b"x")?,
        "metric-flood" => (0..10_000).for_each(|n| metrics::counter(&format!("name_{n}"), 1)),
        "metric-names" => {
            for name in ["", "A", "a b", "a\n} 1", &"a".repeat(1 << 20)] {
                metrics::counter(name, 1);
            }
        }
        "histogram-flood" => (0..200_000).for_each(|n| metrics::histogram("value", f64::from(n))),
        // Under more names than a plugin may have, as long as they may be.
        "histograms-flood" => (0..200_000).for_each(|n| {
            let name = format!("{:a<60}_{:03}", "", n % 100);
            metrics::histogram(&name, f64::from(n));
        }),
        "metric-values" => [f64::NAN, f64::INFINITY, f64::MIN]
            .iter()
            .for_each(|value| metrics::gauge("value", *value)),
        _ => {}
    }
    Ok(())
}

fn destination() -> String {
    config::get("destination").unwrap_or_else(|| "stdout".to_owned())
}

/// An outcome that makes no sense; one that does if nothing of the kind was asked for.
fn lie(how: &str, records: u32) -> Outcome {
    match how {
        "bad-index" => failing(&[records], "beyond"),
        "unsorted" => failing(&[1, 0], "unsorted"),
        "duplicate" => failing(&[0, 0], "duplicate"),
        "commit-beyond" => Outcome {
            commit: Commit::Through(1_000_000),
            ..Outcome::default()
        },
        "giant-message" => failing(&[0], &"é".repeat(400 << 10)),
        "steering-message" => failing(&[0], "\u{1b}[2J\u{1b}]0;owned\u{7}\r\n\u{202e}"),
        "many-failures" => failing(&vec![0; 400_000], ""),
        "retry-for-centuries" => Outcome {
            retry_after_ms: Some(u64::MAX),
            ..failing(&[0], "come back later")
        },
        _ => Outcome::default(),
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

#[expect(clippy::print_stderr, reason = "the host must withstand it")]
fn complain_for_long() {
    (0..100_000).for_each(|line| eprintln!("line {line}"));
}

#[expect(clippy::print_stdout, reason = "the host must withstand it")]
fn print_without_end() {
    (0..2_000).for_each(|_| print!("{}", "no end ".repeat(1_000)));
}

#[expect(clippy::disallowed_methods, reason = "the host must withstand it")]
fn sleep_for_long() {
    std::thread::sleep(std::time::Duration::from_hours(1));
}

/// Reports the first record, after it emitted to a destination that does not exist.
fn nowhere(kind: FailureKind) -> Outcome {
    let message = match emit("alerts", "", b"x") {
        Ok(()) => "taken".to_owned(),
        Err(error) => error.to_string(),
    };
    Outcome {
        failures: vec![Failure {
            index: 0,
            kind,
            message,
        }],
        ..Outcome::default()
    }
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
    let fail = |index| Failure {
        index,
        kind: FailureKind::Reject,
        message: "no memory".to_owned(),
    };
    Outcome {
        failures: (0_u32..)
            .zip(&batch.records)
            .map(|(index, _)| fail(index))
            .collect(),
        ..Outcome::default()
    }
}

fn recurse(depth: u64) -> u64 {
    let frame = black_box([depth; 64]);
    if black_box(depth) == 0 {
        return 0;
    }
    frame[0] + recurse(black_box(depth + 1))
}

fn failing(indexes: &[u32], message: &str) -> Outcome {
    let fail = |&index| Failure {
        index,
        kind: FailureKind::Retry,
        message: message.to_owned(),
    };
    Outcome {
        failures: indexes.iter().map(fail).collect(),
        ..Outcome::default()
    }
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
        "env={env} args={args} file={file} folder={folder} written={written} denied={denied} \
            bound={bound} name={name}"
    )
}

/// What differs in each run, unless the host sees to it that it does not.
#[expect(clippy::disallowed_methods, reason = "a clock is what is looked at")]
fn time_and_chance() -> String {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    let chance = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 1);
    let spent = std::time::Instant::now().elapsed();
    format!("now={now:?} chance={chance} spent={spent:?}")
}

/// More of the same.
fn probe_more() -> String {
    let mut input = Vec::new();
    let stdin =
        std::io::Read::read_to_end(&mut std::io::stdin(), &mut input).map_or(0, |bytes| bytes);
    let listening = std::net::TcpListener::bind("127.0.0.1:0").is_ok();
    let ipv6 = std::net::TcpStream::connect("[::1]:80").is_ok();
    let metadata = std::net::TcpStream::connect("169.254.169.254:80").is_ok();
    let link = std::fs::read_link("/proc/self/exe").is_ok();
    let removed = std::fs::remove_file("/tmp/escaped").is_ok();
    let program = std::process::Command::new("/bin/true").spawn().is_ok();
    format!(
        "stdin={stdin} listening={listening} ipv6={ipv6} metadata={metadata} link={link} \
            removed={removed} program={program}"
    )
}

shardmill_processor::plugin!(Evil);
