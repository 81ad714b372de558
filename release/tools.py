"""The tools that a release needs beyond the toolchains, each in one version, from the registries of their languages."""

import shutil
import sys

from common import TARGETS, Refused, run

# A C compiler for every target, and what lets cargo use it.
PYTHON = ["cargo-zigbuild==0.24.1", "ziglang==0.15.2"]
# Writes into a binary which packages are in it.
CARGO = {"cargo-auditable": "0.7.7"}


class Tools:
    """Fetched once into a folder; the folder's `bin` goes first on the PATH."""

    def __init__(self, folder, images):
        self.folder, self.bin = folder, folder / "bin"
        self.bin.mkdir(parents=True, exist_ok=True)
        for tool in ["rustup", "npm", "dpkg-deb"] + ["buildah"] * images:
            if not shutil.which(tool):
                raise Refused(f"there is no {tool}")
        have = run(["rustup", "target", "list", "--installed"], folder).split()
        for target, _ in TARGETS.values():
            if target not in have:
                run(["rustup", "target", "add", target], folder)
        self.python()
        for name, version in CARGO.items():
            if not (self.bin / name).exists():
                run(["cargo", "install", "--quiet", "--locked", "--root", folder, f"{name}@{version}"], folder)

    def python(self):
        venv = self.folder / "python"
        done = venv / "versions"
        if not done.exists() or done.read_text() != "\n".join(PYTHON):
            shutil.rmtree(venv, ignore_errors=True)
            run([sys.executable, "-m", "venv", venv], self.folder)
            run([venv / "bin/pip", "install", "--quiet", "--disable-pip-version-check", *PYTHON], self.folder)
            done.write_text("\n".join(PYTHON))
        self.venv = venv
