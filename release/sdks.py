#!/usr/bin/env python3
"""Packs what plugin authors depend on, for the registry of each language, from the folder `wit`.

    release/sdks.py --out dist/sdks

Makes two crates, a wheel and its source, an npm package, and a Go module as a folder that a Go proxy serves. Needs cargo,
Python 3 with venv, and npm. Also used by examples/languages.py, so that CI builds with what is packed.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CRATES = ["shardmill-layout", "shardmill-processor"]
# As old as a zip can say. A fixed time, so that the same files give the same bytes.
ZIP_TIME = (1980, 1, 1, 0, 0, 0)
BUILD = "build==1.6.1"


def run(command, folder, **environment):
    done = subprocess.run(command, cwd=folder, env=os.environ | environment, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done.stdout


def version(source):
    return re.search(r'^version = "(.+)"', (source / "Cargo.toml").read_text(), re.MULTILINE)[1]


def module(source):
    """The path of the Go module."""
    return re.search(r"^module (\S+)", (source / "wit/go.mod").read_text(), re.MULTILINE)[1]


def staged(source, folder):
    """A copy of `wit` without what builds leave there, and with the licence as a file."""
    copy = folder / "wit"
    shutil.copytree(source / "wit", copy, ignore=shutil.ignore_patterns("__pycache__", "target", "node_modules"))
    return copy


def crates(source, out, folder):
    packages = [argument for name in CRATES for argument in ("--package", name)]
    run(["cargo", "package", "--quiet", "--locked", "--no-verify", "--allow-dirty", "--target-dir", folder, *packages], source)
    for name in CRATES:
        shutil.copy(folder / f"package/{name}-{version(source)}.crate", out)


def wheel(wit, out, folder, epoch):
    """The wheel and its source."""
    venv = folder / "venv"
    run([sys.executable, "-m", "venv", venv], folder)
    python = venv / "bin/python"
    run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", BUILD], folder)
    run([python, "-m", "build", "--outdir", out, wit], folder, SOURCE_DATE_EPOCH=epoch)


def npm(wit, out):
    run(["npm", "pack", "--silent", "--pack-destination", out], wit)


def go(source, wit, out):
    """The module as a Go proxy serves it: https://go.dev/ref/mod#goproxy-protocol."""
    name, tag = module(source), f"v{version(source)}"
    folder = out / "go" / name / "@v"
    folder.mkdir(parents=True)
    (folder / "list").write_text(f"{tag}\n")
    (folder / f"{tag}.info").write_text(json.dumps({"Version": tag}) + "\n")
    shutil.copyfile(wit / "go.mod", folder / f"{tag}.mod")
    with zipfile.ZipFile(folder / f"{tag}.zip", "w", zipfile.ZIP_DEFLATED) as packed:
        for path in sorted(path for path in wit.rglob("*") if path.is_file() and is_for_go(path.relative_to(wit))):
            entry = zipfile.ZipInfo(f"{name}@{tag}/{path.relative_to(wit).as_posix()}", ZIP_TIME)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            packed.writestr(entry, path.read_bytes())


def is_for_go(path):
    return path.suffix == ".wit" or path.parts[0] in {"go", "go.mod", "LICENSE", "README.md"}


def pack(out, source=ROOT, epoch=None):
    """Packs everything into the new folder `out`."""
    out.mkdir(parents=True)
    # Zip knows no earlier time.
    epoch = str(epoch or int(time.time()))
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        wit = staged(source, folder)
        crates(source, out, folder / "cargo")
        wheel(wit, out, folder, epoch)
        npm(wit, out)
        go(source, wit, out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("dist/sdks"), help="a new folder; dist/sdks unless given")
    out = parser.parse_args().out.resolve()
    if out.exists():
        parser.error(f"{out} exists")
    pack(out)
    for path in sorted(path for path in out.rglob("*") if path.is_file()):
        print(f"{path.stat().st_size:>9,}  {path.relative_to(out)}")


if __name__ == "__main__":
    main()
