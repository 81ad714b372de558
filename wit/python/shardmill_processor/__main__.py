"""Prints the folder with the contract."""

import sys

from shardmill_processor import contract

if not contract().is_dir():
    sys.exit(f"{contract()} is missing: install the package instead of running a copy of its source")
print(contract())
