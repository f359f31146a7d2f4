"""Master: campaigns, and dispatches while it leads. It announces itself once it has recovered."""

from __future__ import annotations

import os
import secrets
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path

from jrs.contract.backend import Backend
from jrs.contract.clock import Deadline
from jrs.contract.errors import (
    CorruptRecord,
    Fenced,
    InvalidInput,
    OutcomeUnknown,
    Unavailable,
    UnsupportedVersion,
)
from jrs.contract.leadership import Leadership
from jrs.contract.runtime import RUNTIME, Runtime
from jrs.records.checks import check_master_name
from jrs.records.model import RunnerKind
from jrs.store import cluster_format
from jrs.store.cluster_history import LeadershipHistorian
from jrs.store.masters import Registration, Registry

from . import attempt_main, run_hook
from .attempt.runners import Runner
from .attempt.runners.fork_server_process import ForkServer
from .attempt.runners.process import ProcessRunner
from .attempt.runners.thread import ThreadRunner
from .cleanup.job_cleanup import JobCleanup
from .cleanup.on_result import Notification
from .cleanup.policy import CleanupPolicy
from .cleanup.resources import default_resources
from .files import permissions
from .health.facts import MasterHealth
from .leader import master_options, usable_storage, warm_plans
from .leader.admission import default_slots
from .leader.backend_outage import Outage
from .leader.context import LeaderContext
from .leader.dispatcher import Dispatcher
from .leader.ends_count import EndsCount
from .leader.feed_sweep import FeedSweep
from .leader.hand_over import let_another_lead
from .leader.leader_task import LeaderTask, running
from .leader.loss_guard import LossGuard, grace
from .leader.process_end import end_process
from .leader.retention import Retention
from .leader.storage_calls import Held
from .leader.storage_watch import StorageWatch
from .leader.sweep import Sweep
from .leader.switchover import Either, Switchovers
from .leader.trust import Trust
from .processes import marks
from .rules.events import Event, EventKind, Report, notify
from .rules.resource import Resource
from .rules.retention import RetentionPolicy
from .spark import class_data
from .spark.engine import ENGINE

_TURN = 30.0
"""Seconds that a leader tries a job which it cannot start, before it lets another master try. The
time doubles each time the masters take turns, up to four times as long."""

_LAST_RECORD = 1.0
"""Seconds for which a leader tries to record how its leadership has ended: its successor waits."""


def default_name() -> str:
    """Return a name that no other master has: host, pid and a random suffix."""
    host = "".join(c if c.isalnum() else "-" for c in socket.gethostname())[:64] or "master"
    return f"{host}-{os.getpid()}-{secrets.token_hex(2)}"


def _exporting(backend: Backend) -> Callable[[LeaderContext], Sequence[LeaderTask]]:
    """Return what makes the task that exports a leadership's history; raises as `OpenLineage`."""
    # Few masters export, and the second one imports OpenLineage, an extra.
    from .leader.lineage_export import LineageExport
    from .leader.openlineage import OpenLineage

    send = OpenLineage(backend.cluster).send
    return lambda context: [LineageExport(context, send)]


