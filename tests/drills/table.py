"""What a drill showed: its problems, and its row in the table."""

SIGNS = ("/ready", "/status", "/metrics", "explain", "leases")
TOLD_SECONDS_MAX = 30

HEAD = """# Outage drills

This page shows what the real binary reports during an outage, and what happens to the records. `tests/drills/run
--write` makes it. Each drill has its own host, a stream of two shards and tables, with the default settings. While
records flow, the drill breaks something for 20 to 45 s, polls every sign, and then repairs it.

Under each sign is the number of seconds until it named the cause. For `/metrics` that is `shardmill_shard_blocked` with
its `why`, or `shardmill_ready` at 0. A `-` means one of three things:

- The host never made the request that was refused.
- Under `/ready`: the host stayed ready.
- Under `leases`: the host could write to no table, so it could not report anything to others, and `leases` looks only
  once. `explain` watches for a lease duration, so it shows such a host as silent or absent.

`/live` answered in every drill.

- *Back* is the number of seconds from the end of the outage until every record had come out.
- *Lost* is the number of records that never came out. Only a deleted stream loses records: those that the host had not
  read.
- *Repeated* is the number of records that came out twice.

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
    if result.get("status"):
        wrong.append(result["status"])
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
