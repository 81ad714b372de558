//! What people are told who make a mistake: each is made with the real binary, and docs/mistakes.md
//! has what it said. `SHARDMILL_BLESS=1 cargo test --test scenarios mistakes` writes the page anew.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::TcpListener;
use std::path::Path;

use harness::guests::guest;
use harness::process::{binary, repository};
use harness::setting::Setting;

const PAGE: &str = "docs/mistakes.md";
const HEAD: &str = "# Mistakes

What each of these mistakes is answered with, and the exit code behind it. A test makes them all and compares
(`tests/scenarios/mistakes.rs`). A path is shown from the current folder, a port as PORT, and a process as PID. Files
that are not shown are what their name says.
";

/// A mistake: what it is, the files that are there, and what is typed: variables come first.
struct Mistake {
    what: &'static str,
    files: &'static [(&'static str, &'static str)],
    typed: &'static str,
}

const fn typed(what: &'static str, typed: &'static str) -> Mistake {
    Mistake {
        what,
        files: &[],
        typed,
    }
}

/// One in the configuration.
const fn config(what: &'static str, file: &'static [(&'static str, &'static str)]) -> Mistake {
    Mistake {
        what,
        files: file,
        typed: "run --check",
    }
}

const COMMAND_LINE: &[Mistake] = &[
    typed("No command", ""),
    typed("A flag that there is not", "dev --shard 2"),
    typed("A command that there is not", "lease orders"),
    typed("No file to put", "put --stream orders"),
    typed("Too few shards", "dev --shards 0"),
    typed("A number in words", "dev --shards ten"),
    typed("An address without its IP", "dev --admin 9090"),
    typed(
        "A duration without its unit",
        "leases orders --local --watch 10",
    ),
    typed("A flag that needs another", "dev --key-field carrier"),
    typed("A summary of a run that does not end", "dev --json"),
    typed("No input", "test alerts.wasm"),
    typed(
        "A partition key and a field for it",
        "put lines --key a --key-field b",
    ),
    typed(
        "A hash key that is too large",
        "put lines --explicit-hash-key 1e40",
    ),
    typed("A name that no plugin can have", "new ab"),
    typed("A language that there is not", "new alerts --lang java"),
    typed("No embedded stack runs", "leases orders --local"),
    typed("A feed that is not there", "dev --feed flights.ndjson"),
    Mistake {
        what: "A data folder that is a file",
        files: &[("data", "")],
        typed: "dev",
    },
    typed(
        "A data folder where none can be made",
        "dev --data /dev/null/data",
    ),
    typed(
        "A port that is taken, for the embedded Kinesis",
        "dev --kinesis-port PORT",
    ),
    typed(
        "A port that is taken, for the embedded DynamoDB",
        "dev --dynamodb-port PORT",
    ),
    typed(
        "A port that is taken, for the admin pages",
        "dev --admin 127.0.0.1:PORT",
    ),
    typed(
        "Admin pages on an address that others reach",
        "dev --admin 203.0.113.1:9090",
    ),
    typed(
        "A log filter that is none",
        "SHARDMILL_LOG=nonsense leases orders",
    ),
    typed(
        "A level that there is not",
        "SHARDMILL_LOG=shardmill=loud leases orders",
    ),
];

const AWS: &[Mistake] = &[
    typed("No region", "leases orders"),
    typed("No credentials", "AWS_REGION=eu-west-1 leases orders"),
    typed(
        "A profile that there is not",
        "AWS_REGION=eu-west-1 AWS_PROFILE=nobody leases orders",
    ),
    typed(
        "An endpoint where nothing listens",
        "AWS_ACCESS_KEY_ID=a AWS_SECRET_ACCESS_KEY=b leases orders --region eu-west-1 --endpoint http://127.0.0.1:1",
    ),
    Mistake {
        what: "No region, for a host",
        files: STREAM,
        typed: "run --check --connect",
    },
    Mistake {
        what: "No credentials, for a host",
        files: STREAM,
        typed: "AWS_REGION=eu-west-1 run --check --connect",
    },
    Mistake {
        what: "An endpoint where nothing listens, for a host",
        files: STREAM,
        typed: "AWS_ACCESS_KEY_ID=a AWS_SECRET_ACCESS_KEY=b run --check --connect --region eu-west-1 --endpoint http://127.0.0.1:1",
    },
];

const STREAM: &[(&str, &str)] = &[("shardmill.toml", "stream = \"orders\"\n")];

