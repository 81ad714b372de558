"""Makes container images of released binaries, as OCI layouts that `skopeo copy` brings into any registry."""

import shutil

from common import TARGETS, Refused, run, write_tar

# Of a lean image, unpacked.
LEAN_BYTES_MAX = 35_000_000
LAST_STAGE = "FROM scratch AS production\n"


def buildah(release, *arguments):
    """In a storage of its own, and without a daemon; what is built only copies files, so that nothing runs."""
    storage = release.work / "images"
    return run(["buildah", "--root", storage / "root", "--runroot", storage / "run", "--storage-driver", "vfs", *arguments],
               release.work, BUILDAH_ISOLATION="chroot")


def tag(release, variant):
    return f"localhost/shardmill:{release.version}" + ("" if variant == "lean" else f"-{variant}")


def build(release, target, variant, binary):
    """Adds the image for a machine to those of its variant."""
    context = release.work / "image-roots" / release.name(target, variant)
    shutil.rmtree(context, ignore_errors=True)
    context.mkdir(parents=True)
    run([release.source / "deploy/image-root", binary, context / "image"], release.source)
    text = (release.source / "deploy/Containerfile").read_text()
    _, found, stage = text.partition(LAST_STAGE)
    if not found:
        raise Refused(f"deploy/Containerfile has no line `{LAST_STAGE.strip()}`")
    (context / "Containerfile").write_text(found + stage.replace("--from=build /image/", "image/"))
    machine = TARGETS[target][1]
    labels = {"version": release.version, "revision": release.commit, "licenses": "Apache-2.0", "title": "shardmill"}
    options = [part for name, value in labels.items() for part in ("--label", f"org.opencontainers.image.{name}={value}")]
    buildah(release, "build", "--quiet", "--format", "oci", "--timestamp", str(release.epoch), "--platform",
            f"linux/{machine}", "--manifest", tag(release, variant), "--pull=never", *options, context)
    size = sum(path.stat().st_size for path in context.rglob("*") if path.is_file())
    if variant == "lean" and size > LEAN_BYTES_MAX:
        raise Refused(f"the image for {target} has {size:,} bytes, more than {LEAN_BYTES_MAX:,}")


def finish(release, variant):
    """One layout with the images of a variant for all machines."""
    name = f"shardmill-{release.version}-{variant}.oci"
    folder = release.work / "layouts" / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(exist_ok=True)
    buildah(release, "manifest", "push", "--quiet", "--all", tag(release, variant), f"oci:{folder}:{release.version}")
    buildah(release, "manifest", "rm", tag(release, variant))
    with open(release.out / f"{name}.tar", "wb") as file:
        write_tar(file, folder, "", release.epoch)
