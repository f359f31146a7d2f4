"""A host that has no thread left for a moment: what could not begin is tried again, and no more."""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from pathlib import Path

import pytest

import jrs
from jrs.backends.file.backend import FileBackend
from jrs.contract.backend import Backend
from jrs.contract.clock import Deadline
from jrs.contract.errors import Unavailable
from jrs.contract.leadership import Leadership
from jrs.contract.pool import Pool, ThreadPool
from jrs.contract.runtime import Runtime, daemon, random_token, start_thread
from jrs.records.model import JobStatus
from jrs.recovery.attempt.context import AttemptContext
from jrs.recovery.attempt.reporter import ignore
from jrs.recovery.attempt.runners.process import ProcessRunner
from jrs.recovery.attempt.runners.reports import Reports
from jrs.recovery.attempt_main import PROGRAM
from jrs.recovery.files.job_folders import JobStorage
from jrs.recovery.leader.dispatcher import Dispatcher
from jrs.recovery.master import Master
from jrs.recovery.processes import marks
from jrs.recovery.processes.last_words import LastWords
from jrs.recovery.rules.events import Event
from jrs.store.jobs import JobCatalog
from jrs.testing.contract import lead
from tests.recovery.support import CLUSTER, FaultyMemory, Leader, spec
from tests.support import BOUND, descriptors, until

Lacking = Callable[..., None]


@pytest.fixture
def lacking(monkeypatch: pytest.MonkeyPatch) -> Lacking:
    """Have so many threads whose names begin so not start."""
    start = threading.Thread.start

    def lacking(name: str, times: int) -> None:
        left = [name] * times

        def start_or_not(thread: threading.Thread) -> None:
            if left and thread.name.startswith(name):
                left.pop()
                raise RuntimeError("can't start new thread")
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", start_or_not)

    return lacking


def test_a_pool_without_a_thread(lacking: Lacking) -> None:
    """The work is refused, and the pool is as large as before."""
    lacking("p", 3)
    pool, ran = Pool("p", 1, Runtime()), threading.Semaphore(0)

    def refused() -> None:
        pytest.fail("it was refused")

    for _ in range(3):
        with pytest.raises(RuntimeError):
            pool.submit(refused)

    pool.submit(ran.release)

    assert ran.acquire(timeout=BOUND)
    pool.close()
    assert pool.join(Deadline.after(BOUND))


def test_a_pool_with_one_thread_of_two(lacking: Lacking) -> None:
    """The thread that lives does the work, if later."""
    pool, ran, goes_on = Pool("p", 2, Runtime()), threading.Semaphore(0), threading.Event()

    def wait() -> None:
        goes_on.wait()

    pool.submit(wait)
    lacking("p", 1)
    pool.submit(ran.release)
    goes_on.set()

    assert ran.acquire(timeout=BOUND)
    pool.close()
    assert pool.join(Deadline.after(BOUND))


def test_an_executor_without_a_thread(lacking: Lacking) -> None:
    """The call is refused, and not made later."""
    lacking("p", 1)
    calls: list[int] = []
    with ThreadPool(2, "p") as pool:
        with pytest.raises(RuntimeError, match="can't start new thread"):
            pool.submit(calls.append, 1)
        pool.submit(calls.append, 2).result(BOUND)

    assert calls == [2]


def test_an_executor() -> None:
    """It does what `ThreadPoolExecutor` does, and asyncio takes it."""

    async def ask() -> str:
        asyncio.get_running_loop().set_default_executor(pool)
        return await asyncio.to_thread(lambda: threading.current_thread().name)

    goes_on = threading.Event()
    with ThreadPool(1, "p") as pool:
        waits = pool.submit(goes_on.wait, BOUND)
        raises = pool.submit(int, "x")
        later = pool.submit(int, "7", base=8)
        goes_on.set()

        assert list(pool.map(len, ["", "a"])) == [0, 1]
    assert waits.result(0)
    assert isinstance(raises.exception(0), ValueError)
    assert later.result(0) == 7
    with pytest.raises(RuntimeError):
        pool.submit(len, "")

    both = threading.Barrier(2, timeout=BOUND)
    with ThreadPool(1, "p") as pool:
        runs, canceled = pool.submit(lambda: [both.wait(), both.wait()]), pool.submit(len, "")
        both.wait()
        pool.shutdown(wait=False, cancel_futures=True)
        both.wait()
    assert runs.exception(0) is None
    assert canceled.cancelled()

    pool = ThreadPool(1, "p")
    assert asyncio.run(ask()) == "p-0"


