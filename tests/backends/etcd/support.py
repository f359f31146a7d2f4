"""What the tests of the etcd backend share."""

from __future__ import annotations

import contextlib
import functools
import itertools
import socket
import threading
import uuid
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pytest

from jrs.backends.etcd import leader
from jrs.backends.etcd.backend import EtcdBackend, open_etcd
from jrs.backends.etcd.watch import EtcdWatch
from jrs.backends.remote.guardian import Guardian
from jrs.backends.shared.lease import LeadershipLease
from jrs.contract.backend import Backend
from jrs.contract.operations import Create
from jrs.contract.watch import Watch
from tests.support import BOUND, until

USERS = {"root": "r00t-s3cret", "jrs": "jrs-s3cret"}
TTL = 3600.0
"""Of leaderships that no test waits out."""


@contextlib.contextmanager
def dropping() -> Iterator[tuple[str, int]]:
    """Yield an address that drops attempts to connect, as a firewall does: a listener whose backlog
    is full."""
    with contextlib.ExitStack() as opened:
        full = opened.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        host, port = full.getsockname()
        for _ in range(4):
            one = opened.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex((host, port))
        yield host, port


def as_user(url: str, name: str, password: str | None = None) -> str:
    """Return the URL with a user and a password in it."""
    return url.replace("://", f"://{name}:{USERS[name] if password is None else password}@")


def with_option(url: str, option: str) -> str:
    return url + ("&" if "?" in url else "?") + option


def opened(url: str, cluster: str | None = None, **options: Any) -> EtcdBackend:
    """Open a cluster of the test's own, whose calls have a minute, unless the URL says otherwise: a
    test whose calls are to fail sets `backend.timeout` once it is open."""
    if "timeout=" not in url:
        url = with_option(url, f"timeout={BOUND}")
    return open_etcd(url, cluster or uuid.uuid4().hex, **options)


def lead(
    backend: Backend, ttl: float = TTL, stop: threading.Event | None = None
) -> LeadershipLease:
    """Campaign, and win."""
    leadership = backend.campaign("a", ttl=ttl, stop=stop or threading.Event())
    assert isinstance(leadership, LeadershipLease)
    return leadership


def until_heard(backend: EtcdBackend, watch: Watch) -> None:
    """Commit keys until the watch names one, instead of that it may have missed some."""
    numbers = itertools.count()

    def heard() -> bool:
        backend.commit(Create(f"heard/{next(numbers)}", b""))
        return bool(watch.changes(0.1))

    until(heard, "the watch hears")


def beat_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have leaderships send a heartbeat in each second, however long their ttl is."""
    often = functools.partial(LeadershipLease, beats=int(TTL))
    monkeypatch.setattr(leader, "LeadershipLease", often)


def guardian_of(leadership: LeadershipLease) -> Guardian:
    assert isinstance(leadership._guardian, Guardian)
    return leadership._guardian


def stream_of(watch: Watch) -> object:
    """Return the stream that a watch listens to, or None."""
    assert isinstance(watch, EtcdWatch)
    return watch._stream


def threads_of_ours(before: Collection[threading.Thread]) -> list[str]:
    """Return the names of the threads that belong to jrs, but for those that serve the tests.

    Args:
        before: those that ran when the test began: what other tests left hanging is not its own.
    """
    names = [thread.name for thread in threading.enumerate() if thread not in before]
    return [
        n for n in names if n.startswith("jrs-") and not n.startswith(("jrs-serv", "jrs-proxy"))
    ]


def no_thread_is_left(before: Collection[threading.Thread]) -> None:
    """Wait until the threads that belong to jrs have ended; see `threads_of_ours`."""
    until(lambda: threads_of_ours(before) == [], "its threads end")


class Counted:
    """Counts the calls of a function that it replaces."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
        self.calls = 0
        inner = getattr(owner, name)

        def counted(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            return inner(*args, **kwargs)

        monkeypatch.setattr(owner, name, counted)


def environment_of(pid: int) -> bytes:
    """Return the command line and the environment of a process."""
    folder = Path(f"/proc/{pid}")
    return (folder / "cmdline").read_bytes() + (folder / "environ").read_bytes()
