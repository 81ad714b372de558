//! The host's side: starts the compiling process, feeds it, ends it in time, and says what came of
//! it.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use rustix::process::Signal;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, Command};

use super::child::KEPT;
use super::functions::FunctionStore;
use super::{CompileFailure, CompileJob, CompileLimits, CompilerProgram};
use crate::LoadError;
use crate::engine::code_cache::CodeCache;
use crate::engine::wording;
use crate::text::clean;
use crate::wall;

/// Bytes of what the process says that are kept: a compiler's error, or a crash's last words.
const SAID_BYTES_MAX: usize = 4 << 10;

/// Has another process compile into the cache. The wall limit counts from its start to its end.
pub(crate) async fn compile_in_child(
    program: &CompilerProgram,
    limits: CompileLimits,
    cache: &CodeCache,
    bytes: &Bytes,
) -> Result<(), LoadError> {
    let job = CompileJob {
        cache_dir: cache.directory().to_owned(),
        keeps_functions: cache.lasts() && has_place_for_functions(cache.directory()),
        component_bytes: bytes.len() as u64,
        limits,
        is_walled: true,
    };
    let mut child = command(program, &job)
        .spawn()
        .map_err(|error| not_started(&error))?;
    let is_kept = AtomicBool::new(false);
    let ended = tokio::time::timeout(limits.wall, compiled(&mut child, bytes, &is_kept)).await;
    let is_kept = is_kept.into_inner();
    match ended {
        Ok(compiled) => {
            let status = compiled.status.map_err(|error| not_started(&error))?;
            // How it ended after that is no fault of the component's.
            if is_kept {
                report_lacks(&compiled.said);
                return Ok(());
            }
            judge(status, &compiled.said, &limits)
        }
        Err(_elapsed) => {
            // Also reaps it. If it cannot be killed it is dead.
            let _ = child.kill().await;
            if is_kept {
                return Ok(());
            }
            Err(beyond(Beyond::Wall, &limits))
        }
    }
}

/// Reports once if there is none: then each version is compiled whole, which costs time and no
/// more.
fn has_place_for_functions(cache: &Path) -> bool {
    static REPORT: Once = Once::new();
    let Err(error) = FunctionStore::beside(cache) else {
        return true;
    };
    REPORT.call_once(|| {
        tracing::warn!(
            code = "functions-not-kept",
            "the code of single functions cannot be kept beside the cache, so each new version of \
                a plugin is compiled whole: {error}"
        );
    });
    false
}

/// What came of a process.
struct Compiled {
    /// On its standard error.
    said: String,
    status: std::io::Result<ExitStatus>,
}

/// Feeds the process until it ends. `is_kept` is set as soon as the code is in the cache.
async fn compiled(child: &mut Child, bytes: &Bytes, is_kept: &AtomicBool) -> Compiled {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let ((), (), said, status) = tokio::join!(
        feed(stdin, bytes),
        hear(stdout, is_kept),
        listen(stderr),
        child.wait()
    );
    Compiled { said, status }
}

/// Whether the process says [`KEPT`], and nothing else.
async fn hear(from: Option<impl AsyncRead + Unpin>, is_kept: &AtomicBool) {
    let Some(mut from) = from else {
        return;
    };
    let (mut said, mut piece) = (Vec::new(), [0; 64]);
    while let Ok(count @ 1..) = from.read(&mut piece).await {
        let room = (KEPT.len() + 1).saturating_sub(said.len());
        said.extend_from_slice(&piece[..count.min(room)]);
        is_kept.store(said == KEPT.as_bytes(), Ordering::Relaxed);
    }
}

async fn feed(pipe: Option<ChildStdin>, bytes: &Bytes) {
    if let Some(mut pipe) = pipe {
        // A process that ends before it has read everything says why by how it ends.
        let _ = pipe.write_all(bytes).await;
    }
}

fn not_started(error: &std::io::Error) -> LoadError {
    host(format!("its compiler does not start: {error}"))
}

