#!/usr/bin/env python3
"""Prints the values that a page of the documentation shows for the chart.

    deploy/examples.py PAGE > VALUES
"""

import pathlib
import re
import sys


def main(page):
    text = pathlib.Path(page).read_text()
    found = re.findall(r"^```yaml\n# values\.yaml\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    if len(found) != 1:
        sys.exit(f"{page} has {len(found)} examples of values.yaml, not one")
    print(found[0], end="")


if __name__ == "__main__":
    main(*sys.argv[1:])
