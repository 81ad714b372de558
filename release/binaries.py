"""Builds the binary, with the same bytes from the same commit wherever it is built, and checks what came out."""

import os
import re
import shutil
import subprocess
from pathlib import Path

from common import TARGETS, VARIANTS, Refused, run

# A lean host should start fast and fit anywhere; a binary beyond this has something in it that it should not.
LEAN_BYTES_MAX = 30_000_000


def environment(release, tools, target):
    """Of the build: no path, time, place or language of this machine is to be in the binary."""
    cargo_home = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))
    built = release.work / "target"
    # The last that fits is taken.
    renamed = [(cargo_home, "/cargo"), (built, "/target"), (release.source, "/shardmill")]
    remap = [f"--remap-path-prefix={path}={name}" for path, name in renamed]
    c_remap = [f"-ffile-prefix-map={path}={name}" for path, name in renamed]
    # Equal functions are kept once, and relocations are packed: some 2.5 and 2.3 MB.
    smaller = ["-Clink-arg=--icf=all", "-Clink-arg=-zpack-relative-relocs"]
    triple = TARGETS[target][0]
    return {
        "PATH": f"{tools.bin}:{tools.venv}/bin:{os.environ['PATH']}",
        "CARGO_TARGET_DIR": str(built),
        "CARGO_INCREMENTAL": "0",
        "CARGO_ENCODED_RUSTFLAGS": "\x1f".join([*remap, *smaller]),
        # Links with Rust's own start files, to an executable whose addresses vary from run to run; zig's would not. So zig
        # only compiles C.
        f"CARGO_TARGET_{triple.replace('-', '_').upper()}_LINKER": "rust-lld",
        f"CFLAGS_{triple.replace('-', '_')}": " ".join(c_remap),
        "SHARDMILL_COMMIT": release.commit,
        "SOURCE_DATE_EPOCH": str(release.epoch),
        "ZIG_GLOBAL_CACHE_DIR": str(release.work / "zig"),
        "LC_ALL": "C",
        "TZ": "UTC",
    }


def build(release, tools, target, variant):
    """Returns the binary."""
    triple = TARGETS[target][0]
    variables = environment(release, tools, target)
    run(["cargo", "auditable", "zigbuild", "--locked", "--profile", "dist", "--package", "shardmill", "--bin", "shardmill",
         "--target", triple, *VARIANTS[variant]], release.source, **variables)
    # The next variant is built over it.
    binary = release.work / "binaries" / release.name(target, variant)
    binary.parent.mkdir(exist_ok=True)
    shutil.copy(release.work / f"target/{triple}/dist/shardmill", binary)
    check(release, binary, target, variant)
    return binary


def check(release, binary, target, variant):
    """Static, small, auditable, without a path of this machine; and if it runs here, it says what it is."""
    content = binary.read_bytes()
    if variant == "lean" and len(content) > LEAN_BYTES_MAX:
        raise Refused(f"{binary} has {len(content):,} bytes, more than {LEAN_BYTES_MAX:,}")
    headers = run(["readelf", "--wide", "--file-header", "--program-headers", "--sections", binary], release.work,
                  LC_ALL="C")
    if not re.search(r"Type:\s+DYN", headers):
        raise Refused(f"{binary} has fixed addresses")
    if "INTERP" in headers:
        raise Refused(f"{binary} needs a dynamic linker")
    if ".dep-v0" not in headers:
        raise Refused(f"{binary} does not say which packages are in it")
    for path in [release.source, release.work, Path.home()]:
        # A home such as `/root` is also a path inside containers: with a slash behind it, it is one of here.
        if f"{path}/".encode() in content and str(path) != "/":
            raise Refused(f"{binary} has the path {path} in it")
    if target == os.uname().machine:
        said = run([binary, "version"], release.work).strip()
        expected = f"shardmill {release.version} ({variant}, commit {release.commit})"
        if said != expected:
            raise Refused(f"{binary} says {said!r}, not {expected!r}")


def extras(release, binary, variant):
    """What a binary writes about itself: a folder with completions and manual pages, by their place below `share`."""
    folder = release.work / "extras" / variant
    shutil.rmtree(folder, ignore_errors=True)
    places = {"bash": "bash-completion/completions/shardmill", "zsh": "zsh/site-functions/_shardmill",
              "fish": "fish/vendor_completions.d/shardmill.fish"}
    for shell, place in places.items():
        (folder / place).parent.mkdir(parents=True)
        script = subprocess.run([binary, "completions", shell], stdout=subprocess.PIPE, check=True).stdout
        (folder / place).write_bytes(script)
    subprocess.run([binary, "man", "--out", folder / "man/man1"], stdout=subprocess.DEVNULL, check=True)
    return folder
