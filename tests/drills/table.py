"""What a drill showed: its problems, and its row in the table."""

SIGNS = ("/ready", "/status", "/metrics", "explain", "leases")
TOLD_SECONDS_MAX = 30

HEAD = """# Outage drills

What the real binary shows during an outage, and what happens to the records. Made by `tests/drills/run --write`: each
drill has its own host, stream of two shards and tables, with the default settings. Records flow, something is taken
away for 20 to 45 s while every sign is polled, and then it is restored.

A cell has the seconds until that sign named the cause. For `/metrics` that is `shardmill_shard_blocked` with its `why`,
or `shardmill_ready` at 0. A host that can write to no table cannot report anything to others: then `explain`, which
watches for a lease duration, says that the host is silent or absent, and `leases`, which looks once, shows nothing
(`-`). Every sign also has `-` where the host never asked for what was refused, and `/ready` has it where the host
stays ready. `/live` answered in all of them. *Back* is the seconds from the end of the outage until every record that
was put had come out; *repeated*, how many came out twice. *Lost* is how many of the records that were put never came
out: only a deleted stream takes some with it, those that the host had not read.

| Outage | `/ready` | `/status` | `/metrics` | `explain` | `leases` | Back | Lost | Repeated |
|---|---|---|---|---|---|---|---|---|
"""


def was_asked(result):
    """Whether the host met the outage at all: a permission that it did not use was never refused."""
    return result.get("refused") != 0 or not result.get("counts_refusals", "refused" in result["what"])


def problems(result):
    if "error" in result:
        return ["error: " + result["error"]]
    if "ended" in result:
        return [] if result["is_told"] else ["it does not say why it ends"]
    wrong = []
    if result["dead"]:
        wrong.append("/live does not answer")
    if result["lost"] == result["put"] or result["lost"] and result["is_healed"]:
        wrong.append(f"{result['lost']} of {result['put']} lost")
    if not result["is_exact"]:
        wrong.append("a record counted twice in the state")
    if result["is_healed"] and result.get("back") is None:
        wrong.append("does not go on")
    if result["is_healed"] and result.get("ready_again") is None:
        wrong.append("not ready again: " + result["said"]["/ready"])
    if result["code"]:
        wrong.append(f"ended with {result['code']}")
    if was_asked(result):
        for sign in result["first"]:
            first = result["first"][sign]
            if not first:
                wrong.append(f"{sign} says: {result['said'][sign][:300]}")
            elif first[0] > TOLD_SECONDS_MAX + result["lasts_seconds"]:
                wrong.append(f"{sign} says it after {first[0]:.0f} s")
    return wrong


def row(result):
    if "error" in result:
        return f"| {result['what']} | error | | | | | | | |"
    if "ended" in result:
        return f"| {result['what']} | the host exits with {result['ended']} and says why | | | | | | | |"
    cells = []
    for sign in SIGNS:
        first = result["first"].get(sign)
        is_silent = sign not in result["first"] or not was_asked(result)
        cells.append("-" if is_silent else f"{first[0]:.0f}" if first else "never")
    back = "" if not result["is_healed"] else "never" if result["back"] is None else f"{result['back']:.0f}"
    lost = f"{result['lost']} of {result['put']}" if result["lost"] else "0"
    return f"| {' | '.join([result['what'], *cells, back, lost, str(result['repeated'])])} |"


def rows_of(page):
    """The rows of a page by what was taken away."""
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    return {line.split(" | ")[0].removeprefix("| "): line for line in rows}


def as_markdown(results, others=(), order=()):
    """A page with the rows of these results, and of `others` those that are in `order` and were not run again."""
    rows = {result["what"]: row(result) for result in results}
    kept = {what: line for what, line in dict(others).items() if what in order}
    rows = kept | rows
    whats = [what for what in order if what in rows] if order else rows
    return HEAD + "\n".join(rows[what] for what in whats) + "\n"