/// It gets the component and nothing else: no environment, which holds the host's credentials, and
/// no open file.
fn command(program: &CompilerProgram, job: &CompileJob) -> Command {
    let mut command = Command::new(&program.program);
    command
        .args(&program.args)
        .args(job.to_args())
        .current_dir("/")
        .env_clear()
        .kill_on_drop(true);
    command.env("RAYON_NUM_THREADS", job.limits.threads.max(1).to_string());
    // Of glibc: each thread's heap would reserve 64 MiB of the address space that is limited.
    command.env("MALLOC_ARENA_MAX", "2");
    // Of mimalloc: it would reserve a gibibyte of it at once.
    command.env("MIMALLOC_ARENA_RESERVE", "32MiB");
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Reads to the end, so that the child never waits for room in the pipe, and keeps the beginning.
async fn listen(from: Option<impl AsyncRead + Unpin>) -> String {
    let Some(mut from) = from else {
        return String::new();
    };
    let (mut kept, mut piece) = (Vec::new(), [0; 1 << 10]);
    while let Ok(count @ 1..) = from.read(&mut piece).await {
        let room = (SAID_BYTES_MAX + 1).saturating_sub(kept.len());
        kept.extend_from_slice(&piece[..count.min(room)]);
    }
    clean(String::from_utf8_lossy(&kept).trim(), SAID_BYTES_MAX)
}

/// What there was too much of.
#[derive(Clone, Copy)]
enum Beyond {
    Wall,
    Cpu,
    Memory,
    Code,
}

fn beyond(what: Beyond, limits: &CompileLimits) -> LoadError {
    let mib = |bytes: u64| format!("{} MiB", bytes >> 20);
    let (what, limit, key) = match what {
        Beyond::Wall => ("time", format!("{:?}", limits.wall), LoadError::WALL_KEY),
        Beyond::Cpu => ("processor time", format!("{:?}", limits.cpu), "compile.cpu"),
        Beyond::Memory => ("address space", mib(limits.memory_bytes), "compile.memory"),
        Beyond::Code => (
            "compiled code",
            mib(limits.code_bytes as u64),
            "compile.code",
        ),
    };
    LoadError::CompileLimit { what, limit, key }
}

fn judge(status: ExitStatus, said: &str, limits: &CompileLimits) -> Result<(), LoadError> {
    if status.success() {
        report_lacks(said);
        return Ok(());
    }
    let is_exit = |failure: CompileFailure| status.code() == Some(i32::from(failure.exit_code()));
    let is_signal = |signal: Signal| status.signal() == Some(signal.as_raw());
    Err(if is_signal(Signal::XCPU) {
        beyond(Beyond::Cpu, limits)
    } else if wording::lacks_memory(said) {
        beyond(Beyond::Memory, limits)
    } else if is_exit(CompileFailure::TooMuchCode(0)) {
        beyond(Beyond::Code, limits)
    } else if is_exit(CompileFailure::Refused(String::new())) {
        LoadError::from_compiler(said)
    } else if is_signal(Signal::KILL) {
        host(format!(
            "its compiler was killed, by the system for lack of memory or by hand. {said}"
        ))
    } else if let Some(signal) = status.signal() {
        LoadError::Compile {
            message: format!("the compiler crashed with signal {signal}: {said}"),
        }
    } else {
        host(format!("its compiler failed: {said} ({status})"))
    })
}

fn host(message: String) -> LoadError {
    LoadError::Host { message }
}

/// Once: it is the same for every plugin.
fn report_lacks(said: &str) {
    static REPORT: Once = Once::new();
    if said.starts_with(wall::LACKS) {
        REPORT.call_once(|| tracing::warn!(code = "compiler-wall-incomplete", "{said}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(status: i32, said: &str) -> LoadError {
        judge(
            ExitStatus::from_raw(status),
            said,
            &CompileLimits::default(),
        )
        .unwrap_err()
    }

    #[test]
    fn how_the_process_ended_says_which_limit_it_was() {
        let limit_of = |error: LoadError| match error {
            LoadError::CompileLimit { key, .. } => key,
            other => panic!("{other}"),
        };
        assert_eq!(limit_of(judged(Signal::XCPU.as_raw(), "")), "compile.cpu");
        assert_eq!(
            limit_of(judged(
                Signal::ABORT.as_raw(),
                "memory allocation of 65536 bytes failed"
            )),
            "compile.memory"
        );
        assert_eq!(
            limit_of(judged(
                65 << 8,
                "mmap failed: Cannot allocate memory (os error 12)"
            )),
            "compile.memory"
        );
        assert_eq!(
            limit_of(judged(66 << 8, "300 bytes of code")),
            "compile.code"
        );
    }

    #[test]
    fn a_crash_is_the_components_fault_and_a_kill_is_not() {
        assert!(matches!(
            judged(Signal::SEGV.as_raw(), ""),
            LoadError::Compile { .. }
        ));
        assert!(matches!(
            judged(Signal::KILL.as_raw(), ""),
            LoadError::Host { .. }
        ));
        assert!(matches!(judged(71 << 8, "no room"), LoadError::Host { .. }));
        assert!(matches!(
            judged(65 << 8, "bad type (at offset 0x10)"),
            LoadError::Malformed { .. }
        ));
        assert!(matches!(
            judged(65 << 8, "too complex"),
            LoadError::Compile { .. }
        ));
    }

    #[tokio::test]
    async fn what_it_says_is_bounded_and_read_to_the_end() {
        let flood = vec![b'x'; 1 << 20];
        let said = listen(Some(&flood[..])).await;
        assert!(said.len() <= SAID_BYTES_MAX + '…'.len_utf8() && said.starts_with("xxx"));
    }

    #[tokio::test]
    async fn only_the_line_that_says_so_alone_means_that_the_code_is_kept() {
        for (said, expected) in [
            ("", false),
            ("kept", false),
            ("kept\n", true),
            ("kept\nkept\n", false),
            ("not kept\n", false),
        ] {
            let is_kept = AtomicBool::new(false);
            hear(Some(said.as_bytes()), &is_kept).await;
            assert_eq!(is_kept.into_inner(), expected, "{said:?}");
        }
    }

    #[tokio::test]
    async fn what_was_kept_before_the_wall_limit_is_loaded() {
        let program = CompilerProgram {
            program: "/bin/sh".into(),
            args: vec!["-c".into(), "echo kept; exec sleep 3600".into()],
        };
        let limits = CompileLimits {
            wall: std::time::Duration::from_secs(2),
            ..CompileLimits::default()
        };
        let cache = CodeCache::temporary().unwrap();
        let compiled = compile_in_child(&program, limits, &cache, &Bytes::new()).await;
        assert!(compiled.is_ok(), "{compiled:?}");
    }

    #[tokio::test]
    async fn a_process_that_does_not_end_is_killed_at_the_wall_limit() {
        let program = CompilerProgram {
            program: "/bin/sh".into(),
            args: vec!["-c".into(), "exec sleep 3600".into()],
        };
        let limits = CompileLimits {
            wall: std::time::Duration::from_millis(50),
            ..CompileLimits::default()
        };
        let bytes = Bytes::from(vec![0; 1 << 20]);
        let cache = CodeCache::temporary().unwrap();
        let error = compile_in_child(&program, limits, &cache, &bytes)
            .await
            .unwrap_err();
        assert!(
            matches!(
                error,
                LoadError::CompileLimit {
                    key: "compile.wall",
                    ..
                }
            ),
            "{error}"
        );
        assert!(!error.may_be_incomplete());
    }

    #[tokio::test]
    async fn it_sees_nothing_of_the_hosts_environment() {
        let script = "env >&2; exit 65";
        let program = CompilerProgram {
            program: "/bin/sh".into(),
            args: vec!["-c".into(), script.into()],
        };
        let (limits, nothing) = (CompileLimits::default(), Bytes::new());
        let cache = CodeCache::temporary().unwrap();
        let told = compile_in_child(&program, limits, &cache, &nothing)
            .await
            .unwrap_err()
            .to_string();
        assert!(
            std::env::var("PATH").is_ok_and(|path| !told.contains(&path)),
            "{told}"
        );
        assert!(
            told.contains("RAYON_NUM_THREADS=") && !told.contains("HOME="),
            "{told}"
        );
    }
}
