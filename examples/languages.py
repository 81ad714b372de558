#!/usr/bin/env python3
"""From `shardmill new` to records processed, in each language, each in a clean folder.

    SHARDMILL=target/release/shardmill examples/languages.py [LANGUAGE ...] [--write docs/languages.md]

Each project is created, built and tested with the commands of its own README, checked, and given the flights of the sample,
which must come out as they went in. Then it is made to fail, to keep state and to send requests: see counter/prove.py; for
that it depends on the package of its language, as release/sdks.py packs it, instead of its own copy. With --write it is measured instead, and the table is written: then use a host built with --release, on an idle machine. Needs only Python's
standard library, and for each language what its README asks for.
"""

import argparse
import collections
import gzip
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "examples/counter"), str(ROOT / "release")]
import packed  # noqa: E402
import prove  # noqa: E402
import sdks  # noqa: E402
from prove import Failed  # noqa: E402

SAMPLE = ROOT / "examples/flights/sample.ndjson.gz"
NAME = "alerts"
# In a round of the measurement.
RECORDS = 50_000

Language = collections.namedtuple("Language", "name title tool setup build test component")

# The commands, which the project's README must contain word for word.
LANGUAGES = [
    Language("rust", "Rust", "cargo", [], ["cargo build --release --target wasm32-wasip2"], "cargo test",
             f"target/wasm32-wasip2/release/{NAME}.wasm"),
    Language("python", "Python", "componentize-py",
             ["python3 -m venv .venv && .venv/bin/pip install -r requirements.txt"],
             [f".venv/bin/componentize-py --wit-path wit --world plugin componentize app --output {NAME}.wasm"],
             "python3 -m unittest", f"{NAME}.wasm"),
    Language("javascript", "JavaScript", "componentize-js", ["npm install"], ["npm run build"], "npm test", f"{NAME}.wasm"),
    Language("go", "Go", "go, jco", [], ["make"], "make test", f"{NAME}.wasm"),
    Language("c", "C", "clang, jco", [], ["make"], "make test", f"{NAME}.wasm"),
]


def environment():
    """The caller's, without what would build a project outside its folder, or with another toolchain."""
    kept = {name: value for name, value in os.environ.items() if name != "CARGO_TARGET_DIR"}
    # The toolchain of this repository is installed; the newest stable one may not be, nor be available.
    kept["RUSTUP_TOOLCHAIN"] = re.search(r'channel = "(.*?)"', (ROOT / "rust-toolchain.toml").read_text())[1]
    return kept


def run(command, folder, shell=False, further=None):
    """Returns standard output and the seconds it took."""
    started = time.monotonic()
    done = subprocess.run(command, cwd=folder, shell=shell, env=environment() | (further or {}), capture_output=True,
                          text=True)
    if done.returncode != 0:
        raise Failed(f"{command} ended with {done.returncode}:\n{done.stdout[-2_000:]}\n{done.stderr[-4_000:]}")
    return done.stdout, time.monotonic() - started


def make(language, host, folder):
    """Builds and tests a project; returns the component, and seconds by phase."""
    took = {}
    _, took["new"] = run([host, "new", NAME, "--lang", language.name], folder)
    project = folder / NAME
    readme = (project / "README.md").read_text()
    for phase, commands in [("setup", language.setup), ("build", language.build), ("test", [language.test])]:
        took[phase] = 0.0
        for command in commands:
            if command not in readme:
                raise Failed(f"the README of the project in {language.title} does not say `{command}`")
            took[phase] += run(command, project, shell=True)[1]
    run(re.search(r"^mkdir -p plugins .*", readme, re.MULTILINE)[0], project, shell=True)
    installed = {path.name for path in (project / "plugins").iterdir()}
    if installed != {f"{NAME}.wasm"} | {manifest.name for manifest in project.glob(f"{NAME}.toml")}:
        raise Failed(f"the README's last command leaves {installed} in the plugins folder")
    component = folder / f"{NAME}.wasm"
    shutil.copy(project / language.component, component)
    for manifest in project.glob(f"{NAME}.toml"):
        shutil.copy(manifest, folder)
    return component, took


