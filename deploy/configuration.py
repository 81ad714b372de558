#!/usr/bin/env python3
"""Checks the configuration in manifests with the host itself: the ConfigMap's file, with the
variables of the Deployment over it.

    deploy/configuration.py MANIFESTS SHARDMILL
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

import yaml


# What a pod is started with, by the path of a fieldRef.
POD = {"metadata.name": "pod-1", "status.hostIP": "192.0.2.10"}


def environment(container):
    """Its variables. $(NAME) in a value is what came before under that name."""
    variables = {}
    for one in container["env"]:
        source = one.get("valueFrom", {})
        value = one["value"] if "value" in one else POD[source["fieldRef"]["fieldPath"]]
        variables[one["name"]] = re.sub(r"\$\((\w+)\)", lambda name: variables.get(name[1], name[0]), value)
    return variables


def main(manifests, shardmill):
    objects = {one["kind"]: one for one in yaml.safe_load_all(pathlib.Path(manifests).read_text()) if one}
    pod = objects["Deployment"]["spec"]["template"]["spec"]
    variables = environment(pod["containers"][0])
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "shardmill.toml").write_text(objects["ConfigMap"]["data"]["shardmill.toml"])
        (folder / "plugins").mkdir()
        (folder / "token").write_text("a-token-for-this-check")
        # What is mounted in the container is in the folder here.
        variables["SHARDMILL_CONFIG"] = str(folder / "shardmill.toml")
        pulled = json.loads(variables["SHARDMILL_PLUGINS"])[1:] if variables["SHARDMILL_PLUGINS"].startswith("[") else []
        variables["SHARDMILL_PLUGINS"] = json.dumps([str(folder / "plugins"), *pulled])
        variables["SHARDMILL_HOST__ADMIN_TOKEN__FILE"] = str(folder / "token")
        variables["SHARDMILL_HOST__CACHE"] = str(folder / "cache")
        checked = subprocess.run([shardmill, "run", "--check"], env=variables, text=True, capture_output=True)
        print(checked.stdout + checked.stderr, end="")
        if checked.returncode:
            sys.exit("the host refuses the configuration of the manifests")
        for variable in variables:
            if "__" in variable and variable not in checked.stdout:
                sys.exit(f"{variable} has no effect")


if __name__ == "__main__":
    main(*sys.argv[1:])
