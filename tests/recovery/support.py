"""What the tests of recovery share: a bound for waiting, faults, attempts to direct, a leader."""

from __future__ import annotations

import errno
import os
import resource
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Never, Self

import attrs
import pytest

from jrs.backends.file.backend import FileBackend
from jrs.backends.memory import MemoryBackend
from jrs.contract.backend import Backend
from jrs.contract.clock import Clock, Deadline
from jrs.contract.errors import JrsError, Unavailable
from jrs.contract.leadership import Leadership
from jrs.contract.operations import Create, Delete, Fence, Op, Record, Update
from jrs.contract.runtime import Runtime
from jrs.contract.watch import Watch
from jrs.records.codec import encode
from jrs.records.model import JobResult, JobSpec, JobStatus, RunnerKind
from jrs.recovery.attempt.context import AttemptContext
from jrs.recovery.attempt.engine import NoSpark, StreamHost
from jrs.recovery.attempt.runners import AttemptExit, OnEnd, Runner, RunningAttempt
from jrs.recovery.cleanup.job_cleanup import JobCleanup
from jrs.recovery.cleanup.policy import CleanupPolicy
from jrs.recovery.cleanup.resources import default_resources
from jrs.recovery.files.job_folders import JobStorage
from jrs.recovery.health.facts import MasterHealth
from jrs.recovery.leader.context import LeaderContext
from jrs.recovery.leader.dispatcher import Dispatcher
from jrs.recovery.rules.events import Event
from jrs.recovery.rules.resource import Resource
from jrs.store.result_store import JobResultStore
from tests.support import BOUND, until

CLUSTER = "test"
JOBS = Path(__file__).with_name("jobs.py")


def job(name: str) -> str:
    """Return the entry point of a function in jobs.py."""
    return f"{JOBS}:{name}"


class FailingEngine(NoSpark):
    """Spark that raises an error of jrs where a job asks for its session."""

    def __init__(self, error: JrsError) -> None:
        self._error = error

    def session(self, run: StreamHost) -> Never:
        raise self._error


# -- backends that misbehave ----------------------------------------------------------------


@attrs.define
class Fault:
    """Makes commits that touch `key` (a prefix) by an operation of `kind` fail."""

    key: str
    error: type[BaseException]
    kind: type[Op] | None = None
    after: bool = False
    """Whether the commit really happens before the error is raised."""
    times: int = 1_000_000
    happened: int = 0

    def hits(self, ops: tuple[Op, ...]) -> bool:
        return self.happened < self.times and any(
            op.key.startswith(self.key)
            and isinstance(op, (Create, Update, Delete) if self.kind is None else self.kind)
            for op in ops
        )


