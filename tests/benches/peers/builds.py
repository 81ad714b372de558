"""Builds what the benchmark of peers runs."""

import functools
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
# The MultiLangDaemon's KCL has to be the KCL's.
KCL = "3.5.1"
KCLPY = "3.2.0"
NO_MULTILANG = f"""Maven does not find amazon-kinesis-client-multilang {KCL}. If your repository lacks it, install it from its
source, https://github.com/awslabs/amazon-kinesis-client, at the tag v{KCL}:
    mvn install -f amazon-kinesis-client-multilang/pom.xml -Dmaven.test.skip -Dspotless.check.skip -Dcheckstyle.skip \\
        -Dmaven.javadoc.skip -Dmaven.source.skip
What Maven said:
"""


class Missing(Exception):
    """What a peer needs is not here; says what to install."""


def run(arguments, **others):
    """Runs to the end and returns what it said; `Missing` if it fails."""
    try:
        done = subprocess.run(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **others)
    except FileNotFoundError as error:
        raise Missing(f"`{arguments[0]}` is not installed") from error
    if done.returncode:
        raise Missing(f"`{' '.join(map(str, arguments[:3]))} ...` failed:\n{done.stdout[-2000:]}")
    return done.stdout


def needs(program, advice):
    if not shutil.which(program):
        raise Missing(f"`{program}` is not installed: {advice}")


def maven(target, *more):
    needs("java", "install Java 11 or newer")
    needs("mvn", "install Maven 3.8 or newer")
    command = ["mvn", "--batch-mode", "--quiet", "--no-transfer-progress", "package"]
    command += ["--file", ROOT / "tests/kcl/consumer/pom.xml", f"-Dkcl.version={KCL}", f"-Dbuild.to={target}", *more]
    run(command)
    return target / "lib"


class Builds:
    """Each is built once, in cargo's target folder."""

    def __init__(self):
        self.target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).absolute()

    def cargo(self, *arguments, target=None):
        # Its progress is shown: a first build takes tens of minutes.
        command = ["cargo", "build", "--locked", *arguments, "--target-dir", str(target or self.target)]
        if subprocess.run(command, cwd=ROOT).returncode:
            sys.exit(f"`{' '.join(command)}` failed")

    @functools.cache
    def shardmill(self):
        self.cargo("--release", "--workspace", "--bin", "shardmill")
        return self.target / "release/shardmill"

    @functools.cache
    def component(self):
        """Does nothing with a record, as the others do."""
        choice = ["--package", "shardmill-guests", "--example", "noop"]
        self.cargo("--profile", "guest", "--target", "wasm32-wasip2", *choice)
        return self.target / "wasm32-wasip2/guest/examples/noop.wasm"

    @functools.cache
    def rust(self):
        """The folder of the peers in Rust."""
        target = self.target / "peers"
        manifest = ROOT / "tests/benches/peers/Cargo.toml"
        self.cargo("--release", "--manifest-path", str(manifest), target=target)
        return target / "release"

    @functools.cache
    def kcl(self):
        """The folder of jars of the tests' KCL application."""
        return maven(self.target / "peers/kcl")

    @functools.cache
    def multilang(self):
        """The folder of jars of the MultiLangDaemon."""
        try:
            return maven(self.target / "peers/multilang", "-Pmultilang")
        except Missing as missing:
            if "amazon-kinesis-client-multilang" not in str(missing):
                raise
            raise Missing(f"{NO_MULTILANG}{missing}") from missing

    @functools.cache
    def kclpy(self):
        """The folder of the KCL for Python, without its jars."""
        target = self.target / "peers/kclpy"
        name = f"amazon_kclpy-{KCLPY}"
        if not (target / name).exists():
            pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", "amazon-kclpy"]
            run([*pip, "--dest", target, f"amazon-kclpy=={KCLPY}"])
            with tarfile.open(target / f"{name}.tar.gz") as archive:
                archive.extractall(target, filter="data")
        return target / name
