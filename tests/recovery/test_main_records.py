"""What the leader makes of what `main` raises and returns, and of a backend that is away."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import jrs
from jrs.contract.clock import Deadline
from jrs.contract.errors import Fenced, JrsError, OutcomeUnknown, Unavailable
from jrs.contract.operations import Create, Record
from jrs.records import keys
from jrs.records.history import HistoryKind
from jrs.recovery import application, leading_replica
from jrs.recovery.leader import loss_guard, process_end
from jrs.recovery.leader.process_end import EXIT_DEPOSED
from jrs.store import applications, history
from jrs.store.result_store import JobResultStore
from tests.recovery.support import CLUSTER, Faulty
from tests.support import BOUND

NAME = "nightly"
Run = Callable[..., Any]


@pytest.fixture
def opened(faulty: Faulty, monkeypatch: pytest.MonkeyPatch) -> Faulty:
    """The backend that `jrs.run` opens, with faults."""
    monkeypatch.setattr(application, "open_backend", lambda url, cluster: faulty)
    return faulty


@pytest.fixture
def run(opened: Faulty, root: Path) -> Run:
    def run(main: Callable[..., Any], **options: Any) -> Any:
        options.setdefault("name", NAME)
        return jrs.run(main, opened.url, cluster=CLUSTER, storage=root, ttl=30.0, **options)

    return run


def fail_next_read(backend: Faulty, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the next read of a key fail that this thread makes; the leader's threads read it."""
    original, here, left = backend._get, threading.get_ident(), [key]

    def get(wanted: str, deadline: Deadline) -> Record | None:
        if left == [wanted] and threading.get_ident() == here:
            left.clear()
            raise Unavailable("injected")
        return original(wanted, deadline)

    monkeypatch.setattr(backend, "_get", get)


def test_an_exception_of_main_whose_text_cannot_be_read(
    open_faulty: Callable[[], Faulty], run: Run
) -> None:
    """It is raised and recorded as any other."""
    other = open_faulty()

    class Unreadable(Exception):
        def __str__(self) -> str:
            raise ConnectionError("no JVM answers")

    def main(driver: jrs.Driver) -> None:
        raise Unreadable

    with pytest.raises(Unreadable):
        run(main)

    said = [one.text for one in history.read(other, NAME)]
    assert any("Unreadable: its text cannot be read" in text for text in said), said


@pytest.mark.parametrize("error", [Unavailable, OutcomeUnknown, Fenced])
def test_an_error_of_another_cluster_is_of_main(
    open_faulty: Callable[[], Faulty],
    run: Run,
    error: type[JrsError],
) -> None:
    """Main may have a client of its own, whose errors are those of jrs. Such an error is raised
    here and recorded, as any exception of main; main does not begin again by itself."""
    other, calls = open_faulty(), list[int]()

    def main(driver: jrs.Driver) -> None:
        calls.append(driver.epoch)
        raise error("the other cluster does not answer")

    with pytest.raises(error, match="the other cluster"):
        run(main)

    assert calls == [1]
    record = applications.of_name(other, NAME)
    assert record is not None
    assert record.error == f"{error.__name__}: the other cluster does not answer"


@pytest.mark.parametrize("grouped", [False, True], ids=["alone", "in a group"])
def test_an_error_of_the_drivers_own_calls_ends_the_leadership(
    open_faulty: Callable[[], Faulty], run: Run, monkeypatch: pytest.MonkeyPatch, grouped: bool
) -> None:
    """What `driver.check` raises is none of main: main begins again once the backend answers. So it
    is where main calls it in a task group."""
    other, calls = open_faulty(), list[int]()

    def no_answer(job_id: str) -> bool:
        raise Unavailable("injected")

    def main(driver: jrs.Driver) -> str:
        calls.append(driver.epoch)
        if len(calls) == 1:
            monkeypatch.setattr(driver._results, "has_entry", no_answer)
            asyncio.run(checks(driver)) if grouped else driver.check()
        return "done"

    async def checks(driver: jrs.Driver) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.to_thread(driver.check))

    assert run(main) == "done"
    assert calls == [1, 2]
    assert HistoryKind.DIED.value not in {event.kind for event in history.read(other, NAME)}