class Master:
    """A process that can lead.

    While it leads, it starts the jobs of the cluster, recovers them after a failover and cleans up
    after them. `run` blocks until its `stop` is set. Example::

        stop = threading.Event()
        # Not by the handler itself: it may have interrupted the event, which has a lock.
        signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=stop.set).start())
        url = "file:///var/lib/jrs"
        with jrs.open_backend(url) as backend:
            jrs.Master(backend, url=url).run(stop)

    Args:
        backend: the cluster's backend; the master does not close it.
        url: how another process opens the same backend, secrets included.
        storage: the root of the jobs' folders, on a filesystem that all masters share, or the URL
            of objects, such as ``s3://bucket/prefix``; by default what the environment variable
            JRS_STORAGE names, or a folder next to the backend's data.
        ttl: seconds after which a leader that hangs is replaced.
        name: this master's name, unique among the cluster's masters.
        resources: what else jobs leave behind, unknown to jrs; see `Resource`.
        cleanup_policy: how an incomplete cleanup is tried again; by default without end.
        trust: which jobs this master runs; by default all.
        report: called with every event, from any thread; must not block.
        max_attempts: the slots: how many attempts in processes of their own run at once while this
            master leads. Other jobs wait, by priority and then by submission. The default depends
            on cores and memory; see `default_slots`.
        retention: how long what ended jobs left is kept, and how many bytes of logs; by default
            only logs are removed.
        prepare: make the archive of Spark's classes that sessions of this host and user request;
            see ``jrs prepare``.
        warm: how many processes with a Spark session are prepared for the next attempts of jobs,
            while this master leads and while it does not; see docs/stopping.md.
        preload: modules that these processes import.
        openlineage: tell OpenLineage of each attempt while this master leads. OpenLineage's own
            configuration names the receiver; see docs/operating.md.
        runtime: the clocks, the randomness and the threads, for tests that drive them.
        health: is told what happens, for probes and metrics.

    Raises:
        InvalidInput: the storage cannot be used, for example on a filesystem that caches names, or
            is missing while the backend has no folder of its own, or is not the one that the
            cluster uses; the name, the ttl or another option cannot be used; a resource is not a
            `Resource`; OpenLineage is not installed or not configured; or this process cannot see
            itself in /proc of its host or container.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        url: str,
        storage: str | Path | None = None,
        ttl: float = 15.0,
        name: str | None = None,
        resources: Sequence[Resource] = (),
        cleanup_policy: CleanupPolicy | None = None,
        trust: Trust = Trust(),  # noqa: B008 - it cannot be changed
        report: Report = lambda event: None,
        max_attempts: int | None = None,
        retention: RetentionPolicy = RetentionPolicy(),  # noqa: B008 - it cannot be changed
        prepare: bool = False,
        warm: int = 0,
        preload: Sequence[str] = (),
        openlineage: bool = False,
        runtime: Runtime = RUNTIME,
        health: MasterHealth | None = None,
    ) -> None:
        master_options.check(
            backend, url=url, ttl=ttl, cleanup_policy=cleanup_policy, trust=trust, report=report,
            max_attempts=max_attempts, retention=retention,
        )  # fmt: skip
        folders, identity = usable_storage.ready(backend, storage)
        try:
            marks.check_visible()
        except Unavailable as error:
            raise InvalidInput(f"no master can run here: {error}") from None
        self.backend = backend
        self.name = default_name() if name is None else check_master_name(name)
        self._ttl = ttl
        self._runtime = runtime
        self._storage = folders
        self._storage_watch = StorageWatch(identity, self.name, ttl, runtime)
        hook = Notification(backend, trust.check, runtime.now, run_hook.PROGRAM)
        self._cleanup = JobCleanup(
            backend, [*default_resources(backend, self._storage), hook, *resources]
        )
        self._policy = cleanup_policy
        self._max_attempts = max_attempts or default_slots()
        self._trust = trust
        self._retention = retention
        self._prepare = prepare
        self._report = report
        self._exporting = _exporting(backend) if openlineage else lambda context: ()
        self._handed_over = threading.Event()
        self._turns = 0
        self._registry = Registry(backend, now=runtime.now)
        self._health = health or MasterHealth(runtime.clock)
        backend.commit_ended = self._health.commit_ended
        backend.compaction_ended = partial(self._health.upkeep_ended, "compaction")
        shared, program = permissions.is_shared(folders.root), attempt_main.PROGRAM
        self._warm = warm_plans.pool(
            backend, warm, preload, program, partial(self._emit, EventKind.WARM, 0), runtime,
            shared=shared,
        )  # fmt: skip
        self._fork_server = ForkServer(program, url)
        self._processes = ProcessRunner(
            url, program, retention.limits, self._warm, self._fork_server, shared=shared
        )
        self._runners: dict[RunnerKind, Runner] = {
            RunnerKind.PROCESS: self._processes,
            RunnerKind.THREAD: ThreadRunner(lock_limit=ttl / 2, engine=ENGINE),
        }

    def run(
        self,
        stop: threading.Event,
        lead: Callable[[Dispatcher, Leadership, threading.Event], bool] | None = None,
        application: str = "",
    ) -> None:
        """Campaign and lead, repeatedly, until `stop` is set.

        `lead` is called in this thread while this master leads, once it has recovered; it returns
        True if the master has nothing more to do. The default waits for `stop` or a loss.
        `application` is the one whose main it calls.
        """
        say = partial(self._emit, EventKind.ERROR, 0)
        registration = Registration(
            self._registry, self.name, max_attempts=self._max_attempts, runtime=self._runtime,
            application=application, acknowledged=self._health.answered, report=say,
        )  # fmt: skip
        switchovers = Switchovers(self.backend, self.name, registration, stop, self._runtime, say)
        try:
            with (
                switchovers, self._preparing(), self._warm or nullcontext(), self._fork_server,
                self._processes,
            ):  # fmt: skip
                self._campaign(registration, switchovers, stop, lead)
        finally:
            registration.close()

    def _preparing(self) -> AbstractContextManager[object]:
        if not self._prepare:
            return nullcontext()
        return class_data.Background(lambda text: self._emit(EventKind.PREPARE, 0, text))

    def _campaign(
        self,
        registration: Registration,
        switchovers: Switchovers,
        stop: threading.Event,
        lead: Callable[[Dispatcher, Leadership, threading.Event], bool] | None,
    ) -> None:
        outage = Outage(stop, lambda why: self._emit(EventKind.WAITING, 0, why))
        while not stop.is_set():
            try:
                # Before the campaign: each one makes a store that is behind look newer.
                self._storage_watch.check()
                self._may_lead(registration)
                switchovers.give_way()
                with self._storage_watch.watched() as held:
                    leadership = self._won(Either(switchovers.stop_campaign(), held))
                if leadership is None:
                    continue  # It stops, lets another master lead first, or is held.
                outage.over()
                with leadership, switchovers.leading(leadership):
                    # An operator may have raised the format while this master waited for its turn.
                    cluster_format.ensure_supported(self.backend, convert=False)
                    if not self._record_storage(leadership):
                        continue
                    if self._lead(leadership, registration, switchovers, stop, lead):
                        return
                if self._handed_over.is_set():
                    let_another_lead(self.backend, leadership.epoch, stop)
            except Held as error:
                self._may_lead(registration, str(error))
                outage.wait(error, answers=True)
            except (Unavailable, OutcomeUnknown) as error:
                outage.wait(error)

    def _may_lead(self, registration: Registration, held: str = "") -> None:
        """Tell what watches this master why it must not lead; empty if it may."""
        self._health.held(held)
        registration.held(held)

    def _record_storage(self, leadership: Leadership) -> bool:
        """Record the storage as the cluster's; return whether this master still leads."""
        try:
            if said := self._storage_watch.record(leadership):
                self._emit(EventKind.ERROR, leadership.epoch, said)
        except Fenced as error:  # It hung since its election, and another master leads.
            self._emit(EventKind.LOST, leadership.epoch, str(error))
            return False
        return True

    def _won(self, stop: threading.Event) -> Leadership | None:
        try:
            return self.backend.campaign(self.name, ttl=self._ttl, stop=stop)
        except UnsupportedVersion:
            raise
        except CorruptRecord as error:
            raise Held(f"{error}; restore the epoch with 'jrs fsck --repair'") from error

    def _lead(
        self,
        leadership: Leadership,
        registration: Registration,
        switchovers: Switchovers,
        stop: threading.Event,
        lead: Callable[[Dispatcher, Leadership, threading.Event], bool] | None,
    ) -> bool:
        epoch = leadership.epoch
        self._turns = self._turns if self._handed_over.is_set() else 0
        self._handed_over.clear()
        self._emit(EventKind.ELECTED, epoch, f"{self.name} is elected; recovering")
        context = self._context(leadership, is_driver=lead is not None)
        dispatcher = Dispatcher(context)
        self._health.elected(leadership, dispatcher.tally)
        guard = LossGuard(context, dispatcher, self._ttl)
        historian, why, raised = self._historian(leadership), "", list[BaseException]()
        try:
            guard.start()
            self._health.leaders_lost(historian.elected())
            dispatcher.recover()
            dispatcher.start()
            registration.leading(epoch)
            self._health.leads()
            self._emit(EventKind.LEADING, epoch, f"{self.name} leads")
            upkeep = FeedSweep(context), Sweep(context), EndsCount(context)
            with running(Retention(context, self._retention), *upkeep, *self._exporting(context)):
                if lead is None:
                    return switchovers.wait(leadership, self._handed_over, stop)
                return guard.call_main(partial(lead, dispatcher, leadership, stop))
        except Fenced as error:
            why = str(error)
            leadership.lost.set()  # As when its lease ends: events, metrics and the history agree.
            return False
        except BaseException as error:
            raised.append(error)
            raise
        finally:
            lost = leadership.lost.is_set()
            self._health.stepped_down(lost=lost)
            registration.leading(None)
            alive = dispatcher.stop(Deadline.after(grace(leadership, self._ttl)))
            guard.close()
            kind = EventKind.LOST if lost else EventKind.RESIGNED
            self._emit(kind, epoch, f"{self.name} no longer leads{why and ': ' + why}")
            if alive:
                end_process(context, alive, *raised)
            why = why or self._why_it_ended(switchovers, stop, lost=lost)
            historian.ended(lost=lost, why=why, deadline=Deadline.after(_LAST_RECORD))

    def _historian(self, leadership: Leadership) -> LeadershipHistorian:
        return LeadershipHistorian(
            self.backend,
            leadership.fence,
            self.name,
            {"host": socket.gethostname(), "pid": os.getpid(), "ttl": self._ttl},
            self._runtime.now,
        )

    def _why_it_ended(self, switchovers: Switchovers, stop: threading.Event, *, lost: bool) -> str:
        if switchovers.hands_over:
            return "a switchover was requested"
        if lost:
            return "its lease ended"
        if self._handed_over.is_set():
            return "another master is to try a job that it cannot start"
        return "it was stopped" if stop.is_set() else ""

    def _context(self, leadership: Leadership, *, is_driver: bool) -> LeaderContext:
        return LeaderContext(
            backend=self.backend,
            leadership=leadership,
            storage=self._storage,
            runners=self._runners,
            cleanup=self._cleanup,
            cleanup_policy=self._policy or CleanupPolicy(),
            report=self._report,
            master=self.name,
            max_attempts=self._max_attempts,
            ttl=self._ttl,
            trust=self._trust,
            # A driver's main cannot be moved to another process.
            hand_over=None if is_driver else self._hand_over,
            turn=_TURN * 2 ** min(self._turns, 2),
            runtime=self._runtime,
            health=self._health,
        )

    def _hand_over(self, again: bool) -> None:
        self._turns += again
        self._handed_over.set()

    def _emit(self, kind: EventKind, epoch: int, message: str) -> None:
        notify(self._report, Event(kind, "", message, epoch, self._runtime.now()))
