"""Reading what the attempts of a job have printed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import attrs

from jrs.client.connection import Connection
from jrs.contract.errors import InvalidInput, NotFound
from jrs.contract.texts import shown
from jrs.records import keys
from jrs.records.model import RunnerKind
from jrs.recovery.files import logs
from jrs.store.job_views import JobView

_POLL = 0.5
"""Seconds between two looks for more, while a log is followed."""


@attrs.frozen
class LogPart:
    """A part of what one attempt has printed."""

    attempt: int
    """The number of the attempt."""
    stream: str
    """``out`` or ``err``."""
    data: bytes
    """As the job printed it; a line may continue in the next part."""


class JobLogs:
    """The logs of one job."""

    def __init__(self, connection: Connection, job_id: str) -> None:
        self._connection = connection
        self._job_id = job_id

    def folder(self) -> Path | None:
        """Return the folder of the logs; None if the storage is unknown or has no logs of it."""
        storage = self._connection.known_storage()
        folder = None if storage is None else storage.folder(self._job_id) / "logs"
        return folder if folder is not None and logs.attempts(folder) else None

    def read(
        self,
        attempt: int | None,
        stream: str | None,
        tail: int | None,
        *,
        follow: bool,
        heartbeats: bool = False,
    ) -> Iterator[LogPart]:
        """Yield the parts; see `JobHandle.logs`."""
        if stream not in (None, *logs.STREAMS):
            raise InvalidInput(f"stream is 'out' or 'err', not {shown(stream)}")
        for name, number in (("attempt", attempt), ("tail", tail)):
            if number is not None and (type(number) is not int or number < 0):
                raise InvalidInput(f"{name} must be a whole number, not {shown(number)}")
        view = self._connection.jobs.view(self._job_id)
        folder = self._connection.storage().folder(self._job_id) / "logs"
        found = logs.attempts(folder)
        if attempt is not None and attempt not in found and (found or not follow):
            which = f"of attempt {attempt}" if found else "here"
            kept = f"; kept are those of attempts {_ranges(found)}" if found else ""
            raise NotFound(f"job {self._job_id!r} has no logs {which}{kept}{_where(view)}")
        if not found and not (follow and view.entry is None):
            raise NotFound(f"job {self._job_id!r} has no logs in {folder}{_where(view)}")
        return self._read(folder, attempt, stream, tail, follow=follow, heartbeats=heartbeats)

    def _read(
        self,
        folder: Path,
        attempt: int | None,
        stream: str | None,
        tail: int | None,
        *,
        follow: bool,
        heartbeats: bool,
    ) -> Iterator[LogPart]:
        names = logs.STREAMS if stream is None else (stream,)
        number = attempt or max(logs.attempts(folder), default=1)
        readers = _readers(folder, number, names)
        if tail is not None:
            for name, reader in readers.items():
                if data := b"".join(reader.last_lines(tail)):
                    yield LogPart(number, name, data)
        with self._connection.backend.watch(keys.RESULTS + self._job_id) as watch:
            while True:
                # Asked before reading: what was printed before the end is then all there.
                # While it is not known whether the job has ended, it is held: that is all there is.
                over = not follow or self._connection.results.get(self._job_id) is not None
                later = [one for one in logs.attempts(folder) if one > number]
                for name, reader in readers.items():
                    for data in reader.read():
                        yield LogPart(number, name, data)
                if later and follow and attempt is None:
                    number, readers = later[0], _readers(folder, later[0], names)
                elif over or (later and attempt is not None):
                    return
                else:
                    if heartbeats:
                        yield LogPart(number, names[0], b"")
                    watch.wait(_POLL)


def _readers(folder: Path, attempt: int, names: tuple[str, ...]) -> dict[str, logs.LogReader]:
    return {name: logs.LogReader(logs.stream(folder, attempt, name)) for name in names}


def _where(view: JobView) -> str:
    """Return where else the logs of a job may be."""
    attempt = view.attempt
    if view.spec is not None and view.spec.runner is RunnerKind.THREAD:
        return "; it runs in its master's process: read that process's log"
    if attempt is None:
        return "" if view.entry is not None else "; it has not been started"
    return (
        f"; attempt {attempt.attempt} was started by master {attempt.master!r}: read them on that "
        "host, or name the storage that it uses with --storage"
    )


def _ranges(numbers: list[int]) -> str:
    return f"{numbers[0]} to {numbers[-1]}" if len(numbers) > 1 else str(numbers[0])