const CONFIGURATION: &[Mistake] = &[
    config("No configuration", &[]),
    config(
        "A key that is misspelt",
        &[("shardmill.toml", "straem = \"orders\"\n")],
    ),
    config(
        "An underscore",
        &[("shardmill.toml", "worker_id = \"a\"\n")],
    ),
    config(
        "A section that is misspelt",
        &[("shardmill.toml", "[lease]\nmax = 3\n")],
    ),
    config("A number for a name", &[("shardmill.toml", "stream = 5\n")]),
    config(
        "A duration without its unit",
        &[("shardmill.toml", "[leases]\nduration = 10\n")],
    ),
    config(
        "A unit that there is not",
        &[("shardmill.toml", "[leases]\nduration = \"10 parsecs\"\n")],
    ),
    config(
        "A size in words",
        &[("shardmill.toml", "[batch]\nbytes = \"4 megs\"\n")],
    ),
    config(
        "A number below zero",
        &[("shardmill.toml", "[batch]\nrecords = -5\n")],
    ),
    config(
        "Two settings that contradict each other",
        &[(
            "shardmill.toml",
            "stream = \"orders\"\n[leases]\nduration = \"10s\"\nrenew-every = \"9s\"\n",
        )],
    ),
    config(
        "Broken TOML",
        &[("shardmill.toml", "stream = \"orders\n[leases\nmax = 1\n")],
    ),
    config(
        "A key twice",
        &[("shardmill.toml", "stream = \"a\"\nstream = \"b\"\n")],
    ),
    config(
        "A dead-letter sink that there is not",
        &[(
            "shardmill.toml",
            "stream = \"orders\"\n[failure]\nattempts = 3\non-exhausted = \"dead-letter\"\ndead-letter = \"dead\"\n",
        )],
    ),
    config(
        "A type of sink that there is not",
        &[("shardmill.toml", "[sinks.out]\ntype = \"kafka\"\n")],
    ),
    config(
        "A word of the policy that there is not",
        &[(
            "shardmill.toml",
            "stream = \"orders\"\n[failure]\non-exhausted = \"drop\"\n",
        )],
    ),
    config(
        "A start position that there is not",
        &[(
            "shardmill.toml",
            "stream = \"orders\"\ninitial-position = \"oldest\"\n",
        )],
    ),
    config(
        "A file sink without its path",
        &[("shardmill.toml", "[sinks.out]\ntype = \"file\"\n")],
    ),
    config(
        "A URL that is none",
        &[(
            "shardmill.toml",
            "[sinks.out]\ntype = \"http\"\nurl = \"htp://example.com\"\n",
        )],
    ),
    config(
        "An endpoint without its scheme",
        &[(
            "shardmill.toml",
            "stream = \"orders\"\n[aws]\nendpoint = \"localhost:4566\"\n",
        )],
    ),
    config(
        "An address with a name",
        &[("shardmill.toml", "[host]\nadmin = \"localhost:9090\"\n")],
    ),
    config(
        "An ARN of another service",
        &[(
            "shardmill.toml",
            "stream = \"arn:aws:sns:eu-west-1:123456789012:orders\"\n",
        )],
    ),
    config(
        "A variable for the worker id",
        &[(
            "shardmill.toml",
            "stream = \"s\"\nworker-id = \"env:HOSTNAME\"\n",
        )],
    ),
    config(
        "Sections under the name of the folder",
        &[("shardmill.toml", "[plugins.orders]\nstream = \"orders\"\n")],
    ),
    config(
        "An application that the table of another would be",
        &[(
            "shardmill.toml",
            "stream = \"orders\"\n[plugin.alerts]\napplication = \"orders-state\"\n",
        )],
    ),
    config(
        "Two plugins with one application",
        &[(
            "shardmill.toml",
            "stream = \"orders\"\n[plugin.aaa]\napplication = \"one\"\n[plugin.bbb]\napplication = \"one\"\n",
        )],
    ),
    config(
        "Two sinks with one file",
        &[(
            "shardmill.toml",
            "[sinks.a]\ntype = \"file\"\npath = \"out\"\n[sinks.b]\ntype = \"file\"\npath = \"./out\"\n",
        )],
    ),
    config(
        "No plugins folder",
        &[(
            "shardmill.toml",
            "stream = \"orders\"\nplugins = \"plugnis\"\n",
        )],
    ),
    config(
        "A component whose ending is in upper case",
        &[
            ("plugins/ALERTS.WASM", ""),
            ("shardmill.toml", "stream = \"orders\"\n"),
        ],
    ),
    config(
        "A variable that is not set",
        &[
            ("plugins/readme", ""),
            (
                "shardmill.toml",
                "stream = \"orders\"\n[sinks.out]\ntype = \"http\"\nurl = \"http://localhost:1\"\n\
                 headers = { authorization = \"env:ORDERS_TOKEN\" }\n",
            ),
        ],
    ),
    config(
        "Several at once",
        &[(
            "shardmill.toml",
            "straem = \"orders\"\n[leases]\nduration = 10\nmax = 0\n[sinks.out]\ntype = \"file\"\npaht = \"out\"\n\
             [failure]\non-exhausted = \"dead-letter\"\ndead-letter = \"dead\"\n",
        )],
    ),
    config(
        "Several in a manifest",
        &[
            ("plugins/orders.wasm", "\0asm\r\0\u{1}\0"),
            (
                "plugins/orders.toml",
                "stream = \"payroll\"\n[batch]\nrecords = 0\n[limits]\nmemory = \"64GiB\"\n[grants]\nenv = [\"AWS_SECRET_ACCESS_KEY\"]\n",
            ),
            ("shardmill.toml", "stream = \"orders\"\n"),
        ],
    ),
    Mistake {
        what: "In the environment, in the file and in a manifest",
        files: SEVERAL_PLACES,
        typed: "SHARDMILL_STREM=orders SHARDMILL_LEASES__MAX=many SHARDMILL_AWS__REGOIN=eu-west-1 run --check",
    },
    Mistake {
        what: "The same for a program to read",
        files: SEVERAL_PLACES,
        typed: "SHARDMILL_STREM=orders SHARDMILL_LEASES__MAX=many SHARDMILL_AWS__REGOIN=eu-west-1 run --check --json",
    },
];