class Weak:
    """What a pool may keep alive."""


def test_what_an_executor_lets_go() -> None:
    """Neither an idle thread nor an error keeps what a call was given or has returned."""

    def fails(given: Weak) -> Weak:
        raise ValueError(given)

    def same(given: Weak) -> Weak:
        return given

    gc.disable()  # What is in a cycle stays.
    try:
        with ThreadPool(1, "p") as pool:
            held = [Weak(), Weak()]
            known = [weakref.ref(one) for one in held]
            futures: list[Future[Weak]] = [
                pool.submit(fails, held[0]),
                pool.submit(same, held[1]),
            ]
            wait_for(futures)
            assert isinstance(futures[0].exception(), ValueError)
            futures.clear()
            held.clear()
            until(lambda: not any(one() for one in known), "nothing is kept")
    finally:
        gc.enable()


def test_a_pool_without_memory_for_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The work is refused as it is without a thread, and not done later."""
    runtime, calls = Runtime(), list[int]()
    pool = Pool("p", 1, runtime)

    def no_memory(*args: object) -> threading.Thread:
        raise MemoryError

    make = pool._thread
    monkeypatch.setattr(pool, "_thread", no_memory)
    with pytest.raises(RuntimeError, match="MemoryError"):
        pool.submit(lambda: calls.append(1))
    monkeypatch.setattr(pool, "_thread", make)
    pool.submit(lambda: calls.append(2))

    pool.close(drop=False)
    assert pool.join(Deadline.after(BOUND))
    assert calls == [2]


def test_a_leader_without_a_thread_for_a_start(
    memory: FaultyMemory, root: Path, lacking: Lacking
) -> None:
    """The job is tried again: it was never looked at once more."""
    lacking("jrs-start", 2)
    with Leader(memory, root) as leader:
        JobCatalog(memory).submit(spec("job"))
        leader.until_said("error", "job", "can't start new thread")
        leader.runner.of("job").finish()

        assert leader.store.wait("job", BOUND).status is JobStatus.FINISHED


def test_what_to_do_on_a_host_without_threads(lacking: Lacking) -> None:
    """The error says it, whatever part of a process could not begin."""
    lacking("jrs-warm", 1)
    with pytest.raises(Unavailable, match=r"jrs-warm: can't start new thread: raise .*ulimit -u"):
        start_thread(daemon(lambda: None, "jrs-warm"))


def test_a_thread_without_memory() -> None:
    """Its caller is told so, and does not wait for it: the system has a stack for it, that of a
    thread which has ended, but Python has no memory for its first line."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_MEMORY], capture_output=True, text=True, timeout=BOUND
    )

    assert "jrs-short: can't start new thread: out of memory" in done.stdout, done.stderr
    assert done.returncode == 0, done.stderr


WITHOUT_MEMORY = """
import mmap
import os
import resource
import threading
from contextlib import suppress
from pathlib import Path
from jrs.contract.errors import Unavailable
from jrs.contract.runtime import daemon, start_thread

ended = daemon(lambda: None, "jrs-ended")
start_thread(ended)
ended.join()
while len(os.listdir("/proc/self/task")) > 1:
    pass
spare = [bytearray(1024) for _ in range(64)]
size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size, size))
pages = []
with suppress(OSError):
    while True:
        pages.append(mmap.mmap(-1, 16 << 10))
del spare  # Enough for what the one that starts it allocates.
try:
    start_thread(daemon(lambda: None, "jrs-short"))
except Unavailable as error:
    print(error)
del pages  # Imports need memory.
assert threading.enumerate() == [threading.main_thread()]
"""


def test_no_thread_for_last_words(tmp_path: Path, lacking: Lacking) -> None:
    """Nothing in the process has changed; the next attempt has all of it."""
    lacking("jrs-last-words", 1)
    words, exits = LastWords(tmp_path, 1), os._exit
    before = descriptors()
    was_enabled = faulthandler.is_enabled()
    with pytest.raises(RuntimeError), words.attempt("job", 60.0):
        pytest.fail("it cannot begin")

    assert descriptors() <= before
    assert os._exit is exits
    assert faulthandler.is_enabled() == was_enabled

    with words.attempt("job", 60.0):
        assert "jrs-last-words" in {thread.name for thread in threading.enumerate()}
        assert os._exit is not exits
    words.farewell()
    assert os._exit is exits


