"""A storage that hangs takes only what touches it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import pytest

from jrs.client.connection import Connection
from jrs.client.job import JobHandle
from jrs.client.logs import LogPart
from jrs.contract.errors import NotFound, Unavailable
from jrs.sidecar import probes, storage_threads
from jrs.sidecar.routes import ROUTES
from jrs.sidecar.storage_threads import MOST, StorageThreads
from tests.sidecar.conftest import Served
from tests.support import BOUND, until

JOB = {"id": "nightly", "entry": "etl.jobs:nightly"}
BODY: dict[str, Any] = {
    "as_id": "new", "entry": "etl.jobs:nightly", "format": "full", "id": "other",
    "partitions": 8,
}  # fmt: skip
STREAMS = ("/v1/events", "/v1/jobs/nightly/events", "/v1/history/events")


@contextmanager
def asked(served: Served, path: str, times: int) -> Iterator[list[int]]:
    """Ask so often at once; after the block, all statuses are there."""
    statuses: list[int] = []
    threads = [
        threading.Thread(target=lambda: statuses.append(served.get(path).status))
        for _ in range(times)
    ]
    for thread in threads:
        thread.start()
    yield statuses
    for thread in threads:
        thread.join(BOUND)
    assert len(statuses) == times


def hanging(real: Callable[..., Any], begun: list[str], answers: threading.Event) -> Any:
    def hangs(*given: Any, **named: Any) -> Any:
        begun.append(threading.current_thread().name)
        answers.wait(BOUND)
        return real(*given, **named)

    return hangs


def test_a_storage_that_hangs(
    served: Served, closing: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What needs only the backend is answered; what touches the storage as well is refused with a
    503 once as many requests wait for it as may; all are answered when the storage is."""
    monkeypatch.setattr(storage_threads, "_PATIENCE", 0.2)
    served.post("/v1/jobs", JOB)
    begun, answers = list[str](), threading.Event()
    closing.callback(answers.set)
    hangs = hanging(Connection.storage, begun, answers)
    monkeypatch.setattr(Connection, "storage", hangs)

    with asked(served, "/v1/jobs/nightly/log", MOST) as statuses:
        until(lambda: len(begun) == MOST, "all wait for the storage")
        for path in ("/v1/jobs/nightly/log", "/v1/jobs/nightly/snapshots", "/jobs/nightly"):
            assert served.get(path).status == 503, path
        for path in ("/v1/jobs/nightly", "/v1/cluster", "/readyz", "/metrics", "/", "/jobs"):
            assert served.get(path).status == 200, path
        assert served.get("/v1/jobs/nightly/result").status == 202
        assert not statuses
        answers.set()
    assert statuses == [404] * MOST
    assert served.get("/jobs/nightly").status == 200


