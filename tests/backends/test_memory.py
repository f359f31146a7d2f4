"""The memory backend: how long a map lasts, and whose it is."""

from __future__ import annotations

import gc
import multiprocessing
import threading
import uuid
import weakref
from collections.abc import Callable
from functools import partial

import attrs
import pytest

from jrs.backends.memory import MemoryBackend, _spaces, open_memory
from jrs.contract.errors import WrongProcess
from jrs.contract.leadership import Leadership
from jrs.contract.operations import Create
from jrs.contract.watch import Watch
from jrs.testing.contract import contents, lead
from tests.support import BOUND


def test_a_private_map_ends_with_its_handles() -> None:
    """Each one stayed until the end of the process."""
    first = open_memory("memory://", "c")
    first.commit(Create("k", b"v"))
    second, space = open_memory(first.url, "c"), weakref.ref(first.space)
    first.close()
    del first
    assert contents(second) == {"k": b"v"}
    second.close()
    del second
    gc.collect()
    assert space() is None


def test_a_map_with_a_name_stays() -> None:
    """As a store does that nobody has open."""
    url = "memory://test-a-map-with-a-name-stays"
    with open_memory(url, "c") as backend:
        backend.commit(Create("k", b"v"))
    del backend
    gc.collect()
    with open_memory(url, "c") as again:
        assert contents(again) == {"k": b"v"}


@attrs.frozen
class Held:
    """What the parent of a forked child has."""

    backend: MemoryBackend
    watch: Watch
    leadership: Leadership


def _by_its_handle(call: Callable[[MemoryBackend], object]) -> Callable[[Held], object]:
    return lambda held: call(held.backend)


CALLS: dict[str, Callable[[MemoryBackend], object]] = {
    "get": lambda backend: backend.get("k"),
    "scan": lambda backend: list(backend.scan("")),
    "commit": lambda backend: backend.commit(Create("k", b"")),
    "commit_async": lambda backend: backend.commit_async(Create("k", b"")).result(),
    "watch": lambda backend: backend.watch(""),
    "campaign": lambda backend: backend.campaign("me", ttl=1.0, stop=threading.Event()),
}
REFUSED: dict[str, Callable[[Held], object]] = {
    **{name: _by_its_handle(call) for name, call in CALLS.items()},
    "wait": lambda held: held.watch.wait(BOUND),
    "changes": lambda held: held.watch.changes(BOUND),
}
ENDS: dict[str, Callable[[Held], object]] = {
    "close_watch": lambda held: held.watch.close(),
    "resign": lambda held: held.leadership.resign(),
    "close": lambda held: held.backend.close(),
}


def _is_refused(call: Callable[[Held], object], held: Held) -> None:
    try:
        call(held)
    except WrongProcess:
        return
    raise SystemExit(3)


def _finds_no_copy(held: Held) -> None:
    with open_memory(held.backend.url, "c") as backend:
        if contents(backend):
            raise SystemExit(3)


def _forked(in_child: Callable[[Held], object]) -> int | None:
    """Return the exit code of a child that was forked while another thread was in the backend; None
    if it hung."""
    locked, over = threading.Event(), threading.Event()

    def hold() -> None:
        with _spaces._lock, backend.space.changed:
            locked.set()
            over.wait()

    with (
        open_memory(f"memory://{uuid.uuid4().hex}", "c") as backend,
        backend.watch("") as watch,
        lead(backend) as leadership,
    ):
        held = Held(backend, watch, leadership)
        holder = threading.Thread(target=hold)
        holder.start()
        try:
            assert locked.wait(BOUND)
            child = multiprocessing.get_context("fork").Process(target=in_child, args=(held,))
            child.start()
            child.join(BOUND)
            exitcode = child.exitcode
            child.kill()
        finally:
            over.set()
            holder.join()
        assert not leadership.lost.is_set()
        return exitcode


@pytest.mark.parametrize("call", REFUSED.values(), ids=REFUSED)
def test_a_forked_child_has_only_a_copy(call: Callable[[Held], object]) -> None:
    """Its commits returned, and nobody saw them; and a lock that was held at the fork hung it."""
    assert _forked(partial(_is_refused, call)) == 0


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_a_forked_child_ends_nothing(end: Callable[[Held], object]) -> None:
    """As at the end of a `with`: it is the parent's, and a lock that was held hung the child."""
    assert _forked(end) == 0


def test_what_a_forked_child_opens_is_new() -> None:
    """It got a copy of the map with that name, and its commits were lost."""
    assert _forked(_finds_no_copy) == 0