def test_no_thread_for_reports(lacking: Lacking) -> None:
    """No descriptor stays open, and the next attempt is heard."""
    lacking("jrs-attempt-reports", 1)
    reports = Reports()
    before = descriptors()
    with pytest.raises(RuntimeError):
        reports.open(ignore)
    assert descriptors() <= before

    pipe = reports.open(ignore)
    os.close(pipe.writing)
    until(lambda: not pipe.is_open, "its end is heard")
    reports.end()


def test_no_thread_for_an_attempt(memory: FaultyMemory, root: Path, lacking: Lacking) -> None:
    """Nothing of it stays, although its process was started: no process, no open descriptor."""
    lacking("jrs-attempt-job", 1)
    storage = JobStorage(root, CLUSTER)
    with lead(memory) as leadership:
        context = AttemptContext(
            spec("job"), 1, leadership.fence, memory, storage, 0.0, mark=random_token()
        )
        before = descriptors()
        with ProcessRunner(memory.url, PROGRAM) as runner, pytest.raises(RuntimeError):
            runner.start(context, None, lambda ended: None)

        assert marks.marked(marks.marks_of(context.mark)) == []
        assert descriptors() <= before


@pytest.mark.parametrize("name", ["jrs-lease", "jrs-heartbeat"])
def test_a_candidate_without_a_thread_for_its_lease(
    tmp_path: Path, lacking: Lacking, name: str
) -> None:
    """The master campaigns again, and does not say that the backend is away."""
    lacking(name, 1)
    with FileBackend(tmp_path / "store") as backend:
        events = _led(backend, tmp_path / "storage", lambda: None)

    assert events.count("waiting") == 1


@pytest.mark.parametrize("name", ["jrs-guard", "jrs-dispatcher", "jrs-hints"])
def test_a_leader_without_a_thread_that_it_needs(
    memory: FaultyMemory, root: Path, lacking: Lacking, name: str
) -> None:
    """It resigns, and campaigns again: the master ended."""
    events = _led(memory, root, lambda: lacking(name, 1))

    assert events.count("elected") == 2
    assert events.count("resigned") == 2
    assert events.count("waiting") == 1


@pytest.mark.parametrize("name", ["jrs-retention", "jrs-feed"])
def test_a_leader_without_a_thread_for_what_nothing_waits_for(
    memory: FaultyMemory, root: Path, lacking: Lacking, name: str
) -> None:
    """It leads without it, says so once, and has it as soon as the host has a thread."""

    def work_begins() -> None:
        until(lambda: name in {thread.name for thread in threading.enumerate()}, "it has a thread")

    events = _led(memory, root, lambda: lacking(name, 2), work_begins)

    assert events.count("elected") == events.count("error") == 1


@pytest.mark.parametrize("name", ["jrs-standby", "jrs-registry", "jrs-switchover"])
def test_a_replica_without_a_thread_at_its_start(
    tmp_path: Path, lacking: Lacking, name: str
) -> None:
    """It raises an error of jrs, and leaves nothing behind; the next call runs main."""
    lacking(name, 1)
    url, calls = (tmp_path / "store").as_uri(), list[int]()

    def main(driver: jrs.Driver) -> None:
        calls.append(driver.epoch)

    with pytest.raises(Unavailable, match=name):
        jrs.run(main, url, name="app")
    assert "jrs-standby" not in {thread.name for thread in threading.enumerate()}
    assert calls == []

    jrs.run(main, url, name="app")
    assert calls == [1]


def _led(
    backend: Backend,
    root: Path,
    lack: Callable[[], None],
    while_it_leads: Callable[[], None] = lambda: None,
) -> list[str]:
    """Return the kinds of the events of a master that leads once, short of threads at first."""
    events: list[Event] = []
    stop, led = threading.Event(), threading.Event()

    def report(event: Event) -> None:
        if event.kind == "elected" and not events:
            lack()
        events.append(event)

    def lead(dispatcher: Dispatcher, leadership: Leadership, stop: threading.Event) -> bool:
        while_it_leads()
        led.set()
        return True

    Master(backend, url=backend.url, storage=root, report=report).run(stop, lead)

    assert led.is_set()
    for event in events:
        assert event.kind != "waiting" or event.message.startswith("jrs-")
    return [event.kind for event in events]
