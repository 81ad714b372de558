"""Proves what docs/plugins.md says about each language beyond records in and out: an error is reported and the instance
survives, state is kept, requests are sent. Used by examples/languages.py.
"""

import http.server
import json
import re
import shutil
import threading
from pathlib import Path

HERE = Path(__file__).resolve().parent
DOCS = HERE.parent.parent / "docs/plugins.md"
REPORTED = "the plugin reported an error"

# Lines of the world `plugin` in wit/processor.wit.
EXPORT = "    export processor;\n"
STATE = "    export state;\n"
HTTP = "    import wasi:http/outgoing-handler@0.2.12;\n"

# What docs/plugins.md says about the changes below, and about what costs the instance, word for word.
SAID = {
    "rust": ["cargo add waki@0.5", "a panic costs the instance"],
    "python": [HTTP.strip(), "--world stateful-plugin", "--import-interface-name shardmill:processor/types@0.1.0=types"],
    "javascript": ["--disable http fetch-event", "--world-name stateful-plugin"],
    "go": [STATE.strip(), HTTP.strip(), "a panic in another goroutine"],
    "c": [STATE.strip(), "$(BINDINGS)/state.c", "a trap, such as a null pointer of a function, costs the instance"],
}
# The changes to a new project: text in files, further commands, and the build command.
EDITS = {
    "javascript": [("package.json", "--world-name plugin --disable http fetch-event", "--world-name stateful-plugin")],
    "go": [("Makefile", "WORLD :=\n", f"WORLD := {HTTP.strip()} {STATE.strip()}\n")],
    "c": [("wit/processor.wit", EXPORT, EXPORT + STATE),
          ("Makefile", "CONTRACT := $(BINDINGS)/plugin.c\n", "CONTRACT := $(BINDINGS)/plugin.c $(BINDINGS)/state.c\n")],
}
COMMANDS = {"rust": ["cargo add waki@0.5"]}
BUILD = {
    "python": ("--world plugin",
               "--world stateful-plugin --import-interface-name shardmill:processor/types@0.1.0=types"),
}
SENDS_REQUESTS = {"rust", "python", "javascript", "go"}
# Languages with a failure that no code in them can report: the record `die` causes it.
DIES = {"rust", "go", "c"}


class Failed(Exception):
    pass


def misconfigured(run, host, folder, name):
    """The new project, configured to emit to a sink that does not exist: it refuses before the first record."""
    (folder / "nowhere.toml").write_text(
        f'stream = "flights"\n[host]\ncache = "cache"\n[plugin.{name}.config]\ndestination = "nowhere"\n')
    (folder / "one.ndjson").write_text("one\n")
    try:
        run([host, "test", f"{name}.wasm", "--input", "one.ndjson", "--config", "nowhere.toml", "--allow-failures"], folder)
    except Failed as failed:
        if all(words in str(failed) for words in ["cannot create an instance", REPORTED, "misconfigured", "names no sink"]):
            return
        raise
    raise Failed("a destination that does not exist is not refused")


def change(run, language, project):
    """Turns a project into the counter; returns the commands that build it."""
    said = " ".join(DOCS.read_text().split()).lower()
    for words in SAID[language.name]:
        if words.lower() not in said:
            raise Failed(f"docs/plugins.md does not say `{words}`")
    for file, old, new in EDITS.get(language.name, []):
        replace(project / file, old, new)
    for command in COMMANDS.get(language.name, []):
        run(command, project, shell=True)
    # Without the original's time: make and cargo would think it older than what they built.
    shutil.copytree(HERE / language.name, project, copy_function=shutil.copyfile, dirs_exist_ok=True)
    old, new = BUILD.get(language.name, ("", ""))
    return [command.replace(old, new) for command in language.build]


def replace(path, old, new):
    text = path.read_text()
    if old not in text:
        raise Failed(f"{path.name} of the project has no `{old.strip()}`")
    path.write_text(text.replace(old, new))


class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = f"you asked for {self.path}".encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def counter(run, host, folder, name, language):
    """Runs the counter, with the permissions it needs."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        (folder / "counter.toml").write_text(
            f'stream = "flights"\n[host]\ncache = "cache"\n[http]\nallow-private = ["127.0.0.1"]\n'
            f'[plugin.{name}.grants]\nhttp = ["{address}"]\nstate = true\n')
        try:
            failures(run, host, folder, name, language, address)
            state(run, host, folder, name)
        finally:
            server.shutdown()


def failures(run, host, folder, name, language, address):
    """Errors are reported, the instance survives, HTTP requests are answered."""
    dies, asks = language.name in DIES, language.name in SENDS_REQUESTS
    records = ["die"] * dies + ["a", "fail"] + [f"ask {address}/b?c=d"] * asks + ["e"]
    expected = ["a 1"] + ["200 you asked for /b?c=d"] * asks + ["e 2"]
    (folder / "records.ndjson").write_text("".join(f"{record}\n" for record in records))
    (folder / "expected.ndjson").write_text("".join(f"{line}\n" for line in expected))
    report = json.loads(run([host, "test", f"{name}.wasm", "--input", "records.ndjson", "--expect", "expected.ndjson",
                             "--config", "counter.toml", "--batch-records", "1", "--attempts", "2", "--allow-failures",
                             "--json"], folder)[0])
    reasons = {failure["data"]: failure["reason"] for failure in report["failures"]}
    if report["comparison"]["differences"] or set(reasons) != {"fail"} | ({"die"} if dies else set()):
        raise Failed(f"not what the counter does: {report}")
    # The same instance made both attempts.
    if REPORTED not in reasons["fail"] or "on purpose, 2 times" not in reasons["fail"]:
        raise Failed(f"an error in the language is not reported, or cost the instance: {reasons['fail']}")
    if dies and REPORTED in reasons["die"]:
        raise Failed(f"what docs/plugins.md says costs the instance is reported: {reasons['die']}")


def state(run, host, folder, name):
    """A host that starts where another one ended continues the count."""
    (folder / "plugins").mkdir()
    for file in folder.glob(f"{name}.*"):
        shutil.copy(file, folder / "plugins")
    for word, count in [("before", 0), ("after", 3)]:
        (folder / "three.ndjson").write_text(f"{word}\n" * 3)
        output = run([host, "dev", "--plugins", "plugins", "--data", "data", "--shards", "1", "--feed", "three.ndjson",
                      "--config", "counter.toml", "--until-idle"], folder)[0]
        counted = re.findall(rf"^{word} (\d+)$", output, re.MULTILINE)
        if counted != [str(count + number) for number in (1, 2, 3)]:
            raise Failed(f"the count was not kept: {output}")
