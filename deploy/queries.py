#!/usr/bin/env python3
"""Prints the queries of a Grafana dashboard as recording rules, for `promtool check rules`.

    deploy/queries.py DASHBOARD > RULES
"""

import json
import pathlib
import sys

VARIABLES = {"$__rate_interval": "5m", "$plugin": ".*"}


def main(dashboard):
    panels = json.loads(pathlib.Path(dashboard).read_text())["panels"]
    rules = []
    for panel in panels:
        for target in panel.get("targets", []):
            query = target["expr"]
            for variable, value in VARIABLES.items():
                query = query.replace(variable, value)
            if "$" in query:
                sys.exit(f"{panel['title']}: a variable that nobody fills in: {query}")
            rules.append({"record": f"panel_{panel['id']}_{target['refId']}", "expr": query})
    if not rules:
        sys.exit(f"{dashboard} has no query")
    # JSON is YAML.
    print(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))


if __name__ == "__main__":
    main(*sys.argv[1:])
