"""OnResult: the command or the function that jrs runs when a job has a result."""

from __future__ import annotations

import re
import shlex

import attrs

from jrs.contract.errors import InvalidInput
from jrs.contract.texts import is_printable, shown
from jrs.records.policies import seconds
from jrs.records.stored import Stored

MAX_COMMAND = 4096
"""Most characters of a command."""

_ENTRY_POINT = re.compile(r"(?:[\w.]+|\S+\.py):[\w.]+")


@attrs.frozen
class OnResult(Stored):
    """What jrs runs when a job has a result, until it succeeds once, or until its deadline.

    It runs at least once: after a failover it may run again, so it has to be idempotent. It
    succeeds if it ends with exit status 0.

    Args:
        run: a command, which gets the result as JSON on its standard input; or an entry point
            (``module:function`` or ``/path/file.py:function``), which is called with that JSON as
            its argument, in a process of its own. No shell is involved.
        timeout: seconds after which one run is killed, and counts as failed.
        deadline: seconds after the job's end from which on a failed run is the last one.

    Raises:
        InvalidInput: `run` is not a command in one line, or a value is not a valid number of
            seconds.

    Example::

        spec = JobSpec("nightly-2026-11-20", "etl:nightly", on_result=OnResult("/opt/notify"))
        client.submit_spec(spec)
    """

    run: str
    timeout: float = attrs.field(default=60.0, validator=seconds)
    deadline: float = attrs.field(default=3600.0, validator=seconds)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        if not self.run.strip() or len(self.run) > MAX_COMMAND or not is_printable(self.run):
            raise InvalidInput(
                f"not a command: {shown(self.run)}; write one line of at most {MAX_COMMAND} "
                "characters, as '/opt/notify --channel data', or module:function"
            )
        try:
            self.words  # noqa: B018 - it raises for quotes without an end.
        except ValueError as error:
            raise InvalidInput(f"not a command: {shown(self.run)}: {error}") from None

    @property
    def is_entry_point(self) -> bool:
        """Whether a function is called, and no command run."""
        return _ENTRY_POINT.fullmatch(self.run) is not None

    @property
    def words(self) -> list[str]:
        """The command and its arguments."""
        return shlex.split(self.run)
