#!/usr/bin/env python3
"""Counts the instructions that a record costs, and compares them with the stored figures.

    tests/benches/instructions.py            fails if one differs by more than 2 %
    tests/benches/instructions.py --write    stores what it counts

Times depend on what else a machine does; instructions do not. They depend on the compiler and on the versions of
dependencies: when one of those changes, look at the difference, and write the figures anew in the same commit. They also
depend on the instructions that the processor has; on one with others nothing is compared. Needs valgrind.
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
STORED = Path(__file__).with_name("instructions.json")
WORK = ["json", "cbor", "frame", "lists", "failing", "lanes"]
# As in instructions.rs.
RECORDS = 1_000
# Code is chosen by these while a program runs.
CHOSEN_BY = ["avx2", "bmi2", "fma", "lzcnt", "abm", "popcnt", "sse4_2"]
# The difference between two numbers of rounds leaves out the start of the program, and compiling.
FEW, MANY = 20, 70
ALLOWED = 0.02


def built():
    """The program, built as the tests are: it shares all dependencies with them."""
    build = ["cargo", "bench", "--locked", "--workspace", "--profile", "dev", "--bench", "instructions", "--no-run"]
    made = subprocess.run(
        build + ["--message-format", "json"], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, check=False
    )
    if made.returncode != 0:
        sys.exit("it does not build: " + " ".join(build))
    for line in made.stdout.splitlines():
        message = json.loads(line)
        if message.get("executable") and message["target"]["name"] == "instructions":
            return message["executable"]
    sys.exit("cargo built no program of the name instructions")


def instructions(program, work, rounds):
    """All instructions of one run."""
    command = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
    run = subprocess.run(
        command + [program, work, str(rounds)], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    counted = re.search(r"I\s+refs:\s+([\d,]+)", run.stderr)
    if run.returncode != 0 or not counted:
        sys.exit(f"{work} does not run under valgrind:\n{run.stderr}")
    return int(counted.group(1).replace(",", ""))


def of_a_record(program, work):
    few, many = (instructions(program, work, rounds) for rounds in (FEW, MANY))
    return (many - few) / (MANY - FEW) / RECORDS


def processor():
    """What the choice of code depends on here."""
    text = Path("/proc/cpuinfo").read_text()
    found = re.search(r"^flags\s*:(.*)$", text, re.MULTILINE)
    flags = set(found.group(1).split()) if found else set()
    return [flag for flag in CHOSEN_BY if flag in flags]


def main():
    if not shutil.which("valgrind"):
        sys.exit("no valgrind: apt-get install valgrind")
    program = built()
    counted = {work: round(of_a_record(program, work), 1) for work in WORK}
    if sys.argv[1:] == ["--write"]:
        STORED.write_text(json.dumps({"processor": processor(), "of a record": counted}, indent=2) + "\n")
        return
    stored = json.loads(STORED.read_text())
    if stored["processor"] != processor():
        print(f"this processor has {processor()}, and the figures are of {stored['processor']}: not compared")
        return
    stored = stored["of a record"]
    wrong = False
    for work, count in counted.items():
        change = count / stored[work] - 1
        differs = abs(change) > ALLOWED
        wrong = wrong or differs
        print(f"{work:8} {stored[work]:10.1f} stored {count:10.1f} now {change:+8.2%}{'  DIFFERS' if differs else ''}")
    if wrong:
        sys.exit("If that is meant: tests/benches/instructions.py --write, and commit the figures.")


if __name__ == "__main__":
    main()
