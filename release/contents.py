"""What is in a binary besides our own code: which packages, and their licences."""

import json
import re
import tomllib
from pathlib import Path

from common import TARGETS, VARIANTS, run

IS_LICENCE = re.compile(r"^(licen[cs]e|copying|notice|unlicense|copyright)", re.IGNORECASE)


def describe(release, target, variant):
    """The packages of a build, and what each depends on, as cargo decides it."""
    described = json.loads(run(
        ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", TARGETS[target][0],
         "--manifest-path", "host/app/Cargo.toml", *VARIANTS[variant]], release.source))
    packages = {package["id"]: package for package in described["packages"]}
    nodes = {node["id"]: node for node in described["resolve"]["nodes"]}
    [root] = [package["id"] for package in described["packages"] if package["name"] == "shardmill"]
    needs, left = {}, [root]
    while left:
        one = left.pop()
        if one not in needs:
            needs[one] = sorted(dependency["pkg"] for dependency in nodes[one]["deps"] if is_linked(dependency, packages))
            left += needs[one]
    lock = tomllib.loads((release.source / "Cargo.lock").read_text())["package"]
    checksums = {(package["name"], package["version"]): package.get("checksum") for package in lock}
    return root, packages, needs, checksums


def is_linked(dependency, packages):
    """Whether it ends up in the binary: not what only builds it."""
    is_normal = any(kind["kind"] is None for kind in dependency["dep_kinds"])
    return is_normal and not any("proc-macro" in target["kind"] for target in packages[dependency["pkg"]]["targets"])


def bom(release, described, variant):
    """A bill of materials, CycloneDX 1.5: https://cyclonedx.org/docs/1.5/json/. Without a serial number and the time of the
    day, so that it is the same for everybody.
    """
    root, packages, needs, checksums = described

    def component(one):
        package = packages[one]
        made = {"type": "library", "bom-ref": reference(package), "name": package["name"], "version": package["version"]}
        if package["license"]:
            # Older manifests write a slash for OR.
            made["licenses"] = [{"expression": re.sub(r"\s*/\s*", " OR ", package["license"])}]
        if package["source"]:
            made["purl"] = reference(package)
            made["hashes"] = [{"alg": "SHA-256", "content": checksums[package["name"], package["version"]]}]
        return made

    def order(one):
        return reference(packages[one])

    others = sorted(set(needs) - {root}, key=order)
    return {
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "metadata": {"component": component(root) | {"type": "application"},
                     "properties": [{"name": "shardmill:commit", "value": release.commit},
                                    {"name": "shardmill:variant", "value": variant}]},
        "components": [component(one) for one in others],
        "dependencies": [{"ref": order(one), "dependsOn": sorted(map(order, needs[one]))}
                         for one in sorted(needs, key=order)],
    }


def reference(package):
    return f"pkg:cargo/{package['name']}@{package['version']}"


def notices(described):
    """Each text once, below the names of the packages that come with it."""
    _, packages, needs, _ = described
    by_text = {}
    for package in sorted((packages[one] for one in needs if packages[one]["source"]), key=reference):
        name = f"{package['name']} {package['version']} ({package['license'] or 'see the text'})"
        folder = Path(package["manifest_path"]).parent
        files = [path for path in sorted(folder.iterdir()) if path.is_file() and IS_LICENCE.match(path.name)]
        for text in [path.read_text(errors="replace").strip() for path in files] or [""]:
            by_text.setdefault(text, []).append(name)
    rule = "=" * 80
    parts = [f"{rule}\n" + "".join(f"{name}\n" for name in sorted(names)) +
             f"{rule}\n\n{text or 'These packages come without the text; it is that of their licence.'}\n"
             for text, names in sorted(by_text.items(), key=lambda part: sorted(part[1]))]
    return ("shardmill contains the packages below, the standard library of Rust (MIT OR Apache-2.0), and the C library musl\n"
            "(MIT, https://musl.libc.org).\n\n" + "\n".join(parts))