/// The manifest names no stream because the variable for all plugins is misspelt: no mistake of its
/// own.
const SEVERAL_PLACES: &[(&str, &str)] = &[
    ("plugins/orders.wasm", ""),
    (
        "plugins/orders.toml",
        "[batch]\nrecords = 0\n[limits]\nmemroy = \"1MiB\"\n",
    ),
    (
        "shardmill.toml",
        "[leases]\nduration = 10\n[sinks.out]\ntype = \"file\"\n",
    ),
];

const COMPONENTS: &[Mistake] = &[
    Mistake {
        what: "Text",
        files: &[("alerts.wasm", "hello\n")],
        typed: "check alerts.wasm",
    },
    Mistake {
        what: "An empty file",
        files: &[("alerts.wasm", "")],
        typed: "check alerts.wasm",
    },
    Mistake {
        what: "A module that is no component",
        files: &[("alerts.wasm", "\0asm\x01\0\0\0")],
        typed: "check alerts.wasm",
    },
    typed("A core module for WASI 0.1", "check wasi-0-1.wasm"),
    typed("A component that is cut off", "check cut-off.wasm"),
    typed("A compressed component", "check compressed.wasm"),
    typed("A program of this machine", "check program.wasm"),
    Mistake {
        what: "A component of another world",
        files: &[("alerts.wasm", "\0asm\x0d\0\x01\0")],
        typed: "check alerts.wasm",
    },
    Mistake {
        what: "State without the permission",
        files: &[("lines", "{\"carrier\":\"UA\",\"dep_delay\":1}\n")],
        typed: "test totals.wasm --input lines",
    },
    typed("An older contract", "check contract-0-0-9.wasm"),
    typed("A newer contract", "check contract-0-2-0.wasm"),
    typed("A contract of a later age", "check contract-1-0-0.wasm"),
    Mistake {
        what: "A folder",
        files: &[("alerts.wasm/readme", "")],
        typed: "check alerts.wasm",
    },
    typed("A link to a component", "check linked.wasm"),
    Mistake {
        what: "A name that no plugin can have",
        files: &[("ab.wasm", "")],
        typed: "check ab.wasm",
    },
    Mistake {
        what: "No folder for compiled code",
        files: &[("alerts.wasm", "")],
        typed: "HOME= TMPDIR=nowhere check alerts.wasm",
    },
];