def further(language, host, folder, packages):
    """Errors of the new project; then errors, state and requests of the counter that it is turned into. That one depends on
    the package of its language; C has none.
    """
    started = time.monotonic()
    prove.misconfigured(run, host, folder, NAME)
    project = folder / NAME
    commands, variables, changes = prove.change(run, language, project), {}, {}
    if language.name != "c":
        variables, changes = packed.depend(language.name, project, packages)
    for command in commands:
        for old, new in changes.items():
            command = command.replace(old, new)
        run(command, project, shell=True, further=variables)
    shutil.copy(project / language.component, folder / f"{NAME}.wasm")
    prove.counter(run, host, folder, NAME, language)
    return time.monotonic() - started


def process(host, folder):
    """The flights of the sample through the whole host: all must come out, each once."""
    with gzip.open(SAMPLE, "rt") as lines:
        flights = sorted(lines.read().splitlines())
    (folder / "shardmill.toml").write_text('stream = "flights"\n[host]\ncache = "cache"\n')
    run([host, "check", f"{NAME}.wasm"], folder)
    output, seconds = run([host, "test", f"{NAME}.wasm", "--input", str(SAMPLE), "--config", "shardmill.toml"], folder)
    if sorted(output.splitlines()) != flights:
        raise Failed(f"{len(output.splitlines())} lines came out of {len(flights)}, or others")
    return len(flights), seconds


def measure(host, folder):
    """Figures of `shardmill bench` with the component already compiled; and milliseconds to compile it."""
    # More memory than any plugin gets: tools that do not free what is emitted would not finish.
    (folder / "bench.toml").write_text(
        f'stream = "bench"\n[host]\ncache = "cache"\n[plugin.{NAME}.limits]\nmemory = "1GiB"\n')
    command = [host, "bench", f"{NAME}.wasm", "--config", "bench.toml", "--json"]
    cold = json.loads(run([*command, "--rounds", "1", "--records", "1"], folder)[0])["compile-ms"]
    report = json.loads(run([*command, "--records", str(RECORDS)], folder)[0])
    return report | {"load": os.getloadavg()[0], "cold-ms": cold, "size": (folder / f"{NAME}.wasm").stat().st_size}


def version(command):
    try:
        said = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True).stdout
        return re.search(r"\d+(\.\d+)+", said)[0]
    except TypeError:
        return "?"


def pinned(pattern, path):
    return re.search(pattern, (ROOT / "host/app/templates" / path).read_text())[1]


def tools():
    """The tools behind the figures."""
    jco = pinned(r"jco@([\d.]+)", "go/Makefile")
    return ", ".join([
        f"rustc {version('rustc --version')}",
        f"componentize-py {pinned(r'==([0-9.]+)', 'python/requirements.txt')} with Python {version('python3 --version')}",
        f"componentize-js {pinned(r'componentize-js.: .([0-9.]+)', 'javascript/package.json')} with Node {version('node --version')}",
        f"Go {version('go version')} and jco {jco}",
        f"clang {version('clang --version')} and jco {jco}",
    ])


