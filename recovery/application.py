"""Application mode: a driver with several replicas. Call `jrs.run(main, …)` in every replica."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar, overload

from jrs.contract.clock import Deadline
from jrs.contract.errors import (
    CorruptRecord,
    DuplicateJob,
    Fenced,
    InvalidInput,
    ResultExpired,
    Unavailable,
)
from jrs.contract.leadership import Leadership
from jrs.records.checks import check_job_id, check_json
from jrs.records.model import (
    JobNotFinished,
    JobResult,
    JobResultEntry,
    JobSpec,
    JobStatus,
    Json,
    ResultState,
    RunnerKind,
)
from jrs.records.policies import RestartPolicy
from jrs.store.jobs import JobCatalog
from jrs.store.opening import open_backend
from jrs.store.result_store import JobResultStore

from .attempt.run import record_result
from .cleanup.job_cleanup import CleanupPolicy
from .leader.dispatcher import Dispatcher
from .master import Master
from .rules.events import Report
from .rules.resource import Resource

T = TypeVar("T")
"""What a function returns: JSON."""

_LAST_CLEANUP = 60.0
"""Seconds that the leader waits for its jobs' cleanup after its main has returned."""


class Driver:
    """The argument of `main`: runs jobs, and returns the stored results of jobs that have ended."""

    def __init__(
        self, name: str, master: Master, dispatcher: Dispatcher, leadership: Leadership
    ) -> None:
        self._name = name
        self._backend = master.backend
        self._dispatcher = dispatcher
        self._leadership = leadership
        self._results = JobResultStore(master.backend)

    @property
    def epoch(self) -> int:
        """The epoch in which this driver leads."""
        return self._leadership.epoch

    @overload
    def run(
        self,
        job_id: str,
        function: Callable[..., T],
        *,
        restart: RestartPolicy | None = None,
        **arguments: Json,
    ) -> T: ...

    @overload
    def run(
        self,
        job_id: str,
        function: str,
        *,
        restart: RestartPolicy | None = None,
        **arguments: Json,
    ) -> Json: ...

    def run(
        self,
        job_id: str,
        function: Callable[..., Any] | str,
        *,
        restart: RestartPolicy | None = None,
        **arguments: Json,
    ) -> Json:
        """Run a job to its end and return its result; after a failover, return the stored result.

        `function` is called as ``function(job, **arguments)`` in a thread of this process, with its
        SparkSession. An entry point (``"module:function"``) runs in a process of its own instead.
        The job id identifies the job across calls: keep it stable.

        Raises:
            JobNotFinished: the job ended FAILED or CANCELED, now or before.
            ResultExpired: the job ended, and its result was expired.
            InvalidInput: a bad job id, or the application's own; arguments that are not JSON; or
                another function or other arguments for a job id that has not ended. For a job that
                has ended, the stored result is returned whatever the function and arguments are.
            CorruptRecord: the job is held, because its stored records cannot be read.
            Fenced: this driver was replaced. Let it through: main runs again on the new leader.
        """
        if check_job_id(job_id) == self._name:
            raise InvalidInput(
                f"{job_id!r} is the id of the application itself; choose another for this job, or "
                "another name for jrs.run"
            )
        stored = self._ended(job_id)
        if stored is None:
            self._submit(job_id, function, restart or RestartPolicy(), arguments)
            stored = self._wait(job_id)
        if stored.status is not JobStatus.FINISHED:
            raise JobNotFinished(stored)
        return stored.payload

    def _ended(self, job_id: str) -> JobResult | None:
        entry = self._results.get(job_id)
        return None if entry is None else _readable(entry)

    def _submit(
        self,
        job_id: str,
        function: Callable[..., Json] | str,
        restart: RestartPolicy,
        arguments: dict[str, Json],
    ) -> None:
        local = not isinstance(function, str)
        spec = JobSpec(
            job_id=job_id,
            entry_point=function if isinstance(function, str) else f"driver:{job_id}",
            arguments=check_json(arguments, "the arguments"),
            runner=RunnerKind.THREAD if local else RunnerKind.PROCESS,
            restart=restart,
        )
        catalog = JobCatalog(self._backend)
        try:
            catalog.submit(spec)
        except DuplicateJob:
            # A main that came this far submitted it before a failover.
            view = catalog.view(job_id)
            if view.problems:
                raise CorruptRecord(f"job {job_id!r} is held: {view.problems[0]}") from None
            if view.spec is not None and _what(view.spec) != _what(spec):
                raise InvalidInput(
                    f"job {job_id!r} was submitted with another function or other arguments; a job "
                    "id names one run: choose another"
                ) from None
        if not isinstance(function, str):
            self._dispatcher.provide(job_id, function)

    def _wait(self, job_id: str) -> JobResult:
        while True:
            if self._leadership.lost.is_set():
                raise Fenced(f"epoch {self.epoch} was replaced: this driver stops here")
            try:
                return self._results.wait(job_id, timeout=0.5)
            except TimeoutError:
                continue
            except Unavailable:
                # The job may continue meanwhile. If the outage lasts too long, the leadership is
                # lost.
                self._leadership.lost.wait(0.2)