/// With an embedded stack that runs, and has the stream `flights`.
const STREAMS: &[Mistake] = &[
    Mistake {
        what: "A stream that there is not",
        files: &[("lines", "{\"id\":1}\n")],
        typed: "put --local --stream orders lines",
    },
    typed(
        "A file that is not there",
        "put --stream flights --local flights.ndjson",
    ),
    typed("A folder as input", "put --stream flights --local plugins"),
    typed(
        "A stream that there is not, to read",
        "capture --local --stream orders",
    ),
    typed(
        "A stream that there is not, to list",
        "consumers --local orders",
    ),
    Mistake {
        what: "A line without the field",
        files: &[("lines", "{\"id\":1}\n{\"no\":2}\n")],
        typed: "put --local --stream flights --key-field id lines",
    },
    Mistake {
        what: "A field that is null",
        files: &[("lines", "{\"id\":1}\n{\"id\":null}\n")],
        typed: "put --local --stream flights --key-field id lines",
    },
    typed(
        "A field that is too long for a key",
        "put --local --stream flights --key-field id long-key",
    ),
    Mistake {
        what: "A line that is no JSON",
        files: &[("lines", "{\"id\":1}\nid=2\n")],
        typed: "put --local --stream flights --key-field id lines",
    },
    typed(
        "A shard that there is not",
        "capture --local --stream flights --shard shardId-000000000009",
    ),
    typed("An application that there is not", "leases orders --local"),
    typed(
        "An application whose name no table can have",
        "leases orders/eu --local",
    ),
    typed(
        "An application that there is not, with its state",
        "state orders --local",
    ),
    typed(
        "A shard in place of the application",
        "explain 0 flights --local",
    ),
    typed("A data folder that another process has", "dev"),
    typed(
        "A line that is no text, where a field is the key",
        "put --local --stream flights --key-field id latin1",
    ),
    typed(
        "A file without a line",
        "put --local --stream flights empty",
    ),
    typed(
        "A gzip file that is cut off",
        "put --local --stream flights cut.gz",
    ),
    typed(
        "A line larger than any record",
        "put --local --stream flights line-of-11-mib",
    ),
    typed(
        "A line larger than a record of the stream",
        "put --local --stream flights line-of-1.5-mib",
    ),
    typed(
        "A version that is none, to release",
        "plugins flights --release 00 --local",
    ),
];

/// Files that are no text, or too long to be written here; `None` for every other name.
fn made_of(name: &str) -> Option<Vec<u8>> {
    Some(match name {
        "totals.wasm" => guest("totals"),
        "contract-0-0-9.wasm" => of_contract(b"processor@0.0.9"),
        "contract-0-2-0.wasm" => of_contract(b"processor@0.2.0"),
        "contract-1-0-0.wasm" => of_contract(b"processor@1.0.0"),
        "wasi-0-1.wasm" => core_module_for_wasi_0_1(),
        "cut-off.wasm" => guest("totals")[..5_000].to_vec(),
        "compressed.wasm" => gzip(&guest("totals")),
        "program.wasm" => std::fs::read("/proc/self/exe").unwrap()[..4_096].to_vec(),
        "long-key" => format!("{{\"id\":\"{}\"}}\n", "k".repeat(257)).into_bytes(),
        "latin1" => b"{\"id\":1}\n{\"id\":\"caf\xe9\"}\n".to_vec(),
        "empty" => Vec::new(),
        "cut.gz" => cut_off_gzip(),
        "line-of-11-mib" => vec![b'x'; 11 << 20],
        "line-of-1.5-mib" => vec![b'x'; 3 << 19],
        _ => return None,
    })
}

/// A plugin that was built against that version of the contract.
fn of_contract(version: &[u8; 15]) -> Vec<u8> {
    let mut component = guest("totals");
    let known = b"processor@0.1.0";
    let mut at = 0;
    while let Some(found) = component[at..]
        .windows(known.len())
        .position(|bytes| bytes == known)
    {
        at += found;
        component[at..][..known.len()].copy_from_slice(version);
    }
    component
}

/// It imports a function of WASI 0.1, as `wasm32-wasip1` builds.
fn core_module_for_wasi_0_1() -> Vec<u8> {
    let text = "(module (import \"wasi_snapshot_preview1\" \"proc_exit\" (func (param i32))))";
    wat::parse_str(text).unwrap()
}

