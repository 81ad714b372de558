#!/usr/bin/env python3
"""Cuts the description of Kubernetes' API, and those of other resources, into a JSON schema for each
kind, for kubeconform.

    deploy/schemas.py SWAGGER FOLDER CRD...

Keys that the API does not know are refused, as `kubectl apply --validate=strict` does.
"""

import json
import pathlib
import sys

import yaml


def strict(schema):
    """The same schema, in which unknown keys are wrong and references are local."""
    if isinstance(schema, list):
        return [strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: strict(value) for key, value in schema.items()}
    if isinstance(made.get("properties"), dict) and "additionalProperties" not in made:
        made["additionalProperties"] = False
    if made.get("format") == "int-or-string":
        return {"type": ["integer", "string"]}
    return made


def main(swagger, folder, *resources):
    definitions = {name: strict(each) for name, each in json.loads(pathlib.Path(swagger).read_text())["definitions"].items()}
    # Written as a number or as text.
    definitions["io.k8s.apimachinery.pkg.api.resource.Quantity"] = {"type": ["string", "number"]}
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, definition in definitions.items():
        for kind in definition.get("x-kubernetes-group-version-kind", []):
            group = kind["group"].split(".")[0]
            file = "-".join(part.lower() for part in [kind["kind"], group, kind["version"]] if part)
            schema = {"$ref": f"#/definitions/{name}", "definitions": definitions}
            wanted = {"Deployment", "ConfigMap", "ServiceAccount", "PodDisruptionBudget", "NetworkPolicy", "Service"}
            if kind["kind"] in wanted:
                (folder / f"{file}.json").write_text(json.dumps(schema))
    for resource in resources:
        spec = yaml.safe_load(pathlib.Path(resource).read_text())["spec"]
        kind, group = spec["names"]["kind"].lower(), spec["group"].split(".")[0]
        for version in spec["versions"]:
            schema = strict(version["schema"]["openAPIV3Schema"])
            # Every object has it, and the description says nothing of what is in it.
            schema["properties"]["metadata"] = {"type": "object"}
            (folder / f"{kind}-{group}-{version['name']}.json").write_text(json.dumps(schema))


if __name__ == "__main__":
    main(*sys.argv[1:])