def run(
    main: Callable[[Driver], T],
    url: str = "",
    *,
    cluster: str = "default",
    name: str = "main",
    storage: str | Path | None = None,
    ttl: float = 15.0,
    resources: Sequence[Resource] = (),
    cleanup_policy: CleanupPolicy | None = None,
    report: Report = lambda event: None,
    backend: str = "",
    cluster_id: str = "",
) -> T:
    """Run `main` on the replica that leads, and return its return value on every replica.

    Call it in every replica of the driver. It campaigns; the leader calls ``main(driver)`` in this
    thread. When the leader dies, `main` runs again on the next leader, where each ``driver.run`` of
    a job that has ended returns its stored result. The return value of `main` is stored as the
    result of the job `name`, so a replica that joins later does not run `main` again.

    An exception of `main` is raised here and not stored: another replica then tries.

    Args:
        url: of the backend, for example ``file:///var/lib/jrs``.
        cluster: the namespace of everything stored.
        name: the application's own job id.
        storage: where jobs keep their files; a filesystem that all replicas share.
        ttl: seconds after which a leader that hangs is replaced.

    Raises:
        InvalidInput: an argument cannot be used, or `main` did not return JSON.
        ResultExpired: the application ended, and its result was expired.
        SystemExit: this process was replaced as leader and `main` did not end (exit status 76).
    """
    if backend or cluster_id:
        warnings.warn(
            "backend= and cluster_id= of jrs.run will be removed in 0.3: write "
            "jrs.run(main, URL, cluster=…)",
            DeprecationWarning,
            stacklevel=2,
        )
        url, cluster = url or backend, cluster_id or cluster
    check_job_id(name)
    outcome: list[T] = []
    with open_backend(url, cluster=cluster) as opened:
        master = Master(
            opened,
            url=url,
            storage=None if storage is None else Path(storage),
            ttl=ttl,
            resources=resources,
            cleanup_policy=cleanup_policy,
            report=report,
        )
        results = JobResultStore(opened)

        def lead(dispatcher: Dispatcher, leadership: Leadership, stop: threading.Event) -> bool:
            entry = results.get(name)
            if entry is None:
                try:
                    returned = main(Driver(name, master, dispatcher, leadership))
                    payload = check_json(returned, "what main returned")
                except Fenced:
                    return False
                result = JobResult(
                    name,
                    JobStatus.FINISHED,
                    payload,
                    epoch=leadership.epoch,
                    finished_at=time.time(),
                )
                record_result(opened, result, leadership.fence, leadership.lost)
            else:
                payload = _readable(entry).payload
            outcome.append(payload)
            _finish_cleanup(results, JobCatalog(opened), leadership)
            return True

        master.run(threading.Event(), lead)
    return outcome[0]


def _finish_cleanup(results: JobResultStore, catalog: JobCatalog, leadership: Leadership) -> None:
    """Wait until nothing is dirty, as far as waiting helps: there may be no next leader."""
    deadline = Deadline.after(_LAST_CLEANUP)
    while not deadline.expired and not leadership.lost.is_set():
        if not any(_will_be_cleaned_up(entry, catalog) for entry in results.dirty()):
            return
        leadership.lost.wait(0.02)


def _will_be_cleaned_up(entry: JobResultEntry, catalog: JobCatalog) -> bool:
    """Return whether waiting may help: False if the cleanup is held or was given up."""
    view = catalog.view(entry.job_id)
    return not view.problems and not (view.cleanup and view.cleanup.exhausted)


def _what(spec: JobSpec) -> tuple[str, dict[str, Json]]:
    return spec.entry_point, spec.arguments


def _readable(entry: JobResultEntry) -> JobResult:
    if entry.state is ResultState.EXPIRED:
        raise ResultExpired(f"job {entry.job_id!r} has ended and its result was expired")
    if entry.result is None:
        raise CorruptRecord(entry.problem or f"the result of {entry.job_id!r} cannot be read")
    return entry.result
