"""The memory backend: how long a map lasts, and whose it is."""

from __future__ import annotations

import gc
import multiprocessing
import threading
import weakref
from collections.abc import Callable

import pytest

from jrs.backends.memory import MemoryBackend, open_memory
from jrs.contract.errors import WrongProcess
from jrs.contract.operations import Create
from jrs.testing.contract import contents
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


CALLS: dict[str, Callable[[MemoryBackend], object]] = {
    "get": lambda backend: backend.get("k"),
    "scan": lambda backend: list(backend.scan("")),
    "commit": lambda backend: backend.commit(Create("k", b"")),
    "commit_async": lambda backend: backend.commit_async(Create("k", b"")).result(),
    "watch": lambda backend: backend.watch(""),
    "campaign": lambda backend: backend.campaign("me", ttl=1.0, stop=threading.Event()),
}


def _is_refused(backend: MemoryBackend, call: Callable[[MemoryBackend], object]) -> None:
    try:
        call(backend)
    except WrongProcess:
        return
    raise SystemExit(3)


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_forked_child_has_only_a_copy(call: Callable[[MemoryBackend], object]) -> None:
    """Its commits returned, and nobody saw them; and a lock that was held at the fork hung it."""
    with open_memory("memory://", "c") as backend:
        with backend.space.changed:
            child = multiprocessing.get_context("fork").Process(
                target=_is_refused, args=(backend, call)
            )
            child.start()
        child.join(BOUND)
        child.kill()
        assert child.exitcode == 0
