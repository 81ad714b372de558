#!/usr/bin/env python3
"""Checks objects for what the API server refuses and its schemas allow: labels that are none, two things of one
name, and mounts of volumes that a pod lacks.

    deploy/objects.py MANIFESTS
"""

import collections
import pathlib
import re
import sys

import yaml

LABEL = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")


def labels(value):
    """Yields each label below a value."""
    if isinstance(value, list):
        value = dict(enumerate(value))
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in ("labels", "matchLabels"):
                yield from inner.items()
            else:
                yield from labels(inner)


def problems(one):
    """Yields what is wrong with an object."""
    for name, value in labels(one):
        if not isinstance(value, str) or not LABEL.fullmatch(value):
            yield f"the label {name} has the value {value!r}"
    if one["kind"] != "Deployment":
        return
    pod = one["spec"]["template"]["spec"]
    volumes = [volume["name"] for volume in pod["volumes"]]
    yield from twice("volume", volumes)
    for container in pod["containers"] + pod.get("initContainers", []):
        mounts = container.get("volumeMounts", [])
        yield from twice("variable", [variable["name"] for variable in container.get("env", [])])
        yield from twice("mount", [mount["mountPath"] for mount in mounts])
        for mount in mounts:
            if mount["name"] not in volumes:
                yield f"{mount['mountPath']} is on the volume {mount['name']}, which there is not"


def twice(what, names):
    """Yields what there is more than once."""
    for name, count in collections.Counter(names).items():
        if count > 1:
            yield f"there are {count} of the {what} {name}"


def main(manifests):
    objects = [one for one in yaml.safe_load_all(pathlib.Path(manifests).read_text()) if one]
    found = [f"{one['kind']}: {problem}" for one in objects for problem in problems(one)]
    if found:
        sys.exit("\n".join(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
