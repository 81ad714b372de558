"""What a drill showed: what is wrong with it, and its row in the table."""

SIGNS = ("/ready", "/status", "/metrics", "explain", "leases")
TOLD_SECONDS_MAX = 30

HEAD = """# Outage drills

What the real binary says while something is away, and what becomes of the records. Made by `tests/drills/run --write`: each drill has a
host, a stream of two shards and tables of its own, with the default settings; records flow, something is taken away for 20 to 45 s, every
sign is looked at again and again, and then it is given back.

A cell has the seconds until that sign named the cause. For `/metrics` that is `shardmill_shard_blocked` with its `why`, or
`shardmill_ready` at 0. A host that can write to no table can tell nobody else why: then `explain`, which watches for a lease duration,
says that it is silent or not there, and `leases`, which looks once, says nothing (`-`). So does every sign where nobody asked for what was
refused, and `/ready` where the host does get on. `/live` answered in all of them. *Back* has the seconds from the end of the outage until
every record that was put had come out; *repeated*, how many came out twice.

| Outage | `/ready` | `/status` | `/metrics` | `explain` | `leases` | Back | Lost | Repeated |
|---|---|---|---|---|---|---|---|---|
"""


def was_asked(result):
    """Whether the host met the outage at all: rights that it does not use then are refused to nobody."""
    return result.get("refused") != 0 or not result.get("counts_refusals", "refused" in result["what"])


def problems(result):
    if "error" in result:
        return ["error: " + result["error"]]
    if "ended" in result:
        return [] if result["is_told"] else ["it does not say why it ends"]
    wrong = []
    if result["dead"]:
        wrong.append("/live does not answer")
    if result["lost"] and result["is_healed"]:
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
        return f"| {result['what']} | the host ends with {result['ended']} and says why | | | | | | | |"
    cells = []
    for sign in SIGNS:
        first = result["first"].get(sign)
        is_silent = sign not in result["first"] or not was_asked(result)
        cells.append("-" if is_silent else f"{first[0]:.0f}" if first else "never")
    back = "" if not result["is_healed"] else "never" if result["back"] is None else f"{result['back']:.0f}"
    lost = result["lost"] if result["is_healed"] else ""
    return f"| {' | '.join([result['what'], *cells, back, str(lost), str(result['repeated'])])} |"


def as_markdown(results):
    return HEAD + "\n".join(row(result) for result in results) + "\n"
