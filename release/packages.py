"""Packs a binary: an archive, a Debian package, and the list of what is in it."""

import gzip
import hashlib
import json
import shutil

from common import TARGETS, run, write_tar
from contents import bom, describe, notices

UNIT = "deploy/systemd/shardmill.service"
# The line of a list, and what follows it.
DESCRIPTIONS = {
    "lean": ["hosts for WebAssembly record processors on Amazon Kinesis"],
    "full": ["hosts for WebAssembly record processors on Amazon Kinesis",
             "With an embedded Kinesis and DynamoDB, for the commands `dev` and `test`."],
}


def stage(release, target, variant, binary, extras):
    """The folder that the archive has and the packages are made from. Returns it."""
    root = release.work / "roots" / release.name(target, variant)
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(extras, root / "share")
    (root / "bin").mkdir()
    shutil.copy(binary, root / "bin/shardmill")
    (root / "lib/systemd/system").mkdir(parents=True)
    shutil.copy(release.source / UNIT, root / "lib/systemd/system")
    (root / "etc").mkdir()
    shutil.copy(release.source / "deploy/systemd/shardmill.toml", root / "etc")
    for file in ["LICENSE", "README.md", "CHANGELOG.md", "SECURITY.md"]:
        shutil.copy(release.source / file, root)
    described = describe(release, target, variant)
    (root / "THIRD-PARTY.txt").write_text(notices(described))
    sbom(release, described, target, variant, root)
    return root


def sbom(release, described, target, variant, root):
    """The packages in the binary, as CycloneDX; a file of its own, and in the archive."""
    text = json.dumps(bom(release, described, variant), indent=1) + "\n"
    (release.out / f"{release.name(target, variant)}.cdx.json").write_text(text)
    (root / "sbom.cdx.json").write_text(text)


def archive(release, target, variant, root):
    """A tar.gz with the same bytes each time: names in order, nobody's files, the commit's time."""
    path = release.out / f"{root.name}.tar.gz"
    with open(path, "wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=release.epoch) as packed:
        write_tar(packed, root, f"{root.name}/", release.epoch)


def deb(release, target, variant, root):
    """A Debian package. Only one variant can be installed; the lean one has the plain name."""
    name, other = ("shardmill", "shardmill-full") if variant == "lean" else ("shardmill-full", "shardmill")
    tree = release.work / "deb" / root.name
    shutil.rmtree(tree, ignore_errors=True)
    share = tree / "usr/share"
    shutil.copytree(root / "share", share)
    put(tree / "usr/bin/shardmill", (root / "bin/shardmill").read_bytes(), 0o755)
    unit = (root / "lib/systemd/system/shardmill.service").read_text()
    put(tree / "usr/lib/systemd/system/shardmill.service", unit.replace("/usr/local/bin/", "/usr/bin/").encode())
    put(tree / "etc/shardmill/shardmill.toml", (root / "etc/shardmill.toml").read_bytes())
    (tree / "etc/shardmill/plugins").mkdir()
    for page in sorted((share / "man/man1").iterdir()):
        put(page.with_name(f"{page.name}.gz"), gzip.compress(page.read_bytes(), 9, mtime=0))
        page.unlink()
    copyright = (release.source / "release/deb/copyright").read_text() + "\n" + (root / "THIRD-PARTY.txt").read_text()
    put(share / f"doc/{name}/copyright", copyright.encode())
    put(share / f"doc/{name}/changelog.gz", gzip.compress((root / "CHANGELOG.md").read_bytes(), 9, mtime=0))
    put(share / f"doc/{name}/sbom.cdx.json", (root / "sbom.cdx.json").read_bytes())
    control(release, tree, name, other, target, variant)
    for path in [tree, *tree.rglob("*")]:
        path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o111 else 0o644)
    run(["dpkg-deb", "--root-owner-group", "--build", "-Zxz", tree,
         release.out / f"{name}_{release.version}_{TARGETS[target][1]}.deb"], release.work,
        SOURCE_DATE_EPOCH=str(release.epoch))


def control(release, tree, name, other, target, variant):
    """What dpkg reads: who it is, its configuration, its checksums, and what runs around installing."""
    files = sorted(path for path in tree.rglob("*") if path.is_file())
    sums = [f"{hashlib.md5(path.read_bytes()).hexdigest()}  {path.relative_to(tree)}\n" for path in files]
    kib = sum(-(-path.stat().st_size // 1024) for path in files)
    short, *further = DESCRIPTIONS[variant]
    fields = {
        "Package": name, "Version": release.version, "Architecture": TARGETS[target][1], "Section": "net",
        "Priority": "optional", "Maintainer": "The authors of shardmill <authors@shardmill.example>",
        "Homepage": "https://shardmill.example/shardmill", "Installed-Size": str(kib), "Depends": "ca-certificates",
        "Conflicts": other, "Replaces": other,
    }
    if variant != "lean":
        fields["Provides"] = other
    fields["Description"] = "\n ".join([short, *further])
    text = "".join(f"{field}: {value}\n" for field, value in fields.items())
    put(tree / "DEBIAN/control", text.encode())
    put(tree / "DEBIAN/conffiles", b"/etc/shardmill/shardmill.toml\n")
    put(tree / "DEBIAN/md5sums", "".join(sums).encode())
    for script in ["postinst", "prerm", "postrm"]:
        put(tree / "DEBIAN" / script, (release.source / "release/deb" / script).read_bytes(), 0o755)


def put(path, content, mode=0o644):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(mode)
