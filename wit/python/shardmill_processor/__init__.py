"""Write a shardmill record processor in Python.

componentize-py makes bindings of the contract, the modules `wit_world` and `componentize_py_types`. They exist only in a
component; for type checkers, the wheel has stubs of them. What this package adds is below.
`python -m shardmill_processor` prints the folder with the contract, for componentize-py's option `--wit-path`.
"""

import functools
import traceback
from pathlib import Path
from typing import Callable, ParamSpec, TypeVar, get_args

__all__ = ["contract", "refuse_unknown", "reporting"]

P = ParamSpec("P")
R = TypeVar("R")


def reporting(call: Callable[P, R]) -> Callable[P, R]:
    """Reports an exception of an exported function to the host as an error of the contract, with its trace.

    One that escapes would trap and cost the instance.
    """

    @functools.wraps(call)
    def wrapper(*arguments: P.args, **named: P.kwargs) -> R:
        from componentize_py_types import Err
        from wit_world.imports import types

        try:
            return call(*arguments, **named)
        except (Exception, SystemExit) as error:
            if isinstance(error, Err) and isinstance(error.value, get_args(types.Error)):
                raise
            trace = "".join(traceback.format_tb(error.__traceback__))
            raise Err(types.Error_Other(f"{error!r}\n{trace}"))

    return wrapper


def refuse_unknown(destination: str) -> None:
    """Refuses what names no sink of the host. Call it in `init`, before the first record needs the sink."""
    from componentize_py_types import Err
    from wit_world.imports import store, types

    known = store.get("shardmill.destinations")
    if known is not None and destination not in known.split(","):
        raise Err(types.Error_Misconfigured(
            f"`destination` is {destination!r}, which names no sink of the host; there are: {known}"))


def contract() -> Path:
    """The folder with the contract, of an installed package."""
    return Path(__file__).parent / "wit"