def table(rows):
    """The table, with ratios to Rust where they are meaningful."""
    base = next((row for row in rows if row["language"].name == "rust"), None)

    def beside(figure, key, form):
        text = form(figure)
        if base is None or base[key] is figure:
            return text
        return f"{text} ({figure / base[key]:.1f}x)"

    lines = [
        "| | Built by | Tools | Build | Test | Component | Compiled in the host, cold / cached | Start of an instance | "
        "CPU a record | Memory |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        language = row["language"]
        setup = f"{row['setup']:.0f} s" if row["setup"] else "none"
        lines.append(
            f"| {language.title} | {language.tool} | {setup} | {row['build']:.1f} s | {row['test']:.1f} s "
            f"| {row['size'] / 1e6:.2f} MB | {row['cold-ms']:,.0f} ms / {row['compile-ms']:.1f} ms "
            f"| {beside(row['start'], 'start', lambda us: f'{us:,.0f} µs')} "
            f"| {beside(row['nanos'], 'nanos', lambda ns: f'{ns:,.0f} ns')} "
            f"| {row['memory-bytes'] / (1 << 20):.1f} MiB |"
        )
    return "\n".join(lines)


def in_words(row):
    """One row of the table in words."""
    return (
        f"For example, a {row['language'].title} plugin is a file of {row['size'] / 1e6:.0f} MB. The host compiled it in "
        f"{row['cold-ms'] / 1e3:.0f} s, and loads it from `host.cache` in {row['compile-ms'] / 1e3:.1f} s. Each shard has "
        f"an instance, which starts in {row['start'] / 1e3:.1f} ms. Plan for the memory limit that its manifest sets, "
        f"128 MiB in a new project; without one it took {row['memory-bytes'] / (1 << 20):,.0f} MiB at the end of the test (see Memory below). "
        f"A record takes {row['nanos'] / 1e3:.1f} µs of a core."
    )


def page(rows):
    some = rows[0]
    python = next((row for row in rows if row["language"].name == "python"), some)
    empty, native = (row_median(rows, key) for key in ("empty-component", "native-no-op"))
    spread = max(row["plugin"]["cpu-nanos-per-record"]["max"] / row["plugin"]["cpu-nanos-per-record"]["min"] for row in rows)
    cores = os.cpu_count()
    return f"""# Languages

Made by `examples/languages.py --write docs/languages.md`. For each language it creates a project in an empty folder,
builds and tests it with the commands of its README, checks it, and lets the host process the {some['records']:,} flights of
`examples/flights/sample.ndjson.gz`, which must all come out as they went in. CI does the same, without the figures.

{textwrap.fill(in_words(python), 120)}

{table(rows)}

- **Tools** is the time to install the project's tools from a registry before the first build. **Build** is the first
  build, with what the language's own cache already has.
- **Start of an instance** is instantiation and `init`. **CPU a record** is the core time of a call of `process` with a
  batch of {some['records-per-batch']:.0f} records of {some['bytes-per-record']:,.0f} bytes, divided by the records: reading each and emitting it again, which is all that
  these processors do. Medians of {some['rounds']} rounds by `shardmill bench`; in each language, the slowest round took at most
  {spread:.1f} times as long as the fastest.
- Delivery alone, to a component that does nothing, takes {empty:,.0f} ns of that; native code behind the same interface,
  {native:,.1f} ns.
- **Memory** is that of an instance after all rounds, in which it emitted at least {RECORDS * some['rounds']:,} records of {some['bytes-per-record']:,.0f} bytes, with
  a limit of 1 GiB. Where it grows with the records, the language's tool does not free what is emitted, and instances
  are replaced whenever they reach their limit ([more](plugins.md#in-each-language)). Compiled code exists once, however
  many instances there are.
- In brackets: the ratio to Rust.

This is the price of the language, not of your code: measure that with `shardmill bench NAME.wasm`.

On {cores} cores of {processor()}, under a load of {max(row['load'] for row in rows):.1f}. Above {cores}, the figures in seconds and milliseconds are longer than on
an idle machine, most of all compiling, which runs at low priority. The load does not change the CPU a record. With {tools()}.
"""


def row_median(rows, key):
    medians = sorted(row[key]["cpu-nanos-per-record"]["median"] for row in rows)
    return medians[len(medians) // 2]


def processor():
    try:
        return re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())[1]
    except (OSError, TypeError):
        return platform.machine()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("languages", nargs="*", metavar="LANGUAGE", help="rust, python, javascript, go, c; all unless given")
    parser.add_argument("--write", type=Path, metavar="FILE", help="measure, and write the table")
    args = parser.parse_args()
    unknown = set(args.languages) - {language.name for language in LANGUAGES}
    if unknown:
        parser.error(f"no project in {', '.join(sorted(unknown))}")
    host = shutil.which(os.environ.get("SHARDMILL", "shardmill"))
    if host is None:
        parser.error("no shardmill on the PATH: set SHARDMILL to the binary")
    host, rows = str(Path(host).resolve()), []
    temporary = tempfile.TemporaryDirectory()
    packages = Path(temporary.name) / "sdks"
    if not args.write:
        started = time.monotonic()
        sdks.pack(packages)
        print(f"packed for the registries: {time.monotonic() - started:.1f} s", flush=True)
    for language in LANGUAGES:
        if args.languages and language.name not in args.languages:
            continue
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            try:
                _, took = make(language, host, folder)
                # First, before anything is compiled.
                report = measure(host, folder) if args.write else {}
                records, seconds = process(host, folder)
                proofs = 0.0 if args.write else further(language, host, folder, packages)
                print(f"{language.title}: " + ", ".join(f"{phase} {spent:.1f} s" for phase, spent in took.items())
                      + f", {records} records through the host {seconds:.1f} s, proofs {proofs:.1f} s", flush=True)
                if args.write:
                    rows.append(report | took | {"language": language, "records": records,
                                                 "start": report["instantiate"]["median"],
                                                 "nanos": report["plugin"]["cpu-nanos-per-record"]["median"]})
            except Failed as failed:
                sys.exit(f"{language.title}: {failed}")
    if args.write:
        args.write.write_text(page(rows))


if __name__ == "__main__":
    main()
