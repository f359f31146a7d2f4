"""Application mode: a driver with several replicas. Call `jrs.run(main, …)` in every replica."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Concatenate, TypeVar, overload

from jrs.contract.errors import (
    Canceled,
    CorruptRecord,
    DuplicateJob,
    Fenced,
    InvalidInput,
    OutcomeUnknown,
    Unavailable,
    WrongState,
)
from jrs.contract.leadership import Leadership
from jrs.contract.runtime import daemon, start_thread
from jrs.contract.texts import shown
from jrs.records import keys
from jrs.records.applications import LOST_MAIN
from jrs.records.checks import check_job_id, check_json, merged
from jrs.records.field_types import as_json
from jrs.records.model import JobResult, JobSpec, JobStatus, Json, RunnerKind
from jrs.records.not_finished import JobNotFinished
from jrs.records.policies import RestartPolicy
from jrs.store import applications
from jrs.store.jobs import JobCatalog
from jrs.store.opening import open_backend
from jrs.store.result_store import JobResultStore

from .attempt.entry_check import check_entry
from .attempt.entry_point import check_arguments, check_guarded, name_of
from .attempt.triage import call_users
from .cleanup.policy import CleanupPolicy
from .driver_calls import Waiting, check_unfinished, say_handed_back
from .leader.dispatcher import Dispatcher
from .leading_replica import RaisedByMain, Replica, code_of, identity_of, readable
from .master import Master
from .rules.events import Report
from .rules.resource import Resource
from .standby_replica import Standby

T = TypeVar("T")
"""What a function returns: JSON."""


class Driver:
    """The argument of `main`: runs jobs, and returns the stored results of jobs that have ended.

    Given to `main` by `jrs.run`. Safe for many threads of `main`, which end before it returns."""

    def __init__(
        self, name: str, master: Master, dispatcher: Dispatcher, leadership: Leadership
    ) -> None:
        self._name = name
        self._backend = master.backend
        self._dispatcher = dispatcher
        self._leadership = leadership
        self._results = JobResultStore(master.backend)
        # In a cluster of an older format the application has no record, and no jobs of its own.
        self._application = name if applications.stored(master.backend, name) else ""

    @property
    def epoch(self) -> int:
        """The epoch in which this driver leads."""
        return self._leadership.epoch

    def check(self) -> None:
        """Check that `main` should continue; call it in long loops. Reads from the backend.

        Raises:
            Canceled: the application was canceled. Let it through: jrs.run raises JobNotFinished.
            Fenced: this driver was replaced. Let it through: main runs again on the new leader.
            WrongState: `main` has returned, and this thread of it has not ended.
            Unavailable: the backend does not answer.
            CorruptRecord: the disk has perhaps lost the application's result.
        """
        if not self._leadership.lost.is_set() and not self._results.has_entry(self._name):
            return
        if self._leadership.lost.is_set() or not self._backend.is_current(self._leadership.fence):
            raise Fenced(f"epoch {self.epoch} was replaced: this driver stops here")
        entry = self._results.get(self._name)
        if entry is not None and entry.status is JobStatus.FINISHED:
            raise WrongState(
                f"the main of {self._name!r} has returned already, and this thread of it runs on: "
                "join its threads before main returns"
            )
        raise Canceled(f"the application {self._name!r} was canceled: its main has to end")

    @overload
    def run(
        self,
        job_id: str,
        function: Callable[..., T],
        /,
        *,
        restart: RestartPolicy | None = None,
        arguments: Mapping[str, Json] | None = None,
        **more: Json,
    ) -> T: ...

    @overload
    def run(
        self,
        job_id: str,
        function: str,
        /,
        *,
        restart: RestartPolicy | None = None,
        arguments: Mapping[str, Json] | None = None,
        **more: Json,
    ) -> Json: ...

    def run(
        self,
        job_id: str,
        function: Callable[..., Any] | str,
        /,
        *,
        restart: RestartPolicy | None = None,
        arguments: Mapping[str, Json] | None = None,
        **more: Json,
    ) -> Json:
        """Run a job to its end and return its result; after a failover, return the stored result.

        `function` is called as ``function(job, **arguments)`` in a thread of this process, with its
        SparkSession. An entry point (``"module:function"``) runs in a process of its own instead;
        another process imports it before the job is stored.
        The job id identifies the job across calls, in the whole cluster: keep it stable in a run,
        and different from run to run, as ``f"load-{day}"``. While the backend is away, `run`
        waits for it, as long as this driver leads.

        Give the arguments by their names; one that is called ``restart`` or ``arguments`` goes into
        the mapping `arguments`.

        Raises:
            JobNotFinished: the job ended FAILED or CANCELED, now or before; a warning says so if it
                was before.
            ResultExpired: the job ended, and its result was expired.
            InvalidInput: a bad job id, or the application's own; what is no function; arguments
                that are not JSON, or that the function does not take; another function, or
                other arguments, for a job id that has not ended; or such a job is of another
                application. Nothing was stored. For a job that has ended, the stored result is
                returned whatever the function, arguments and application are; a warning says so if
                they differ. Functions are told apart by module and name.
            CannotStartHere: this host does not have the module or the file of the entry point.
                Nothing was stored.
            CorruptRecord: the job is held, because its stored records cannot be read.
            Canceled, Fenced, WrongState: as `check`.

        If the job does not run, because it is held or suspended, say, stderr or the logger
        ``jrs.application`` says why, once for each reason.
        """
        if check_job_id(job_id) == self._name:
            raise InvalidInput(
                f"{job_id!r} is the id of the application itself; choose another for this job, or "
                "another name for jrs.run"
            )
        policy = RestartPolicy() if restart is None else restart
        spec = self._spec(job_id, function, policy, merged(arguments, more))
        entry = self._answered(lambda: self._results.get(job_id))
        if entry is None:
            self._check_call(spec, function)
            self._answered(lambda: self._submit(spec, function))
            stored = self._wait(job_id)
        else:
            stored = readable(entry)
            say_handed_back(spec, stored, code_of(function) if callable(function) else "")
        if stored.status is not JobStatus.FINISHED:
            if stored.failure is not None and stored.failure.kind == LOST_MAIN:
                self._answered(self.check)  # The application was canceled, and the job with it.
            raise JobNotFinished(stored)
        return stored.payload

    def _spec(
        self,
        job_id: str,
        function: Callable[..., Json] | str,
        restart: RestartPolicy,
        arguments: dict[str, Json],
    ) -> JobSpec:
        local = not isinstance(function, str)
        if local and not callable(function):
            raise InvalidInput(
                f"job {job_id!r} needs a function or an entry point, not {shown(function)}"
            )
        return JobSpec(
            job_id=job_id,
            entry_point=function if isinstance(function, str) else f"driver:{job_id}",
            arguments=check_json(arguments, "the arguments"),
            runner=RunnerKind.THREAD if local else RunnerKind.PROCESS,
            restart=restart,
            application=self._application,
            function=name_of(function) if callable(function) else "",
        )

    def _check_call(self, spec: JobSpec, function: Callable[..., Json] | str) -> None:
        """Check a call before it is stored: a misspelled argument would end the job FAILED, once
        for all; and what cannot be imported here would wait for another host while this one leads.
        """
        self._answered(self.check)
        key = keys.JOBS + spec.job_id
        if not isinstance(function, str):
            check_arguments(function, f"the function of job {spec.job_id!r}", spec.arguments)
        elif self._answered(lambda: self._backend.get(key)) is None:
            check_entry(function, spec.arguments)

    def _submit(self, spec: JobSpec, function: Callable[..., Json] | str) -> None:
        self.check()
        job_id = spec.job_id
        catalog, before = JobCatalog(self._backend), None
        try:
            catalog.submit(spec)
        except DuplicateJob:
            # A main that came this far submitted it before a failover.
            before = catalog.view(job_id)
        if before is not None and before.problems:
            raise CorruptRecord(f"job {job_id!r} is held: {before.problems[0]}")
        if before is not None and before.spec is not None:
            check_unfinished(spec, before.spec)
        if not isinstance(function, str):
            self._dispatcher.provide(job_id, function)

    def _answered(self, call: Callable[[], T]) -> T:
        """Make a call of jrs's own, which is safe to repeat, until the backend answers.

        Raises:
            Fenced: this driver was replaced meanwhile.
            Whatever else `call` raises.
        """
        while True:
            try:
                return call()
            except (Unavailable, OutcomeUnknown):
                if self._leadership.lost.wait(0.2):
                    self.check()

    def _wait(self, job_id: str) -> JobResult:
        waiting = Waiting(self._backend, job_id)
        while True:
            try:
                self.check()  # Before a result, which may be canceled because of the application.
                return self._results.wait(job_id, timeout=0.5)
            except TimeoutError:
                waiting.look()
            except Unavailable:
                # The job may continue meanwhile. If the outage lasts too long, the leadership is
                # lost.
                self._leadership.lost.wait(0.2)


def run(
    main: Callable[Concatenate[Driver, ...], T],
    url: str = "",
    *,
    name: str = "",
    arguments: Mapping[str, Json] | None = None,
    cluster: str = "default",
    storage: str | Path | None = None,
    ttl: float = 15.0,
    resources: Sequence[Resource] = (),
    cleanup_policy: CleanupPolicy | None = None,
    report: Report = lambda event: None,
    openlineage: bool = False,
    backend: str = "",
    cluster_id: str = "",
) -> T:
    """Run `main` on the replica that leads, and return its return value on every replica.

    Call it in every replica of the driver. It campaigns; the leader calls ``main(driver,
    **arguments)`` in this thread. When the leader dies, `main` runs again on the next leader, where
    each ``driver.run`` of a job that has ended returns its stored result.

    The return value of `main` is stored as the result of the application `name`. Another call with
    that name returns the stored result and does not run `main`, even while another application or
    master leads the cluster. So a name stands for one run: put into it what distinguishes the run,
    such as the date. A call with the same name and another `main` or other arguments is refused.
    stderr, or the logger ``jrs.application``, says how old a returned result is, and, once, who
    leads while `main` has to wait for its turn.

    An exception of `main` is raised here and recorded, but is no result: another replica then
    tries. ``jrs cancel NAME`` ends the application: its jobs are ended, and the next call of
    `driver` raises `Canceled`.

    Args:
        url: of the backend, for example ``file:///var/lib/jrs``.
        name: the application's id, as ``f"nightly-{date}"``; required.
        arguments: of `main`, besides the driver: JSON, at most 16 KiB of it.
        cluster: the namespace of everything stored.
        storage: where jobs keep their files; a filesystem that all replicas share.
        ttl: seconds after which a leader that hangs is replaced.
        resources: what else the jobs leave behind, unknown to jrs; see `Resource`.
        cleanup_policy: how an incomplete cleanup is tried again.
        report: called with every event, from any thread; it must not block.
        openlineage: tell OpenLineage of each attempt of a job; see docs/operating.md.

    Raises:
        InvalidInput: an argument cannot be used, the name stands for another `main`, other
            arguments or a job, or `main` did not return JSON.
        JobNotFinished: the application was canceled; or a job of that name FAILED or was CANCELED.
        ResultExpired: the application ended, and its result was expired.
        Unavailable: the backend does not answer at first, or this host has no thread left for what
            begins here; `main` has not begun.

    In two cases the process ends by itself, with exit status 76 and without an exception, because a
    thread cannot be killed: `main` still runs after this process was replaced as leader, or a job
    in a thread still runs after `main` has returned or raised. Before that, stderr or the logger
    ``jrs.master`` says what still runs, and has the traceback of what `main` has raised. If `main`
    has returned, its result is durable by then: the next call returns it.

    Example::

        day = sys.argv[1]
        totals = jrs.run(
            main, "file:///var/lib/jrs", name=f"nightly-{day}", arguments={"day": day}
        )
    """
    if backend or cluster_id:
        _warn_of_former_keywords()
        url, cluster = url or backend, cluster_id or cluster
    if not name:
        raise InvalidInput(
            "jrs.run needs a name for this run of main, whose result is kept under it; put into "
            'the name what distinguishes the run: name=f"nightly-{date}"'
        )
    check_job_id(name)
    check_guarded("jrs.run")
    given = merged(arguments, {})
    identity = identity_of(main, name, given)
    with open_backend(url, cluster=cluster) as opened:
        master = Master(
            opened,
            url=url,
            storage=storage,
            ttl=ttl,
            resources=resources,
            cleanup_policy=cleanup_policy,
            report=report,
            openlineage=openlineage,
        )
        replica = Replica(opened, identity, code_of(main), report)
        replica.check()
        # main may change what it gets, and begin again; its record says what it was called with.
        return _led(
            lambda driver: main(driver, **as_json(identity.arguments)), name, master, replica
        )


def _led(main: Callable[[Driver], T], name: str, master: Master, replica: Replica) -> T:
    """Campaign, and return or raise how the application ends: once this replica leads, or once a
    result exists and another master has cleaned up."""
    outcome, raised = list[Any](), None
    stop, over = threading.Event(), threading.Event()
    standby = Standby(master.backend, name, master.name)

    def lead(dispatcher: Dispatcher, leadership: Leadership, stop: threading.Event) -> bool:
        def call() -> T:
            try:
                return call_users(main, Driver(name, master, dispatcher, leadership))
            finally:
                dispatcher.main_runs.clear()  # What follows is no user code, whatever it waits for.

        standby.leads.set()
        try:
            outcome.append(replica.lead(call, master.name, leadership))
        finally:
            standby.leads.clear()
        return True

    waits = daemon(partial(standby.run, stop, over), "jrs-standby")
    start_thread(waits)
    try:
        master.run(stop, lead, name)
    except RaisedByMain as error:
        raised = error.error
    finally:
        over.set()
        waits.join()
    if raised is not None:
        raise raised
    if not outcome:
        outcome.append(replica.hand_back())
    result: T = outcome[0]
    return result


def _warn_of_former_keywords() -> None:
    warnings.warn(
        "backend= and cluster_id= of jrs.run will be removed in 0.3: write "
        "jrs.run(main, URL, cluster=…)",
        DeprecationWarning,
        stacklevel=3,
    )
