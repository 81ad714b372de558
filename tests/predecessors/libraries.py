"""The libraries that `run` can fetch, each with its real package."""

import shutil
import subprocess
from pathlib import Path

from moves import FINISHED, Library

HERE = Path(__file__).resolve().parent
LIFION_TABLE = "lifion-kinesis-state"


def fetched_with_npm(name, folder):
    """Installs the package that the program beside this file names; no package may run a script of its own."""
    project = folder / name
    project.mkdir(parents=True, exist_ok=True)
    for file in (HERE / name).iterdir():
        shutil.copy(file, project)
    command = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]
    subprocess.run(command, cwd=project, check=True)
    return project


def lifion(folder):
    project = fetched_with_npm("lifion", folder)
    return Library(
        code="lifion-kinesis",
        version="1.3.3",
        command=["node", project / "consumer.js"],
        table=lambda application: LIFION_TABLE,
        checkpoints=lifion_checkpoints,
        arguments=lambda application: ["--group", application],
        settings={"CHECKPOINTS": "own"},
    )


def lifion_auto(folder):
    """The library's default, which checkpoints before it delivers: its own stop loses what it was delivering."""
    library = lifion(folder)
    library.version += " (auto)"
    library.stops_exactly = False
    library.settings = {"CHECKPOINTS": "auto"}
    return library


def lifion_checkpoints(stack, application):
    items = [row for row in stack.rows(LIFION_TABLE) if row["consumerGroup"] == application]
    shards = items[0]["shards"].items() if items else ()
    done = {shard: int(entry["checkpoint"]) for shard, entry in shards if entry["checkpoint"]}
    return done | {shard: FINISHED for shard, entry in shards if entry["depleted"]}


LIBRARIES = {"lifion": lifion, "lifion-auto": lifion_auto}
