#!/usr/bin/env python3
"""Checks that the alarms and the dashboard of the chart are those of this folder, word for word.

    deploy/watched.py MANIFESTS [RUNBOOK-BASE]

With RUNBOOK-BASE, the addresses of the alarms' pages begin with it, and all else is the same.
"""

import pathlib
import sys

import yaml

DEPLOY = pathlib.Path(__file__).resolve().parent


def main(manifests, base=""):
    objects = [one for one in yaml.safe_load_all(pathlib.Path(manifests).read_text()) if one]
    [alarms] = [one for one in objects if one["kind"] == "PrometheusRule"]
    [dashboard] = [one["data"] for one in objects if "shardmill.json" in one.get("data", {})]
    rules = yaml.safe_load((DEPLOY / "alerts/shardmill.rules.yaml").read_text())
    for rule in [rule for group in rules["groups"] for rule in group["rules"]]:
        # A rule that only records has no page.
        annotations = rule.get("annotations", {})
        page = annotations.get("runbook_url", "")
        if base and page and "://" not in page:
            annotations["runbook_url"] = f"{base}/{page}"
    if alarms["spec"] != rules:
        sys.exit("the PrometheusRule has other alarms than deploy/alerts/shardmill.rules.yaml")
    if dashboard["shardmill.json"].strip() != (DEPLOY / "grafana/shardmill.json").read_text().strip():
        sys.exit("the ConfigMap has another dashboard than deploy/grafana/shardmill.json")


if __name__ == "__main__":
    main(*sys.argv[1:])
