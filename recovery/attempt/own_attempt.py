"""An attempt's own record: where it runs, and how it ends in its job's result and in the record of
the next attempt."""

from __future__ import annotations

import os
import socket
import threading
from contextlib import suppress
from typing import Any

import attrs

from jrs.contract.backend import Backend
from jrs.contract.errors import Conflict, CorruptRecord, OutcomeUnknown, Unavailable
from jrs.contract.operations import Fence, Update
from jrs.records import keys
from jrs.records.attempts import AttemptSummary, SparkApplication
from jrs.records.codec import decode, encode
from jrs.records.field_types import Json
from jrs.records.model import AttemptRecord

from .code_version import code_version_of


def about_attempt(record: AttemptRecord | None) -> dict[str, Json]:
    """Return what the history says of an attempt: its application on Spark, if it has one."""
    spark = None if record is None else record.spark
    return {} if spark is None else {"spark": spark.id}


def keeps_number(before: AttemptRecord) -> bool:
    """Return whether the next attempt has another number. One that could not be started gives its
    number back, unless its end is recorded: it had called the job's function, or the job was
    suspended or held then."""
    return not before.could_not_start or before.ended_at > 0


def earlier_attempts(before: AttemptRecord | None) -> tuple[tuple[AttemptSummary, ...], int]:
    """Return what the record of a job's next attempt keeps of the earlier ones, and the number of
    older ones that it leaves out.

    Args:
        before: the record of the newest attempt; None if there was none.
    """
    if before is None:
        return (), 0
    if not keeps_number(before):
        return before.earlier, before.earlier_left_out  # It was no attempt.
    if not before.ended_at:
        # It ended with its leader, and no process saw when.
        before = attrs.evolve(before, ended="ended with its leader")
    return before.summaries()


class OwnAttempt:
    """The record of an attempt, kept by the attempt itself.

    What it adds is stored at best effort, but under the fence. Without an answer of the backend,
    the stored record lacks it, and the job's result still has it.

    Args:
        record: as it was when the attempt began; None if it was not handed over.
    """

    def __init__(self, record: AttemptRecord | None = None) -> None:
        self.record = record
        self._lock = threading.Lock()
        self._stored: SparkApplication | None = None

    def announce(self, backend: Backend, fence: Fence, entry_point: str) -> None:
        """Record this process, to be found later, and the version of the code that it is to run:
        this commit is the last one that an attempt which dies is sure to make.

        Raises:
            Fenced: a newer leader exists, or the attempt was shut out.
        """
        if self.record is not None and self.record.pid != os.getpid():
            code = code_version_of(entry_point)
            self._add(backend, fence, host=socket.gethostname(), pid=os.getpid(), code=code)

    def runs_on(self, backend: Backend, fence: Fence, spark: SparkApplication) -> None:
        """Record what the attempt runs on a Spark cluster: a later leader ends it there.

        Raises:
            Fenced: a newer leader exists, or the attempt was shut out.
        """
        if self.record is None or self._stored == spark:
            return
        if self._add(backend, fence, spark=spark):
            self._stored = spark

    def runs_here(self, spark: SparkApplication) -> None:
        """Note what the attempt runs in Spark's local mode. It ends with its processes, so only the
        history and the job's result name it, in the commits that they need anyway."""
        with self._lock:
            if self.record is not None:
                self.record = attrs.evolve(self.record, spark=spark)

    def about(self) -> dict[str, Json]:
        """Return what the history says of the attempt with each of its events."""
        return about_attempt(self.record)

    def starts_session(
        self, backend: Backend, fence: Fence, session: dict[str, str] | None
    ) -> None:
        """Record the configuration of the job's session, so that one can be prepared for the next
        attempt.

        Raises:
            Fenced: a newer leader exists, or the attempt was shut out.
        """
        if self.record is not None and self.record.session != session:
            self._add(backend, fence, session=session)

    def ended(self, at: float, how: str) -> tuple[tuple[AttemptSummary, ...], int]:
        """Return the attempts for the job's result, this one with its end, and the number of older
        ones left out."""
        if self.record is None:
            return (), 0
        return attrs.evolve(self.record, ended_at=at, ended=how).summaries()

    def _add(self, backend: Backend, fence: Fence, **changes: Any) -> bool:
        """Add to the record; return whether that is stored."""
        with self._lock:
            assert self.record is not None
            self.record = here = attrs.evolve(self.record, **changes)
            with suppress(CorruptRecord, Unavailable, OutcomeUnknown):
                while True:
                    stored = backend.get(keys.ATTEMPTS + here.job_id)
                    if stored is None:
                        return False
                    before = decode(AttemptRecord, stored.value, stored.key)
                    if (before.attempt, before.mark) != (here.attempt, here.mark):
                        return False
                    now = encode(attrs.evolve(before, **changes))
                    with suppress(Conflict):  # The leader has just changed it: read it again.
                        backend.commit(Update(stored.key, now, stored.version), fence=fence)
                        return True
        return False
