"""How far a chaos run is: what has to end, what never will, and what it said last."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from jrs.contract.backend import Backend
from jrs.contract.clock import Deadline
from jrs.contract.errors import CorruptRecord, JrsError
from jrs.records import keys
from jrs.records.codec import decode
from jrs.records.model import AttemptRecord, JobStatus
from jrs.recovery.attempt.run import AttemptDied
from jrs.testing.chaos.hosts import Hosts
from jrs.testing.chaos.submissions import LASTING, Submissions
from jrs.testing.chaos.trials import Trials
from jrs.testing.polling import Poll

_MOST = 2000
"""Characters of last words."""


class Progress:
    """What the jobs and drivers of a run have done so far. Safe for use by many threads."""

    def __init__(
        self, backend: Backend, submissions: Submissions, hosts: Hosts, trials: Trials
    ) -> None:
        self._backend = backend
        self._submissions = submissions
        self._hosts = hosts
        self._trials = trials

    @property
    def has_work(self) -> bool:
        """Whether there is any job or driver."""
        drivers = any(host.is_driver for host in self._hosts.all.values())
        return drivers or bool(self._submissions.all())

    def unfinished(self) -> list[str]:
        """Return the jobs and drivers that have not ended."""
        return self._submissions.unfinished() + self._hosts.unfinished()

    def awaited(self) -> list[str]:
        """Return those of them that may still end: the copies of a job that is wrong may not."""
        hopeless = self._hopeless()
        jobs = self._submissions.all()
        wrong = {each.copy_of for each in jobs if each.spec.job_id in hopeless}
        found = [each.spec.job_id for each in jobs
                 if each.result is None and each.copy_of not in wrong]  # fmt: skip
        return found + [name for name in self._hosts.unfinished() if name not in hopeless]

    def wrong(self) -> list[str]:
        """Return a line for each job and driver that fails without any fault, and for each job that
        has failed for good although it is tried again after every exception."""
        hopeless = self._hopeless()
        said = self.last_words() if hopeless else {}
        lines = [
            f"{name} has failed {times} times without any fault: "
            f"{said.get(name, 'it said nothing').partition(_CUT)[0]}"
            for name, times in hopeless.items()
        ]
        for each in self._submissions.all():
            result = each.result  # Of one that was canceled, too, the failure says why.
            if each.spec.restart != LASTING or result is None:
                continue
            if result.status is JobStatus.FAILED and result.failure is not None:
                lines.append(f"{each.spec.job_id} is FAILED: {result.failure.message}")
        return lines

    def _hopeless(self) -> dict[str, int]:
        """Return what is wrong by itself: a job with a restart policy of its own ends by that."""
        jobs = self._submissions.all()
        own = {each.spec.job_id for each in jobs if each.spec.restart != LASTING}
        failing = self._trials.failing()
        return {name: times for name, times in failing.items() if name not in own}

    def last_words(self) -> dict[str, str]:
        """Return what each that has not ended said when it failed last, the reason in front."""
        said = self._hosts.last_output()
        unfinished = self._submissions.unfinished()
        try:
            found = self._backend.get_many([keys.ATTEMPTS + job_id for job_id in unfinished])
        except JrsError:
            return said
        for job_id, record in zip(unfinished, found, strict=True):
            if record is None or isinstance(record, CorruptRecord):
                continue
            failure = decode(AttemptRecord, record.value, record.key).failure
            if failure is not None:
                detail = failure.detail.strip()
                _, _, last = detail.rpartition(_CUT)
                _, _, why = last.rpartition(f"{AttemptDied.__name__}: ")
                said[job_id] = f"{why or failure.message}{_CUT}{detail[-_MOST:]}".strip()
        return said

    def until(self, condition: Callable[[], object], what: str, timeout: float) -> None:
        """Wait until a condition holds.

        Raises:
            TimeoutError: it does not hold within `timeout` seconds, or a job or driver fails
                without any fault; the message has what those that have not ended said last.
        """
        deadline, pause = Deadline.after(timeout), Poll()
        while not condition():
            self._submissions.check()
            wrong = self.wrong()
            if deadline.expired or wrong:
                why = wrong or [f"not within {timeout:g} s"]
                lines = [f"waited until {what}: {'; '.join(why)}", *told(self.last_words(), _LAST)]
                raise TimeoutError("\n".join(lines))
            pause.sleep()


_CUT = "\n"
"""Between the reason and the rest of last words."""


_LAST = "failed last with"


def told_of(notes: Mapping[str, Any]) -> Iterator[str]:
    """Yield lines with what the notes of a run have about what has not ended, for people."""
    yield from told(notes.get("explained", {}), "has not ended")
    yield from told(notes.get("last_words", {}), _LAST)


def told(texts: Mapping[str, str], what: str, most: int = 10) -> Iterator[str]:
    """Yield lines with the texts about the first jobs and drivers, each behind what it is."""
    for name, said in list(texts.items())[:most]:
        yield f"{name} {what}:"
        yield from (f"  {line}" for line in said.splitlines())