class Faults:
    """Mixed into a backend: faults of its commits, and a record of its reads and commits."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.faults: list[Fault] = []
        self.down = False
        self.reads: list[str] = []
        self.commits: list[tuple[Op, ...]] = []
        self._interruption: tuple[str, int, Callable[[], None]] | None = None
        self._before_commit: tuple[str, Callable[[], None]] | None = None
        super().__init__(*args, **kwargs)

    @property
    def _behind(self) -> Any:
        """The backend that the faults are mixed into."""
        return super()

    def before_read(self, part: str, number: int, action: Callable[[], None]) -> None:
        """Call `action` once, before the read of that number (from 0) of a key with `part`."""
        self._interruption = part, number, action

    def before_commit(self, prefix: str, action: Callable[[], None]) -> None:
        """Call `action` before each commit that creates a key with that prefix."""
        self._before_commit = prefix, action

    def _interrupt(self, key: str) -> None:
        if self._interruption is None or self._interruption[0] not in key:
            return
        part, number, action = self._interruption
        self._interruption = (part, number - 1, action) if number else None
        if not number:
            action()

    def fault(self, key: str, error: type[BaseException], **how: Any) -> Fault:
        fault = Fault(key, error, **how)
        self.faults.append(fault)
        return fault

    def _commit(self, ops: tuple[Op, ...], fence: Fence | None, deadline: Deadline) -> None:
        self._check_up()
        if self._before_commit is not None:
            prefix, action = self._before_commit
            if any(isinstance(op, Create) and op.key.startswith(prefix) for op in ops):
                action()
        fault = next((fault for fault in self.faults if fault.hits(ops)), None)
        if fault is not None and not fault.after:
            fault.happened += 1
            raise fault.error("injected, before the commit")
        self._behind._commit(ops, fence, deadline)
        self.commits.append(ops)
        if fault is not None:
            fault.happened += 1
            raise fault.error("injected, after the commit")

    def _get(self, key: str, deadline: Deadline) -> Record | None:
        self._check_up()
        self._interrupt(key)
        self.reads.append(key)
        found: Record | None = self._behind._get(key, deadline)
        return found

    def _page(self, prefix: str, after: str | None, limit: int, deadline: Deadline) -> list[Record]:
        self._check_up()
        self._interrupt(prefix)
        page: list[Record] = self._behind._page(prefix, after, limit, deadline)
        self.reads.extend(record.key for record in page)
        return page

    def watch(self, prefix: str) -> Watch:
        watch: Watch = self._behind.watch(prefix)
        changes = watch.changes

        def while_up(timeout: float) -> frozenset[str] | None:
            self._check_up()
            return changes(timeout)

        watch.changes = while_up
        return watch

    def _check_up(self) -> None:
        if self.down:
            raise Unavailable("injected: away")


class FaultyMemory(Faults, MemoryBackend):
    """The memory backend, with faults."""


class FaultyFile(Faults, FileBackend):
    """The file backend, with faults."""


Faulty = FaultyMemory | FaultyFile


def spoil(backend: Backend, key: str, value: bytes = b"no record of jrs") -> None:
    """Put bytes that nobody can read under a key."""
    record = backend.get(key)
    backend.commit(Create(key, value) if record is None else Update(key, value, record.version))


def put(backend: Backend, key: str, value: Any) -> None:
    """Store a value of the model."""
    backend.commit(Create(key, encode(value)))


def result(job_id: str, payload: Any = None, **fields: Any) -> JobResult:
    fields.setdefault("status", JobStatus.FINISHED)
    return JobResult(job_id, payload=payload, **fields)


# -- attempts that a test directs -------------------------------------------------------------


class DirectedAttempt(RunningAttempt):
    """An attempt that does what the test says."""

    def __init__(self, runner: DirectedRunner, context: AttemptContext, on_end: OnEnd) -> None:
        self._runner = runner
        self.context = context
        self._on_end = on_end
        self._lock = threading.Lock()
        self.is_over = False
        self.was_ended = False
        self.stubborn = False

    @property
    def job_id(self) -> str:
        return self.context.spec.job_id

    def finish(self, payload: Any = None) -> None:
        """Record a result and end, as `run_attempt` does."""
        self.record(payload)
        self.over(AttemptExit())

    def record(self, payload: Any = None) -> None:
        done = result(self.job_id, payload, attempt=self.context.attempt)
        JobResultStore(self.context.backend).create_dirty(done, self.context.fence)

    def die(self, message: str = "it died", **how: Any) -> None:
        self.over(AttemptExit(message, **how))

    def over(self, ended: AttemptExit) -> None:
        with self._lock:
            if self.is_over:
                return
            self.is_over = True
        self._on_end(ended)

    def end(self, deadline: Deadline) -> bool:
        self.was_ended = True
        if self.stubborn:
            return False
        self._runner.before_end(self)
        self.over(AttemptExit("it was ended"))
        return True


class DirectedRunner(Runner):
    """Starts attempts that a test directs."""

    def __init__(self) -> None:
        self.started: list[DirectedAttempt] = []
        self.before_start: Callable[[AttemptContext], None] = lambda context: None
        self.before_end: Callable[[DirectedAttempt], None] = lambda attempt: None
        self.released: list[str] = []

    def release(self, mark: str) -> None:
        self.released.append(mark)

    def start(
        self, context: AttemptContext, function: Callable[..., Any] | None, on_end: OnEnd
    ) -> RunningAttempt:
        self.before_start(context)
        attempt = DirectedAttempt(self, context, on_end)
        self.started.append(attempt)
        return attempt

    def of(self, job_id: str, attempt: int = 1) -> DirectedAttempt:
        """Wait for an attempt of a job and return it; its n-th one on this runner."""

        def found() -> DirectedAttempt | None:
            of_job = [one for one in self.started if one.job_id == job_id]
            return of_job[attempt - 1] if len(of_job) >= attempt else None

        started: DirectedAttempt = until(found, f"attempt {attempt} of {job_id} starts")
        return started


class Thing(Resource):
    """A resource that keeps a record of its cleaning and can be told to fail or to wait."""

    def __init__(self, name: str = "thing", *, prioritised: bool = False) -> None:
        self.name = name
        self.prioritised = prioritised
        self.broken: BaseException | None = None
        self.calls: list[str] = []
        self.released: list[str] = []
        self.on_clean: Callable[[str], object] = lambda job_id: None

    def clean(self, job_id: str) -> None:
        self.calls.append(job_id)
        self.on_clean(job_id)
        if self.broken is not None:
            raise self.broken

    def release(self, job_id: str) -> None:
        self.released.append(job_id)

    def describe(self, job_id: str) -> list[str]:
        return [f"/the/{self.name}/of/{job_id}"]


# -- a leader ---------------------------------------------------------------------------------


def leader_context(
    leadership: Leadership, backend: Backend, storage: JobStorage, **more: Any
) -> LeaderContext:
    """Return the context of a leadership that runs and cleans up nothing, unless `more` says so."""
    parts: dict[str, Any] = {"runners": {}, "cleanup": JobCleanup(backend, []), **more}
    return LeaderContext(backend=backend, leadership=leadership, storage=storage, **parts)


class Leader:
    """A leadership and its dispatcher, in this process; ended when the test leaves it."""

    def __init__(
        self,
        backend: Backend,
        root: Path,
        *,
        runner: Runner | None = None,
        resources: Iterable[Resource] = (),
        policy: CleanupPolicy | None = None,
        clock: Clock = time.monotonic,
        now: Clock = time.time,
        report: Callable[[Event], None] = lambda event: None,
        candidate: str = "leader",
        max_attempts: int | None = None,
        ttl: float | None = None,
    ) -> None:
        self.backend = backend
        self.events: list[Event] = []
        self._also_report = report
        self.runner: Any = runner or DirectedRunner()
        leadership = backend.campaign(candidate, ttl=10.0, stop=threading.Event())
        assert leadership is not None
        self.leadership: Leadership = leadership
        self.fence = leadership.fence
        self.storage = JobStorage(root, backend.cluster)
        self.cleanup = JobCleanup(backend, [*default_resources(backend, self.storage), *resources])
        self.store = JobResultStore(backend)
        self.health = MasterHealth()
        self.dispatcher = Dispatcher(
            leader_context(
                leadership,
                backend,
                self.storage,
                runners=dict.fromkeys(RunnerKind, self.runner),
                cleanup=self.cleanup,
                cleanup_policy=policy or CleanupPolicy(),
                report=self._report,
                master=candidate,
                max_attempts=max_attempts,
                ttl=ttl,
                runtime=Runtime(clock=clock, now=now),
                health=self.health,
            )
        )

    def _report(self, event: Event) -> None:
        self.events.append(event)
        self._also_report(event)

    def said(self, kind: str, job_id: str | None = None, text: str = "") -> list[Event]:
        return [
            event
            for event in list(self.events)
            if event.kind == kind and job_id in (None, event.job_id) and text in event.message
        ]

    def until_said(self, kind: str, job_id: str | None = None, text: str = "") -> Event:
        said: list[Event] = until(
            lambda: self.said(kind, job_id, text),
            lambda: f"{kind} {job_id} {text!r} in {self.events}",
        )
        return said[0]

    def until_clean(self, *job_ids: str) -> None:
        for job_id in job_ids:
            until(
                partial(self.store.has_clean, job_id),
                lambda job_id=job_id: f"{job_id} is clean: {self.events}",  # type: ignore[misc]
            )

    def look(self) -> None:
        """Make the dispatcher ask for all changes, and look at what is due."""
        self.dispatcher.resync()

    def stop(self, timeout: float = BOUND) -> bool:
        return not self.dispatcher.stop(Deadline.after(timeout))

    def __enter__(self) -> Self:
        self.dispatcher.recover()
        self.dispatcher.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        self.leadership.resign()


def spec(job_id: str, entry_point: str = "nowhere:never", **fields: Any) -> JobSpec:
    return JobSpec(job_id, entry_point, **fields)


def noted(path: Path, count: int) -> list[int]:
    """Wait for `count` lines of pids (or epochs) in a file."""

    def lines() -> list[int] | None:
        found = path.read_text().splitlines() if path.exists() else []
        return [int(line) for line in found] if len(found) >= count else None

    numbers: list[int] = until(lines, f"{path.name} has {count} lines")
    return numbers


def state_of(pid: int) -> str:
    """Return the kernel's letter for the state of a process; empty if there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return ""
    return stat.rpartition(b")")[2].split()[0].decode()


@contextmanager
def many_descriptors() -> Iterator[None]:
    """Give every further descriptor of this process a number that `select` does not take."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as stack:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        while (descriptor := os.open(os.devnull, os.O_RDONLY)) <= 1024:
            stack.callback(os.close, descriptor)
        os.close(descriptor)
        yield


def fail_to_list(patch: pytest.MonkeyPatch, path: Path, number: int = errno.EMFILE) -> None:
    """Have every look at a path fail: listing it, and asking what it is."""

    def failing(name: str) -> Callable[..., Any]:
        real = getattr(os, name)

        def call(asked: Any = ".", *arguments: Any, **options: Any) -> Any:
            if not isinstance(asked, int) and Path(asked) == path:
                raise OSError(number, os.strerror(number), str(path))
            return real(asked, *arguments, **options)

        return call

    for name in ("scandir", "listdir", "stat"):
        patch.setattr(os, name, failing(name))


def gone(pids: list[int]) -> bool:
    return all(state_of(pid) in ("", "Z", "X") for pid in pids)