def test_no_other_route_touches_the_storage(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call that asks for the storage does so in a thread for it."""
    touched: list[tuple[str, str]] = []
    route = ""
    for name in ("storage", "known_storage"):
        real = getattr(Connection, name)

        def noted(connection: Connection, real: Any = real) -> Any:
            touched.append((route, threading.current_thread().name))
            return real(connection)

        monkeypatch.setattr(Connection, name, noted)
    served.post("/v1/jobs", JOB)
    for one in ROUTES:
        route = f"{one.method} {one.path}"
        body = {param.name: BODY[param.name] for param in one.body if param.name in BODY}
        where = one.path.format(id="nightly", snapshot=1, stage="s")
        if where not in STREAMS:
            served.ask(one.method, where, body if one.method == "POST" else None)
    for route in ("/", "/jobs", "/jobs/nightly"):
        served.get(route)
    assert {thread for _, thread in touched} == {"jrs-storage"}
    flagged = {f"{one.method} {one.path}" for one in ROUTES if one.on_storage}
    # A log is a stream, which runs its calls there itself.
    assert {path for path, _ in touched} == {*flagged, "/jobs/nightly", "GET /v1/jobs/{id}/log"}


def test_a_thread_is_free_once_its_call_has_ended() -> None:
    """Not when the caller has gone, whose call may still hang; also after an error, and where the
    host has no thread."""

    async def run() -> None:
        threads, answers = StorageThreads(1), threading.Event()
        gone = asyncio.create_task(threads.run(lambda: answers.wait(BOUND)))
        await asyncio.sleep(0)
        gone.cancel()
        with pytest.raises(Unavailable, match="does not answer earlier requests"):
            await threads.run(lambda: True)
        answers.set()
        while True:
            try:
                assert await threads.run(lambda: 7) == 7
                break
            except Unavailable:
                continue
        for _ in range(2):
            with pytest.raises(RuntimeError, match="of the call"):
                await threads.run(lambda: _raise("of the call"))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(threading.Thread, "start", lambda self: _raise("can't start new thread"))
            for _ in range(2):
                with pytest.raises(Unavailable, match="no thread left"):
                    await threads.run(lambda: 8)
        assert await threads.run(lambda: 9) == 9

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage_threads, "_PATIENCE", 0.2)
        asyncio.run(run())


def _raise(text: str) -> Any:
    raise RuntimeError(text)


class Loop(asyncio.SelectorEventLoop):
    """A loop whose time is ahead."""

    ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead


def test_a_storage_that_is_only_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call waits as long as others end, and is refused once none does."""
    monkeypatch.setattr(storage_threads, "_PATIENCE", 1000.0)
    loop, begun = Loop(), list[int]()
    answers = [threading.Event() for _ in range(3)]

    def call(number: int) -> int:
        begun.append(number)
        answers[number].wait(BOUND)
        return number

    async def passes(seconds: float) -> None:
        loop.ahead += seconds
        for _ in range(5):
            await asyncio.sleep(0)

    async def run() -> None:
        threads = StorageThreads(1)
        calls = [asyncio.create_task(threads.run(partial(call, n))) for n in range(3)]
        refused = asyncio.create_task(threads.run(lambda: 3))
        for number in range(2):
            await passes(700.0)
            answers[number].set()
            assert await calls[number] == number
            while number + 1 not in begun:
                await asyncio.sleep(0.001)
        await passes(700.0)
        assert not refused.done()
        await passes(700.0)
        with pytest.raises(Unavailable, match="does not answer earlier requests"):
            await refused
        answers[2].set()
        assert await calls[2] == 2

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(run())


def test_a_download_is_not_cut_off(
    served: Served, closing: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer that has begun waits for its next part for as long as others take."""
    monkeypatch.setattr(storage_threads, "_PATIENCE", BOUND)
    served.post("/v1/jobs", JOB)
    calls, bodies = list[Any](), list[bytes]()
    goes_on, answers = threading.Event(), threading.Event()
    closing.callback(answers.set)
    closing.callback(goes_on.set)
    run = StorageThreads.run

    async def counted(self: StorageThreads, call: Any, **how: Any) -> Any:
        calls.append(call)
        return await run(self, call, **how)

    def parts() -> Iterator[LogPart]:
        goes_on.wait(BOUND)
        yield LogPart(1, "out", b"one ")
        yield LogPart(1, "out", b"two")

    def logs(job: JobHandle, *, tail: int | None, **given: Any) -> Iterator[LogPart]:
        if tail is None:
            return parts()
        answers.wait(BOUND)
        raise NotFound("no logs")

    monkeypatch.setattr(StorageThreads, "run", counted)
    monkeypatch.setattr(JobHandle, "logs", logs)
    path = "/v1/jobs/nightly/log"
    download = threading.Thread(target=lambda: bodies.append(served.get(f"{path}?stream=out").body))
    download.start()
    until(lambda: len(calls) == 2, "the download asks for its first part")
    with asked(served, f"{path}?tail=1", MOST) as statuses:
        until(lambda: len(calls) == 2 + MOST, "the last of the others waits for a thread")
        monkeypatch.setattr(storage_threads, "_PATIENCE", 0.05)
        goes_on.set()
        until(lambda: len(calls) == 3 + MOST, "the download asks for its second part")
        assert served.get(f"{path}?tail=1").status == 503
        answers.set()
        download.join(BOUND)
    assert bodies == [b"one two"]
    assert statuses == [404] * MOST


def test_readiness_in_time(
    served: Served, closing: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backend that answers no deadline is reported, as one that is away, while it hangs."""
    monkeypatch.setattr(probes, "_PATIENCE", 0.2)
    begun, answers = list[str](), threading.Event()
    closing.callback(answers.set)
    backend = type(served.client.backend)
    monkeypatch.setattr(backend, "get", hanging(backend.get, begun, answers))
    assert served.get("/readyz").status == 503
    assert served.get("/readyz").status == 503
    # The thread that looks for changes may have asked, too.
    assert len([name for name in begun if name != "jrs-changes"]) == 1
    answers.set()
    until(lambda: served.get("/readyz").status == 200, "the backend answers")
