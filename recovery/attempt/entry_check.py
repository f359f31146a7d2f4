"""Checking an entry point without changing the process that asks: another one imports it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any

from jrs.contract.errors import CannotStartHere, InvalidInput
from jrs.host import helper_process
from jrs.records.checks import check_json

from .entry_point import check_arguments, load

_KINDS = {kind.__name__: kind for kind in (CannotStartHere, InvalidInput)}


def check_entry(entry_point: str, arguments: dict[str, Any]) -> None:
    """Check that an entry point can be imported here and called with `arguments`.

    A process of its own imports the module, from the places where this one would, and calls
    nothing. Masters may find another module under the same name.

    Raises:
        CannotStartHere: this host does not have its module or its file.
        InvalidInput: the entry point has another form, has no such function, is not callable,
            raises on import, or does not take the arguments.
    """
    places = [place for place in sys.path if isinstance(place, str)]
    done = subprocess.run(
        helper_process.command(__name__),
        input=json.dumps([places, entry_point, check_json(arguments, "the arguments")]),
        env={**os.environ, "PYTHONPATH": helper_process.search_path()},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    try:
        kind, said = json.loads(done.stdout)
    except ValueError:
        raise InvalidInput(
            f"entry point {entry_point!r} cannot be imported: that ends Python with status "
            f"{done.returncode}"
        ) from None
    if kind:
        raise _KINDS[kind](said)


def main() -> None:
    """Import what stdin names, and write to stdout what is wrong with it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # The caller is interrupted, too, and says so.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # What the code prints is no answer.
    sys.path, entry_point, arguments = json.load(sys.stdin)
    kind, said = "", ""
    try:
        check_arguments(load(entry_point), entry_point, arguments)
    except (CannotStartHere, InvalidInput) as error:
        kind, said = type(error).__name__, str(error)
    json.dump([kind, said], answers)
    for output in (answers, sys.stdout, sys.stderr):
        output.flush()
    os._exit(0)  # The answer does not wait for threads of the code.


if __name__ == "__main__":
    main()
