"""What the steps of a release share."""

import dataclasses
import os
import subprocess
import tarfile
from pathlib import Path

# By the name that files have: Rust's target, and Debian's and the container world's name of the machine.
TARGETS = {
    "x86_64": ("x86_64-unknown-linux-musl", "amd64"),
    "aarch64": ("aarch64-unknown-linux-musl", "arm64"),
}
# Arguments of cargo.
VARIANTS = {"lean": ["--no-default-features"], "full": []}


class Refused(Exception):
    """Why there is no release, for people to read."""


@dataclasses.dataclass(frozen=True)
class Release:
    """What is released, and where it is made."""

    version: str
    commit: str
    # Of the commit, in seconds: the time of every file.
    epoch: int
    source: Path
    work: Path
    out: Path

    def name(self, target, variant):
        """Of files and folders."""
        return f"shardmill-{self.version}-{target}-linux-{variant}"


def run(command, folder, **environment):
    """Returns standard output; standard error is shown."""
    done = subprocess.run(command, cwd=folder, env=os.environ | environment, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise Refused(f"`{' '.join(map(str, command))}` ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def write_tar(file, folder, prefix, epoch):
    """The files of a folder, with the same bytes each time: names in order, nobody's files, one time."""
    def plain(entry):
        is_run = entry.isdir() or entry.name.endswith("/bin/shardmill")
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = "root"
        entry.mtime, entry.mode = epoch, 0o755 if is_run else 0o644
        return entry

    with tarfile.open(fileobj=file, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for path in sorted(folder.rglob("*")):
            tar.add(path, f"{prefix}{path.relative_to(folder)}", recursive=False, filter=plain)
