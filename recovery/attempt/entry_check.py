"""Checking an entry point without changing the process that asks: another one imports it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from typing import Any

from jrs.contract.errors import CannotStartHere, InvalidInput
from jrs.host import helper_process
from jrs.records.checks import check_json

from .entry_point import check_arguments, load

_MARK = "jrs-entry-check:"
"""Begins the line of the answer: what starts Python may print, too."""


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
    asked = json.dumps([places, entry_point, check_json(arguments, "the arguments")])
    try:
        answer, status = _answer(asked)
    except (OSError, TypeError):  # No Python of its own can be started here.
        check_arguments(load(entry_point), entry_point, arguments)
        return
    if answer is None:
        raise InvalidInput(
            f"entry point {entry_point!r} cannot be imported: that ends Python with status {status}"
        )
    is_of_host, said = answer
    if said:
        raise (CannotStartHere if is_of_host else InvalidInput)(said)


def _answer(asked: str) -> tuple[tuple[bool, str] | None, int]:
    """Return what a process of its own answers, or None, and its exit status.

    It is not waited for longer: what the import has started is ended with its session.
    """
    with subprocess.Popen(
        helper_process.command(__name__),
        env={**os.environ, "PYTHONPATH": helper_process.search_path()},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            with suppress(BrokenPipeError):
                process.stdin.write(asked)
                process.stdin.close()
            for line in process.stdout:
                if line.startswith(_MARK):
                    is_of_host, said = json.loads(line.removeprefix(_MARK))
                    return (is_of_host, said), 0
            return None, process.wait()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def main() -> None:
    """Import what stdin names, and write to stdout what is wrong with it."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # What the code prints is no answer.
    sys.path, entry_point, arguments = json.load(sys.stdin)
    is_of_host, said = False, ""
    try:
        check_arguments(load(entry_point), entry_point, arguments)
    except (CannotStartHere, InvalidInput) as error:
        is_of_host, said = isinstance(error, CannotStartHere), str(error)
    print(f"\n{_MARK}{json.dumps([is_of_host, said])}", file=answers)
    for output in (answers, sys.stdout, sys.stderr):
        output.flush()
    os._exit(0)  # The answer does not wait for threads of the code.


if __name__ == "__main__":
    main()
