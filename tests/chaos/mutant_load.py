"""The runs that find mutants: a load of clients or of jobs, under faults, and what the checks say.

It imports `jrs` from wherever Python finds it, so `PYTHONPATH` decides which code is evaluated::

    python mutant_load.py run '{"backend": "file", "load": "clients", …}' FOLDER

It prints a JSON object: for each check that found something, the first thing it found. A client is
this program, too: ``python mutant_load.py client SECONDS QUIET``.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import attrs

from jrs import Job
from jrs.contract.backend import Backend
from jrs.contract.clock import Deadline
from jrs.contract.errors import (
    CorruptRecord,
    NoSuchResult,
    OutcomeUnknown,
    Refused,
    ResultIsDirty,
    Unavailable,
)
from jrs.contract.operations import Absent, Check, Create, Delete, Fence, Op, Record, Update
from jrs.records.model import JobResult, JobStatus
from jrs.store.opening import open_backend
from jrs.store.result_store import JobResultStore
from jrs.testing.chaos import (
    ChaosFailure,
    Plan,
    World,
    fenced,
    linearizable,
    list_append,
    no_overlap,
    nothing_left,
    nothing_lost,
    once_per_job,
    once_per_stage,
    outcomes,
    output_equals,
    protocol,
    serializable,
    watched,
)
from jrs.testing.chaos import faults as nemeses

KEYS = 5
CLIENTS = 4
COPIES = 6
FILES = 4
WRITING = 0.8
"""Seconds in which a job writes."""
TTL = 2.0
CALL_TIMEOUT = 3.0
"""Seconds that a client waits for one answer."""
_EXPECTED = (Refused, Unavailable, OutcomeUnknown, CorruptRecord, TimeoutError)


@attrs.frozen
class Settings:
    """How a mutant is found; see `run`.

    Attributes:
        backend: the scheme.
        load: ``clients``, ``lists`` (clients that append to lists) or ``jobs``.
        nemesis: an expression of nemeses.
        seconds: of the load, and most seconds of faults.
        quiet: seconds behind the load in which clients only listen and write a little.
        members: of the servers.
        rest: seconds that a job takes behind what it writes.
        dies: where the first attempt of each job kills itself: ``write`` or ``count``.
        timeout: seconds in which all jobs have to end.
    """

    backend: str = "file"
    load: str = "clients"
    nemesis: str = "Nemesis()"
    seconds: float = 3.0
    seed: int = 11
    quiet: float = 0.0
    members: int = 1
    rest: float = 1.6
    dies: str = ""
    timeout: float = 30.0


class Client:
    """One process of the load, or one of its threads."""

    def __init__(self, backend: Backend, name: str, rng: Random) -> None:
        self._backend = backend
        self._name = name
        self._rng = rng
        self._seen: dict[str, int | None] = {}
        self._count = 0

    def act(self, fence: Fence | None = None) -> None:
        """Do one thing at random; a refusal and an outage are results like others."""
        doing = self._rng.choices(
            (self.get, self.get_many, self.scan, lambda: self.commit(fence), self.skew,
             self.finish_a_job),
            weights=(3, 1, 2, 8, 2, 1),
        )[0]  # fmt: skip
        with suppress(*_EXPECTED):
            doing()

    def get(self) -> None:
        key = self._key()
        self._note(key, self._backend.get(key, deadline=_soon()))

    def get_many(self) -> None:
        keys = [f"load/k{number}" for number in range(KEYS)]
        for key, found in zip(keys, self._backend.get_many(keys, deadline=_soon()), strict=True):
            if not isinstance(found, CorruptRecord):
                self._note(key, found)

    def scan(self) -> None:
        limit, after = self._rng.choice((None, 2, 3)), self._rng.choice((None, self._key()))
        for record in self._backend.scan("load/", after=after, limit=limit, deadline=_soon()):
            self._note(record.key, record)

    def commit(self, fence: Fence | None = None) -> None:
        """Change one key, or two at once."""
        keys = self._rng.sample(range(KEYS), self._rng.choice((1, 1, 2)))
        ops = [self._op(f"load/k{number}") for number in keys]
        for op in ops:
            self._seen.pop(op.key, None)
        self._backend.commit(*ops, fence=fence, deadline=_soon())

    def skew(self) -> None:
        """Write each of two keys if the other one is unchanged, at the same moment."""
        keys = "pair/a", "pair/b"
        ops: list[tuple[Op, Op]] = []
        found = self._backend.get_many(keys, deadline=_soon())
        for ours, other in ((0, 1), (1, 0)):
            mine, others = found[ours], found[other]
            if isinstance(mine, Record) and isinstance(others, Record):
                write: Op = Update(keys[ours], self._value(), mine.version)
                ops.append((write, Check(keys[other], others.version)))
            else:
                ops.append((Create(keys[ours], self._value()), Absent(keys[other])))
        ended = [self._backend.commit_async(*each) for each in ops]
        for future in ended:
            with suppress(*_EXPECTED):
                future.result(CALL_TIMEOUT)
        self._backend.get_many(keys, deadline=_soon())
        if self._rng.random() < 0.1:
            self._backend.commit(Delete(self._rng.choice(keys)), deadline=_soon())
        for key in keys:
            with suppress(*_EXPECTED):
                self._backend.commit(Create(key, self._value()), deadline=_soon())

    def finish_a_job(self) -> None:
        """Record a result of a job that others record, too; let some be clean, and some expire."""
        job_id = f"job{int(time.monotonic() * 4) % 1000}"
        store = JobResultStore(self._backend)
        now = time.time()
        store.create_dirty(
            JobResult(job_id, JobStatus.FINISHED, payload=self._value().decode(), attempt=1,
                      epoch=1, started_at=now, finished_at=now),
            None,
        )  # fmt: skip
        store.mark_clean(job_id, None)
        with suppress(NoSuchResult, ResultIsDirty):
            store.get(job_id)
            if self._rng.random() < 0.3:
                store.delete(job_id)

    def once(self) -> None:
        """Write a key that nobody else writes, and remove it."""
        key = f"once/{uuid.uuid4().hex}"
        with suppress(*_EXPECTED):
            self._backend.commit(Create(key, self._value()), deadline=_soon())
            self._backend.commit(Delete(key), deadline=_soon())

    def _op(self, key: str) -> Op:
        version = self._seen.get(key)
        if version is None:
            made = self._backend.get(key, deadline=_soon()) if self._rng.random() < 0.6 else None
            if made is None:
                return Create(key, self._value())
            version = made.version
        kind = self._rng.choices(("update", "delete", "check", "remove"), weights=(6, 2, 1, 1))[0]
        if kind == "update":
            return Update(key, self._value(), version)
        if kind == "check":
            return Check(key, version)
        return Delete(key, version if kind == "delete" else None)

    def _note(self, key: str, found: Record | None) -> None:
        self._seen[key] = None if found is None else found.version

    def _key(self) -> str:
        return f"load/k{self._rng.randrange(KEYS)}"

    def _value(self) -> bytes:
        self._count += 1
        return f"{self._name}.{os.getpid()}.{self._count}".encode()


def _soon() -> Deadline:
    return Deadline.after(CALL_TIMEOUT)


def lead(backend: Backend, client: Client, over: threading.Event) -> None:
    """Lead again and again; write with the fence, then with the old one when another one leads."""
    while not over.is_set():
        with suppress(*_EXPECTED):
            leadership = backend.campaign(client._name, ttl=TTL, stop=over)
            if leadership is None:
                return
            with leadership:
                for _ in range(10):
                    client.act(leadership.fence)
            for _ in range(60):
                client.act(leadership.fence)


def listen(backend: Backend, over: threading.Event) -> None:
    """Ask a watch again and again."""
    while not over.is_set():
        with suppress(*_EXPECTED), backend.watch("") as watch:
            while not over.is_set():
                watch.changes(0.05)


def be_client(seconds: float, quiet: float) -> None:
    """Be one process of the load."""
    name = os.environ["JRS_CHAOS_NAME"]
    with open_backend(os.environ["JRS_BACKEND"], cluster=os.environ["JRS_CLUSTER"]) as backend:
        stop, over = threading.Event(), threading.Event()

        def client(part: str) -> Client:
            return Client(backend, f"{name}{part}", Random(f"{name}{part}"))

        def work(client: Client) -> None:
            while not stop.is_set():
                client.act()

        tasks: list[Callable[[], None]] = [
            lambda: lead(backend, client("l"), stop),
            lambda: work(client("t")),
            lambda: listen(backend, over),
        ]
        threads = [threading.Thread(target=task) for task in tasks]
        for thread in threads:
            thread.start()
        end, main = time.monotonic() + seconds, client("m")
        while time.monotonic() < end:
            main.act()
            main.once()
        stop.set()
        end += quiet
        while time.monotonic() < end:
            main.once()
            time.sleep(1.0)  # A load of one change each second, so that no watch is silent.
        over.set()
        for thread in threads:
            thread.join()


def orders(job: Job, rest: float, dies: str) -> dict[str, int]:
    """Write some files slowly, and count them in another stage, which takes its time."""

    def die(here: str) -> None:
        if dies == here and job.attempt == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    def write(stage: Any) -> int:
        for number in range(FILES):
            if number == FILES // 2:
                die("write")
            time.sleep(WRITING / FILES)  # The work.
            (stage.output / uuid.uuid4().hex).write_text("1")
        return 1

    written = job.stage("write", write)

    def count(stage: Any) -> int:
        die("count")
        time.sleep(rest)  # More work, which nothing interrupts but a kill.
        return len(list(written.output.iterdir()))

    return {"files": job.stage("count", count).result()}


def run(settings: Settings, folder: Path) -> dict[str, str]:
    """Run the load in a world of its own; return what each check found first."""
    nemesis = eval(settings.nemesis, {**nemeses.ALL, "Nemesis": nemeses.Nemesis})
    clients, jobs = settings.load == "clients", settings.load == "jobs"
    plan = Plan(
        masters=2 if jobs else 0,
        backend=settings.backend,
        seconds=settings.seconds + settings.quiet + 10.0 if clients else settings.seconds,
        seed=settings.seed,
        nemesis=nemesis,
        ttl=TTL,
        members=settings.members,
        timeout=settings.timeout,
    )
    checks = [fenced, linearizable, serializable, outcomes, watched, once_per_job]
    try:
        with World(plan, settings.backend, folder) as world:
            if jobs:
                world.submit("orders", orders, copies=COPIES, rest=settings.rest,
                             dies=settings.dies)  # fmt: skip
                checks += [no_overlap, nothing_lost, once_per_stage, nothing_left, protocol]
                checks.append(output_equals({"orders": {"files": FILES}}))
            elif settings.load == "lists":
                world.append(programs=CLIENTS)
                checks.append(list_append)
            else:
                command = [sys.executable, __file__, "client", str(settings.seconds),
                           str(settings.quiet)]  # fmt: skip
                world.driver(command, replicas=CLIENTS)
            world.check(*checks)
            figures = world.figures()
            print(figures, file=sys.stderr)
    except ChaosFailure as failure:
        found: dict[str, str] = {}
        for violation in failure.violations:
            found.setdefault(violation.check, violation.message)
        return found
    return {}


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    if what == "client":
        be_client(*map(float, rest))
    else:
        print(json.dumps(run(Settings(**json.loads(rest[0])), Path(rest[1]))))
