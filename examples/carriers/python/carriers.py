"""The processor's logic, independent of the host: `python3 -m unittest` runs it anywhere."""

import json


def summarize(lines):
    """Sums flights, one JSON object a line, by carrier.

    Returns the sums as `{carrier: JSON line}`, sorted, and what could not be read as `[(index, reason)]`.
    """
    sums, rejects = {}, []
    for index, line in enumerate(lines):
        try:
            carrier, delay = read_flight(line)
        except ValueError as error:  # JSON and UTF-8 errors are ValueErrors too.
            rejects.append((index, str(error)))
            continue
        one = sums.setdefault(carrier, {"carrier": carrier, "flights": 0, "with_delay": 0, "delay_minutes": 0})
        one["flights"] += 1
        if delay is not None:
            one["with_delay"] += 1
            one["delay_minutes"] += delay
    to_line = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
    return {carrier: to_line(one).encode() for carrier, one in sorted(sums.items())}, rejects


def read_flight(line):
    flight = json.loads(line)
    if not isinstance(flight, dict):
        raise ValueError("not a JSON object")
    carrier, delay = flight.get("carrier"), flight.get("dep_delay")
    if not isinstance(carrier, str):
        raise ValueError("no carrier")
    if delay is not None and type(delay) is not int:  # `isinstance` would take True for an int.
        raise ValueError("dep_delay is not a whole number")
    return carrier, delay