@pytest.mark.parametrize("read", [keys.APPLICATIONS + NAME, keys.RESULTS + NAME])
def test_a_computed_result_is_kept_while_the_backend_is_away(
    opened: Faulty, run: Run, read: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Main has returned: whatever read fails then is repeated, and main does not run again."""
    calls: list[int] = []

    def main(driver: jrs.Driver) -> int:
        calls.append(driver.epoch)
        fail_next_read(opened, read, monkeypatch)
        return 42

    assert run(main) == 42
    assert calls == [1]


@pytest.mark.parametrize(
    ("error", "after"), [(Unavailable, False), (OutcomeUnknown, False), (OutcomeUnknown, True)]
)
def test_a_run_waits_for_the_backend(
    opened: Faulty, run: Run, error: type[JrsError], after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a read nor the submission of `driver.run` ends main, and the job runs once."""
    calls: list[str] = []

    def main(driver: jrs.Driver) -> Any:
        calls.append("main")
        fail_next_read(opened, keys.RESULTS + "job", monkeypatch)
        opened.fault(keys.JOBS + "job", error, kind=Create, times=1, after=after)
        return driver.run("job", lambda job: calls.append("job"))

    assert run(main) is None
    assert calls == ["main", "job"]


@pytest.mark.parametrize("hangs", ["record_result", "_finish_cleanup"])
def test_a_main_that_has_returned_does_not_end_the_process(
    run: Run, hangs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leadership is lost while jrs itself waits for the backend: no user code runs on."""
    exits, calls, original = list[int](), list[int](), getattr(leading_replica, hangs)
    monkeypatch.setattr(process_end, "_exit", exits.append)
    monkeypatch.setattr(loss_guard, "_GRACE_LOST", 0.0)

    def hang(*given: Any, **more: Any) -> Any:
        lost = given[-1] if hangs == "record_result" else given[-1].lost
        (guard,) = [one for one in threading.enumerate() if one.name == "jrs-guard-e1"]
        lost.set()
        guard.join(BOUND)
        assert not guard.is_alive()
        return original(*given, **more)

    def main(driver: jrs.Driver) -> int:
        calls.append(driver.epoch)
        monkeypatch.setattr(leading_replica, hangs, hang)
        return 42

    assert run(main) == 42
    assert calls == [1]
    assert exits == []


DEAF = """
import sys, threading, time
import jrs
from jrs.recovery.cleanup import remaining
from jrs.recovery.leader import loss_guard

running = threading.Event()

def deaf(job):
    running.set()
    while True:
        time.sleep(0.01)

def main(driver):
    threading.Thread(target=driver.run, args=("deaf", deaf), daemon=True).start()
    running.wait(60)
    remaining._PATIENCE = loss_guard._GRACE = 0.0
    if sys.argv[2:]:
        raise ValueError(*sys.argv[2:])
    return 42

print(jrs.run(main, sys.argv[1], name="nightly", ttl=30.0))
"""


def test_a_main_that_has_returned_next_to_a_job_that_does_not_end(tmp_path: Path) -> None:
    """The process ends, with what main returned in the store. The next one returns that, and the
    job is CANCELED only now that it runs no more."""
    url = (tmp_path / "store").as_uri()

    def run() -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-c", DEAF, url], stdout=subprocess.PIPE, text=True, timeout=120
        )
        return done.returncode, done.stdout

    assert run() == (EXIT_DEPOSED, "")
    with jrs.connect(url) as client:
        assert client.job(NAME).result(timeout=0).payload == 42
        assert client.job("deaf").status() is jrs.JobStatus.RUNNING
        assert run() == (0, "42\n")
        assert client.job("deaf").result(timeout=0).status is jrs.JobStatus.CANCELED


def test_a_main_that_raises_next_to_a_job_that_does_not_end(tmp_path: Path) -> None:
    """The process says, before it ends, what runs on and what main raised: no code of the program's
    own runs any more, and nothing has configured logging."""
    url = (tmp_path / "store").as_uri()
    done = subprocess.run(
        [sys.executable, "-c", DEAF, url, "the source is gone"],
        stderr=subprocess.PIPE, text=True, timeout=120,
    )  # fmt: skip

    assert done.returncode == EXIT_DEPOSED
    first, *_, last = done.stderr.splitlines()
    assert first.startswith("jrs: job 'deaf' did not end, so this process ends itself, with exit")
    assert last == "ValueError: the source is gone"


def test_a_result_is_stored_once_if_its_outcome_is_unknown(
    open_faulty: Callable[[], Faulty], opened: Faulty, run: Run
) -> None:
    """The commit that was made although no answer came is recognized as this one."""
    other = open_faulty()
    opened.fault(keys.RESULTS + NAME, OutcomeUnknown, kind=Create, times=1, after=True)

    assert run(lambda driver: 42) == 42
    assert JobResultStore(other).wait(NAME).payload == 42
    ended = [one for one in history.read(other, NAME) if one.kind == HistoryKind.ENDED.value]
    assert len(ended) == 1
