#!/usr/bin/env python3
"""Prints the queries of a Grafana dashboard as recording rules, for `promtool check rules`.

    deploy/queries.py DASHBOARD > RULES
"""

import json
import pathlib
import re
import sys

VARIABLES = {"$__rate_interval": "5m", "$cluster": ".*", "$namespace": ".*", "$job": ".*", "$plugin": ".*"}
# With `.*`, which the variables are for all, this takes series without these labels too.
FLEET = '{cluster=~"$cluster",namespace=~"$namespace",job=~"$job"'
METRIC = re.compile(r"\b(?:shardmill|process)_\w+")


def queries(dashboard):
    """Yields each query with its panel and its letter there."""
    for panel in json.loads(pathlib.Path(dashboard).read_text())["panels"]:
        for target in panel.get("targets", []):
            query = target["expr"]
            if not all(query.startswith(FLEET, metric.end()) for metric in METRIC.finditer(query)):
                sys.exit(f"{panel['title']}: a query that also asks for fleets that are not chosen: {query}")
            for variable, value in VARIABLES.items():
                query = query.replace(variable, value)
            if "$" in query:
                sys.exit(f"{panel['title']}: a variable that nobody fills in: {query}")
            yield panel, target["refId"], query


def main(dashboard):
    rules = [{"record": f"panel_{panel['id']}_{letter}", "expr": query} for panel, letter, query in queries(dashboard)]
    if not rules:
        sys.exit(f"{dashboard} has no query")
    # JSON is YAML.
    print(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))


if __name__ == "__main__":
    main(*sys.argv[1:])