fn cut_off_gzip() -> Vec<u8> {
    let mut lines = String::new();
    for id in 0..500 {
        writeln!(lines, "{{\"id\":{id}}}").unwrap();
    }
    let mut bytes = gzip(lines.as_bytes());
    bytes.truncate(bytes.len() / 2);
    bytes
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    packed.write_all(bytes).unwrap();
    packed.finish().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_mistake_is_answered_with_what_is_wrong_where_and_how_to_fix_it() {
    let mut page = HEAD.to_owned();
    for (title, mistakes) in [
        ("The command line", COMMAND_LINE),
        ("The configuration", CONFIGURATION),
        ("Region, credentials, endpoint", AWS),
        ("Components", COMPONENTS),
    ] {
        writeln!(page, "\n## {title}").unwrap();
        for mistake in mistakes {
            let folder = tempfile::tempdir().unwrap();
            write!(page, "{}", made(mistake, folder.path()).await).unwrap();
        }
    }
    let setting = Setting::new(1).await;
    writeln!(page, "\n## Streams and tables").unwrap();
    for mistake in STREAMS {
        write!(page, "{}", made(mistake, setting.path()).await).unwrap();
    }
    setting.stop().await;
    let path = repository().join(PAGE);
    if std::env::var_os("SHARDMILL_BLESS").is_some() {
        std::fs::write(path, page).unwrap();
        return;
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert_eq!(page, written, "SHARDMILL_BLESS=1 writes {PAGE} anew");
}

/// What may be meant, so that it is only told.
const MEANT: [&str; 2] = [
    "A component whose ending is in upper case",
    "A file without a line",
];

/// Makes a mistake in a folder, and shows it as in a terminal.
async fn made(mistake: &Mistake, folder: &Path) -> String {
    let mut shown = format!("\n### {}\n\n```text\n", mistake.what);
    for (name, content) in mistake.files {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
        if Path::new(name)
            .extension()
            .is_some_and(|ending| ending == "toml")
            || *name == "lines"
        {
            write!(shown, "$ cat {name}\n{content}").unwrap();
        }
    }
    // Where there is no such folder, that would be told beside every mistake.
    if mistake.typed.contains("run --check") {
        std::fs::create_dir_all(folder.join("plugins")).unwrap();
    }
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let words: Vec<&str> = mistake.typed.split_whitespace().collect();
    for name in &words {
        if let Some(bytes) = made_of(name) {
            std::fs::write(folder.join(name), bytes).unwrap();
        }
        if *name == "linked.wasm" {
            std::fs::write(folder.join("flights.wasm"), guest("flights")).unwrap();
            std::os::unix::fs::symlink("flights.wasm", folder.join(name)).unwrap();
        }
    }
    let is_argument = |word: &&str| !word.contains('=');
    let first = words.iter().position(is_argument).unwrap_or(words.len());
    let (variables, arguments) = words.split_at(first);
    let output = tokio::process::Command::new(binary())
        .args(arguments.iter().map(|word| word.replace("PORT", &port)))
        .current_dir(folder)
        .env_clear()
        .env("HOME", folder)
        .env("TMPDIR", folder)
        .env("AWS_EC2_METADATA_DISABLED", "true")
        .envs(variables.iter().filter_map(|word| word.split_once('=')))
        .output()
        .await
        .unwrap();
    let code = output.status.code().unwrap();
    let may_be_meant = MEANT.contains(&mistake.what);
    assert!(code != 0 || may_be_meant, "{} is no mistake", mistake.what);
    let variables = variables.iter().map(|word| format!("{word} "));
    let variables: String = variables.collect();
    let typed = format!("$ {variables}shardmill {}", arguments.join(" "));
    writeln!(shown, "{}", typed.trim_end()).unwrap();
    // What `check` says beside its answer is no answer to a mistake.
    let beside = if arguments.first() == Some(&"check") {
        Vec::new()
    } else {
        output.stdout
    };
    for said in [beside, output.stderr] {
        let said = String::from_utf8(said).unwrap();
        shown += &settled(&said.replace(&format!("port {port}"), "port PORT"), folder);
    }
    writeln!(shown, "[{code}]\n```").unwrap();
    shown
}

/// What the name of the folder for compiled code begins with, and how many characters follow, which
/// differ each time.
const TEMPORARY: &str = "shardmill-code-";
const TEMPORARY_CHARACTERS: usize = 6;

/// Without what differs from run to run: where the folder is, which process this is, and ports that
/// the system chose.
fn settled(said: &str, folder: &Path) -> String {
    const HOST: &str = "127.0.0.1:";
    let said = said.replace(&format!("{}/", folder.display()), "");
    let mut said = said.replace(&format!("process {}", std::process::id()), "process PID");
    if let Some((_, name)) = said.split_once(TEMPORARY) {
        let name = name[..TEMPORARY_CHARACTERS].to_owned();
        said = said.replace(&name, "RANDOM");
    }
    let mut parts = said.split(HOST);
    let mut settled = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.trim_start_matches(|c: char| c.is_ascii_digit());
        let is_chosen = part.len() - rest.len() == 5;
        settled += HOST;
        settled += if is_chosen { "PORT" } else { part };
        settled += if is_chosen { rest } else { "" };
    }
    settled
}
