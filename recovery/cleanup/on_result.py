"""The `OnResult` hook of a job, as a resource of its cleanup.

It is run in each pass until it has succeeded once; the journal then names it as done. After its
deadline a failed run is the last one: the cleanup continues without it, and the job shows that. A
master that must not run it fails in the same way: the next one may be allowed to.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import IO

from jrs.contract.backend import Backend
from jrs.contract.clock import Clock, Deadline
from jrs.contract.errors import JobHeld, JrsError
from jrs.host import credentials
from jrs.records.codec import to_json
from jrs.records.model import JobResult, JobSpec
from jrs.records.on_result import OnResult

from ..rules.resource import GivenUp, Resource
from .ended import ended_job

_SHOWN = 2000
"""Characters of the end of its output that a problem shows."""
_KEPT = 4 * _SHOWN
"""Bytes of that end that are kept while it runs."""
_PIPE = 1 << 20
"""The most bytes that a pipe holds."""
_LOOK = 0.05
"""Seconds after which the end of a run is noticed at the latest."""

Allowed = Callable[[JobSpec, bytes], None]
"""Raises `JobHeld` if this master must not run what a stored spec names."""


class Notification(Resource):
    """The command or entry point that gets the result of the job.

    Args:
        program: the module that ``python -m`` runs for it.
    """

    name = "on_result"

    def __init__(self, backend: Backend, allowed: Allowed, now: Clock, program: str) -> None:
        self._backend = backend
        self._allowed = allowed
        self._now = now
        self._program = program

    def clean(self, job_id: str) -> None:
        job = ended_job(self._backend, job_id)
        if job is None or job.spec.on_result is None:
            return
        hook, result = job.spec.on_result, job.result
        try:
            self._allowed(job.spec, job.stored_spec)
            _run(self._program, hook, result)
        except (JobHeld, OSError, subprocess.SubprocessError) as error:
            if self._now() >= result.finished_at + hook.deadline:
                raise GivenUp(f"{error}; it is not run again") from error
            raise

    def describe(self, job_id: str) -> list[str]:
        try:
            job = ended_job(self._backend, job_id)
        except JrsError:
            return []
        hook = None if job is None else job.spec.on_result
        return [] if hook is None else [f"run {hook.run}"]


def _run(program: str, hook: OnResult, result: JobResult) -> None:
    """Run it once.

    Raises:
        OSError, SubprocessError: it failed, and was ended with all processes of its session.
    """
    runner = [sys.executable, "-m", program, str(os.getpid())]
    kind = ["call", hook.run] if hook.is_entry_point else ["run", *hook.words]
    with (
        _file_of(to_json(result)) as given,
        subprocess.Popen(
            [*runner, *kind],
            stdin=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=credentials.without_secrets(os.environ),
        ) as process,
    ):
        try:
            output = _end_of_output(process, Deadline.after(hook.timeout))
        except subprocess.TimeoutExpired:
            raise subprocess.SubprocessError(
                f"{hook.run}: killed after {hook.timeout:g} s"
            ) from None
        finally:
            _kill(process.pid)
    if process.returncode:
        said = output.decode(errors="replace").strip()[-_SHOWN:]
        raise subprocess.SubprocessError(
            f"{hook.run}: exit status {process.returncode}{said and ': '}{said}"
        )


@contextmanager
def _file_of(data: bytes) -> Iterator[IO[bytes]]:
    """Yield a file in memory, to be read from its beginning: unlike a pipe it never blocks."""
    with open(os.memfd_create("jrs-result", os.MFD_CLOEXEC), "w+b") as file:
        file.write(data)
        file.seek(0)
        yield file


def _end_of_output(process: subprocess.Popen[bytes], deadline: Deadline) -> bytes:
    """Return the end of what a process prints, once it has ended. It may print without end, and
    leave others behind that could still print.

    Raises:
        TimeoutExpired: it has not ended by then.
    """
    assert process.stdout is not None
    pipe, output, poll = process.stdout.fileno(), b"", select.poll()
    os.set_blocking(pipe, False)
    poll.register(pipe, select.POLLIN)
    while process.poll() is None:
        if deadline.expired:
            raise subprocess.TimeoutExpired(process.args, 0.0)
        if poll.poll(_LOOK * 1000):
            part = os.read(pipe, _PIPE)
            if not part:  # It has closed it, and still runs.
                process.wait(deadline.bounded())
            output = (output + part)[-_KEPT:]
    with suppress(BlockingIOError):
        output += os.read(pipe, _PIPE)
    return output


def _kill(session: int) -> None:
    try:
        os.killpg(session, signal.SIGKILL)
    except ProcessLookupError:
        pass  # Nothing of it is left.
